"""One term per data source: the same loss, on the rows of each source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import SourceBatch, rows_of, size

Key = int | str


class PerSource:
    """One term per data source: the mean of a loss over the rows of that source.

    Parameters
    ----------
    sources : iterable of str
        The names of the sources, which are the names of the weights; for example a `SourceLoader`.
    term : callable
        ``(model, batch) -> mean over the batch (a scalar)``, or ``-> loss of each row (N,)``. With a loss of each row,
        training needs one forward per batch, and not one per source.
    key : int or str, optional
        Where a batch holds the number of each row's source, as a tensor (N,): ``batch[key]``. Sources are numbered from
        0, in the order of `sources`.
    sampled : bool, default False
        Whether training draws the rows of its batches with the weights as probabilities, by a `MixtureLoader`. Such a
        batch already has the right mixture. So its mean counts once, and not once per source.

    Notes
    -----
    Without `key`, a batch is a `SourceBatch`, such as a `SourceLoader` yields. An observation differentiates each
    source on its own rows only, so its cost grows with the number of rows, and not with rows times sources. If the term
    gives a loss of each row and a batch norm normalizes by the batch, a row depends on all others. Then each source is
    differentiated on all rows. The first call of a loss makes one forward over all rows to see what the term gives.

    Examples
    --------
    >>> loss = PerSource(["web", "books"], lambda model, batch: (model(batch[0]) - batch[1]).square(), key=2)
    >>> batch = (torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3), torch.tensor([1, 0, 1]))
    >>> loss(lambda x: x, batch)
    {'web': tensor(4.), 'books': tensor(5.)}
    """

    name = "sources"

    def __init__(
        self,
        sources: Iterable[str],
        term: Callable[[Any, Any], Tensor],
        *,
        key: Key | None = None,
        sampled: bool = False,
    ) -> None:
        names = getattr(sources, "names", sources)
        self.names = tuple(names) if isinstance(names, Iterable) else ()
        if isinstance(sources, str) or not self.names or not all(isinstance(n, str) and n for n in self.names):
            raise InvalidInput(f'`sources` must be names of sources, such as ["web", "books"]; found {sources!r}.')
        if len(set(self.names)) < len(self.names):
            raise InvalidInput(f"Sources must have different names; found {list(self.names)}.")
        if not callable(term) or isinstance(term, type):
            raise InvalidInput(
                f"`term` must be a callable (model, batch) -> mean over the batch, or loss of each row; found {term!r}."
            )
        self.term, self.key, self.sampled = term, key, sampled
        self.random = bool(getattr(term, "random", False))
        self.by_row: bool | None = None  # whether the term gives a loss of each row; known after the first call

    def __call__(self, model: Any, batch: Any, wanted: Collection[str] | None = None) -> dict[str, Tensor]:
        """Return the mean loss of each source that has rows in the batch.

        Parameters
        ----------
        model, batch : object
            As for any term.
        wanted : collection of str, optional
            The sources that are needed, by default all.
        """
        if self.sampled and not isinstance(batch, SourceBatch):
            losses = self._losses(model, batch)
            return dict.fromkeys(self.names, losses.mean())
        split = self.split(batch)
        parts = split if wanted is None else SourceBatch({n: rows for n, rows in split.items() if n in wanted})
        if self.by_row is not False and len(parts) > 1 and parts.can_be_joined():
            losses = self._losses(model, split.whole() if len(parts) == len(split) else parts.whole())
            if self.by_row:
                of_sources = torch.split(losses, [size(rows) for rows in parts.values()])
                return {name: part.mean() for name, part in zip(parts, of_sources, strict=True)}
            del losses  # with its graph
        return {name: self._losses(model, rows).mean() for name, rows in parts.items()}

    def split(self, batch: Any) -> SourceBatch:
        """Return the rows of each source that has some.

        Raises
        ------
        InvalidInput
            If the batch does not say which rows belong to which source.
        """
        if isinstance(batch, SourceBatch):
            if not batch or any(name not in self.names for name in batch):
                raise InvalidInput(f"A batch must have rows of the sources {list(self.names)}; found {list(batch)}.")
            return batch
        if self.key is None:
            raise InvalidInput(
                "`PerSource` must know which rows belong to which source; found a batch of type "
                f"{type(batch).__name__} that does not say. Read it from a SourceLoader, give `key=`, the place of the "
                "sources' numbers in a batch, or say sampled=True if a MixtureLoader draws the rows."
            )
        numbers = self._numbers(batch)
        if len(numbers) != size(batch):
            raise InvalidInput(
                f"A batch must have one number of a source per row; found {len(numbers)} numbers in a batch of "
                f"{size(batch)} rows. The number of rows is the length of its first tensor."
            )
        present = torch.unique(numbers).tolist()
        if present and not 0 <= present[0] <= present[-1] < len(self.names):
            raise InvalidInput(
                f"The numbers of sources must be from 0 to {len(self.names) - 1}; found {present[0]} to {present[-1]}."
            )
        return SourceBatch({self.names[j]: rows_of(batch, (numbers == j).nonzero()[:, 0]) for j in present})

    def _numbers(self, batch: Any) -> Tensor:
        """Return the number of the source of each row."""
        try:
            numbers = batch[self.key]
        except (KeyError, IndexError, TypeError):
            numbers = None
        if not isinstance(numbers, Tensor) or numbers.ndim != 1 or numbers.is_floating_point():
            found = f"a tensor of shape {tuple(numbers.shape)}" if isinstance(numbers, Tensor) else repr(numbers)
            raise InvalidInput(
                f"A batch must hold the numbers of its rows' sources at [{self.key!r}], as whole numbers (N,); found "
                f"{found}."
            )
        return numbers

    def _losses(self, model: Any, batch: Any) -> Tensor:
        """Return the loss of each row (N,), or their mean () if the term gives no more."""
        losses = self.term(model, batch)
        if isinstance(losses, Tensor) and (losses.numel() == 1 or losses.shape == (size(batch),)):
            if losses.ndim == 0 or size(batch) > 1:  # of one row, its loss may be a mean of shape (1,)
                self.by_row = losses.shape == (size(batch),)
            return losses
        found = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
        raise InvalidInput(
            "The term of `PerSource` must return a mean over the batch, or one loss per row, shape "
            f"({size(batch)},); found {found}."
        )
