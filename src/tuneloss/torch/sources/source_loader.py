"""A loader of several data sources: one batch of each at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tuneloss.checks import as_integer
from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import SourceBatch


class SourceLoader:
    """A loader of several data sources, which yields one batch of each source at a time.

    Parameters
    ----------
    sources : mapping of str to loader or dataset
        By name. A dataset is read in random order, in batches of `batch_size`. A loader is read as it is.
    batch_size : int, default 32
        The number of examples of each dataset in a batch.
    length : int, optional
        The number of batches in an epoch. By default that of the longest source. Shorter sources start again. If no
        source has a length, an epoch has no end.
    seed : int, default 0
        The seed of the order of datasets. Each process of `torch.distributed` has an order of its own. To give each of
        them its own part, pass loaders with a `DistributedSampler`.

    Attributes
    ----------
    names : tuple of str
        The names of the sources.
    endless : bool
        Whether an epoch has no end.
    loaders : dict of str to loader
        The loader of each source.

    Examples
    --------
    >>> train = SourceLoader({"web": [torch.zeros(4, 2)] * 3, "books": [torch.ones(2, 2)]})
    >>> [{name: len(rows) for name, rows in batch.items()} for batch in train]
    [{'web': 4, 'books': 2}, {'web': 4, 'books': 2}, {'web': 4, 'books': 2}]
    """

    def __init__(
        self, sources: Mapping[str, Any], batch_size: int = 32, *, length: int | None = None, seed: int = 0
    ) -> None:
        check_sources(sources)
        size = as_integer(batch_size, "batch_size", 1)
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        generator = torch.Generator().manual_seed(as_integer(seed, "seed", 0) + rank)
        self.loaders = {name: _as_loader(name, source, size, generator) for name, source in sources.items()}
        self.names = tuple(sources)
        self._lengths = {name: _length(loader) for name, loader in self.loaders.items()}
        if empty := [name for name, n in self._lengths.items() if n == 0]:
            raise InvalidInput(f"Each source must have at least one batch; {empty} have none.")
        known = [n for n in self._lengths.values() if n is not None]
        self._length = max(known, default=None) if length is None else as_integer(length, "length", 1)

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("A SourceLoader has a length only if a source has one, or `length` is given.")
        return self._length

    @property
    def endless(self) -> bool:
        """Whether an epoch has no end."""
        return self._length is None

    def __iter__(self) -> Iterator[SourceBatch]:
        iterators = {name: _endless(name, loader) for name, loader in self.loaders.items()}
        for _ in count() if self._length is None else range(self._length):
            yield SourceBatch({name: next(iterator) for name, iterator in iterators.items()})

    def shares(self, number: int) -> dict[str, float]:
        """Return which part of each source is read in this number of batches; 0 for a source without end."""
        return {name: min(1.0, number / n) if n else 0.0 for name, n in self._lengths.items()}


def check_sources(sources: Any) -> None:
    """Raise unless these are sources by name."""
    if not isinstance(sources, Mapping) or not sources or not all(isinstance(n, str) and n for n in sources):
        raise InvalidInput(
            f'`sources` must be {{name: loader or dataset}}, such as {{"web": web, "books": books}}; found {sources!r}.'
        )


def is_dataset(source: Any) -> bool:
    """Return whether something gives examples, and not batches: a dataset of torch, or anything like one."""
    like_one = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return isinstance(source, Dataset) or (like_one and not isinstance(source, list | tuple | Mapping | str))


def _as_loader(name: str, source: Any, size: int, generator: torch.Generator) -> Any:
    if is_dataset(source):
        shuffle = None if isinstance(source, IterableDataset) else len(source) > 0  # torch refuses to shuffle nothing
        return DataLoader(source, batch_size=size, shuffle=shuffle, generator=generator)
    if not hasattr(source, "__iter__") or hasattr(source, "__next__") or isinstance(source, str | Mapping):
        raise InvalidInput(
            f"A source must be a dataset, or a loader that can be read from its start again and again; {name!r} is a "
            f"{type(source).__name__}."
        )
    return source


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _endless(name: str, loader: Any) -> Iterator[Any]:
    """Yield the batches of a loader, again and again."""
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise InvalidInput(f"Each source must have at least one batch; {name!r} has none. Is it used up?")
