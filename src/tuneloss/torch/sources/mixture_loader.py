"""Batches drawn from several data sets, with the weights of a loss as probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.utils.data import DataLoader, default_collate

from tuneloss.checks import as_integer, as_number
from tuneloss.errors import InvalidInput
from tuneloss.torch.sources.source_loader import check_sources
from tuneloss.torch.sources.stream import Stream
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.types import Array

VERSION = 1  # of the state


class MixtureLoader:
    """Batches drawn from several datasets, with the weights of a loss as probabilities.

    It has no end, and is for training only: a tuner reads a `SourceLoader`. When the weights of the loss change, the
    next batch follows them. Each dataset is read in random order, each example once before any a second time.

    Parameters
    ----------
    sources : mapping of str to dataset
        By name: datasets of examples, with a length or iterable. A batch that is drawn mixes their examples.
    weights : LinearLoss or mapping of str to float
        The loss whose weights of these names are the probabilities, up to a factor. Or fixed probabilities.
    batch_size : int, default 32
        The number of examples in a batch, in each process.
    seed : int, default 0
        The seed of all draws.
    collate : callable, optional
        Makes a batch from a list of examples, as for a `DataLoader`.

    Notes
    -----
    The number of examples of a source in a batch is its probability times the size of the batch, rounded up or down at
    random, so that it is right on average (systematic sampling).

    Among several processes of `torch.distributed`, all draw the same examples and each keeps its own part. They stay in
    step as long as their weights are equal, as a tuner keeps them.

    Examples
    --------
    >>> import torch
    >>> mixture = MixtureLoader({"web": torch.zeros(9), "books": torch.ones(5)}, {"web": 1, "books": 3}, batch_size=8)
    >>> next(iter(mixture)).sum()
    tensor(6.)
    """

    endless = True

    def __init__(
        self,
        sources: Mapping[str, Any],
        weights: LinearLoss | Mapping[str, float],
        batch_size: int = 32,
        *,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        check_sources(sources)
        for name, source in sources.items():
            if isinstance(source, DataLoader | str) or not (hasattr(source, "__iter__") or hasattr(source, "__len__")):
                raise InvalidInput(
                    f"A MixtureLoader draws examples from datasets; {name!r} is a {type(source).__name__}. Give the "
                    "dataset, not a loader of its batches."
                )
        names = set(weights.names if isinstance(weights, LinearLoss) else weights)
        if missing := [name for name in sources if name not in names]:
            raise InvalidInput(f"Each source must have a weight; {missing} have none among {sorted(names)}.")
        self.names, self.weights, self.collate = tuple(sources), weights, collate
        self.batch_size, self.seed = as_integer(batch_size, "batch_size", 1), as_integer(seed, "seed", 0)
        self.streams = [Stream(name, source, (self.seed, j)) for j, (name, source) in enumerate(sources.items())]
        self._drawn = 0  # batches

    def probabilities(self) -> Array:
        """Return the present probabilities (k,) of the sources."""
        weights = self.weights.as_dict() if isinstance(self.weights, LinearLoss) else self.weights
        p = np.array([as_number(weights[name], f"weights[{name!r}]") for name in self.names])
        if (p < 0).any() or not 0 < p.sum() < np.inf:
            raise InvalidInput(
                f"Weights that are probabilities must be at least 0, and not all 0; found {dict(weights)}."
            )
        shares: Array = p / p.sum()
        return shares

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._draw()

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to continue with the next batch: numbers only."""
        return {
            "version": VERSION,
            "names": list(self.names),
            "seed": self.seed,
            "drawn": self._drawn,
            "positions": [[stream.epoch, stream.position] for stream in self.streams],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        expected = (VERSION, list(self.names), self.seed)
        found = (state.get("version"), list(state.get("names", [])), state.get("seed"))
        if found != expected:
            raise InvalidInput(
                "The state must be of a MixtureLoader with the same sources and seed: version, names and seed "
                f"{expected}; found {found}."
            )
        self._drawn = as_integer(state["drawn"], "drawn", 0)
        for stream, (epoch, position) in zip(self.streams, state["positions"], strict=True):
            stream.go_to(as_integer(epoch, "epoch", 0), as_integer(position, "position", 0))

    def _draw(self) -> Any:
        several = dist.is_available() and dist.is_initialized()
        rank, processes = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
        n = self.batch_size * processes
        rng = np.random.default_rng((self.seed, len(self.streams), self._drawn))
        ends = np.cumsum(systematic(self.probabilities(), n, rng))
        wanted = np.zeros(n, dtype=bool)
        wanted[rng.permutation(n)[rank::processes]] = True
        parts = zip(self.streams, np.split(wanted, ends[:-1]), strict=True)
        examples = [example for stream, part in parts for example in stream.take(part.tolist())]
        self._drawn += 1
        return self.collate(examples)


def systematic(probabilities: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw how many of n examples come from each source: n times its probability, rounded up or down at random.

    Examples
    --------
    >>> systematic(np.array([0.5, 0.25, 0.25]), 8, np.random.default_rng(0)).tolist()
    [4, 2, 2]
    """
    ends = np.cumsum(probabilities) * n
    ends[-1] = n  # without the rounding of the sum
    return np.diff(np.floor(ends + rng.random()), prepend=0).astype(int)
