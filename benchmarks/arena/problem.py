"""What a problem of the arena is: a model, a loss of several terms, and data to train, validate and test on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tuneloss import Box
from tuneloss.paper.datasets import load_features

Weights = Mapping[str, float]
Batch = Any


@dataclass(eq=False)
class Instance:
    """A problem, drawn with one seed.

    Parameters
    ----------
    model : Module
    terms : mapping or list
        The terms of the loss, as for `LinearLoss`.
    box : mapping or Box
        The weights that are allowed, as for `LinearLoss`.
    error : callable
        The error to be minimised, ``(model, batch) -> mean over the batch``.
    train : iterable
        Training batches; each iteration gives them in another order.
    validation, test : sequence of batches
    epochs : int
        Passes over `train`.
    plain : mapping
        The weights of a user who tunes nothing.
    named : mapping of str to weights
        Other fixed weights: equal ones, the field's rule of thumb, an oracle that knows how the data were made.
    random : callable
        Draws the weights of one run of a random search.
    learning_rate : float
        Of Adam.
    rivals : tuple of str
        Methods of the field that apply, by their names in methods.py.
    measures_per_epoch : int
        How often validation and test error are measured, and the tuner is called, within an epoch.
    """

    model: nn.Module
    terms: Any
    box: Mapping[str, Any] | Box
    error: Callable[[Any, Batch], Tensor]
    train: Any
    validation: Sequence[Batch]
    test: Sequence[Batch]
    epochs: int
    plain: Weights
    random: Callable[[np.random.Generator], Weights]
    named: Mapping[str, Weights] = field(default_factory=dict)
    learning_rate: float = 1e-3
    rivals: tuple[str, ...] = ()
    measures_per_epoch: int = 1

    @property
    def period(self) -> int:
        """Training steps between two measurements."""
        return max(1, len(self.train) // self.measures_per_epoch)


@dataclass(frozen=True)
class Problem:
    """A problem of the arena.

    Parameters
    ----------
    name, kind : str
    half : {"choose", "report"}
        Whether defaults may be chosen on it, or are only reported on it.
    draw : callable
        From a seed to an `Instance`.
    needs_features : bool
        Whether it needs the features files in TUNELOSS_DATA.
    """

    name: str
    kind: str
    half: Literal["choose", "report"]
    draw: Callable[[int], Instance]
    needs_features: bool = False


class Batches:
    """Batches of examples in a new order each time: a DataLoader without its cost per example.

    Parameters
    ----------
    tensors : sequence of tensors
        Columns of the examples, of one length.
    size : int
        Examples per batch; the last batch may have fewer, unless `whole`.
    seed : int
    whole : bool, default False
        Whether to leave out a last batch that is not full.
    """

    def __init__(self, tensors: Sequence[Tensor], size: int, seed: int, *, whole: bool = False) -> None:
        self.tensors, self.size, self.whole = tuple(tensors), size, whole
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        n = len(self.tensors[0])
        return n // self.size if self.whole else -(-n // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        order = torch.randperm(len(self.tensors[0]), generator=self.generator)
        for part in order.split(self.size)[: len(self)]:
            yield tuple(column[part] for column in self.tensors)


def log_uniform(rng: np.random.Generator, names: Sequence[str], upper: Weights, decades: float = 3.0) -> Weights:
    """Draw each weight log-uniformly from the last decades below its upper bound."""
    return {name: float(upper[name] * 10.0 ** -rng.uniform(0.0, decades)) for name in names}


def dirichlet(rng: np.random.Generator, names: Sequence[str]) -> Weights:
    """Draw weights on a simplex: uniformly, or with most of the weight on a few names."""
    shares = rng.dirichlet(np.full(len(names), rng.choice([0.3, 1.0])))
    return dict(zip(names, shares.tolist(), strict=True))


def share(names: Sequence[str], amounts: Sequence[float]) -> Weights:
    """Return weights on a simplex, in proportion to amounts."""
    return dict(zip(names, (np.asarray(amounts, dtype=float) / np.sum(amounts)).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs (N, D) and labels (N,) of a data set, with its parts for training, validation and test."""

    x: Tensor
    y: Tensor
    part: Tensor
    n_classes: int

    def of(self, part: int, rng: np.random.Generator, most: int | None = None) -> tuple[Tensor, Tensor]:
        """Draw at most this many examples of a part (0 train, 1 validation, 2 test), in random order."""
        rows = torch.from_numpy(rng.permutation(np.flatnonzero(self.part.numpy() == part))[:most])
        return self.x[rows], self.y[rows]


@lru_cache(maxsize=2)
def features(name: str, dimensions: int | None = None) -> Examples:
    """Load image features, standardised on the training part, or their first principal components.

    Parameters
    ----------
    name : str
        A file of the folder in TUNELOSS_DATA, without its suffix.
    dimensions : int, optional
        The number of principal components, each with variance in its natural proportion; the mean variance is 1.
    """
    data = load_features(Path(os.environ["TUNELOSS_DATA"]) / f"{name}.npz")
    x, train = np.asarray(data.x, dtype=np.float32), data.part == 0
    mean, spread = x[train].mean(axis=0), x[train].std(axis=0)
    x = (x - mean) / np.where(spread > 0, spread, 1.0)
    if dimensions is not None:
        _, axes = np.linalg.eigh(np.cov(x[train], rowvar=False))
        x = x @ axes[:, ::-1][:, :dimensions].astype(np.float32)
        x = x / x[train].std()
    y = torch.tensor(np.asarray(data.y), dtype=torch.long)
    return Examples(torch.tensor(x), y, torch.tensor(np.asarray(data.part)), int(y.max()) + 1)


def mlp(n_inputs: int, hidden: int, n_outputs: int, seed: int) -> nn.Module:
    """Make an MLP with one hidden layer."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, n_outputs))


def log_loss(model: Any, batch: Batch) -> Tensor:
    """Compute the mean log loss of a batch (inputs, labels)."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
