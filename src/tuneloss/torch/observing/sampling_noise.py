"""From the gram of some of the training batches to the gram of all of them.

A gradient on some of the batches is the gradient on all of them plus noise. Squares of noise do not cancel. So the gram
contains the covariance of the noise, and a term with a noisy gradient gets too small a weight. The differences between
the batches show how large that covariance is, so that it can be subtracted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
from torch import Tensor

from tuneloss.torch.wrappers import local

PARTS = 4  # the batches are read in at least this number of parts, which are compared
ENTRIES = 2**22  # entries of the parameters that are compared, at most: 16 MB per term
STRIDES = (1, 17, 67, 257, 1031, 4099)  # compare all entries, or about every 17th, and so on

Gradient = Sequence[Tensor | None]  # by parameter


@dataclass
class Spread:
    """How the gradients of data terms differ between parts of the training batches.

    It sums ``n_bi n_bj <g_bi, g_bj>`` over parts b, with the gradients g_bi of data terms i on n_bi examples.

    Parameters
    ----------
    names : sequence of str
        The data terms.
    share : (d,) tensor
        The fraction of all batches that is read, by data term; 0 for an endless loader.
    compares : bool, default False
        Whether anything is summed. This is not needed if all processes read all of their batches.

    Notes
    -----
    If m parts of equal size are drawn from all parts without replacement, their mean gradients g satisfy::

        expected <g_i, g_j> = that of all parts + (1 - share) * expected c_ij
        c_ij = (sum_b <g_bi, g_bj> / m^2 - <g_i, g_j> / m) / (1 - 1 / m)

    where c is an unbiased estimate of the covariance of a mean of m independent parts. Parts of other sizes count by
    their sizes, and ``sum_b n_bi n_bj / (n_i n_j)`` takes the place of 1 / m. The draws of a random term count as data:
    the estimate is of the gram over all batches, each with its own draws. For two data sources with different shares,
    1 - share is the geometric mean of theirs.
    """

    names: Sequence[str]
    share: Tensor
    compares: bool = False
    products: Tensor = field(init=False)
    sizes: list[list[float]] = field(default_factory=list)  # n_bi
    _part: dict[str, list[Tensor]] = field(default_factory=dict)  # sampled gradients of the part that is being read
    _times: dict[str, float] = field(default_factory=dict)  # how often each of them counts
    _counts: Counter[str] = field(default_factory=Counter)  # their numbers of examples

    def __post_init__(self) -> None:
        self.products = torch.zeros(len(self.names), len(self.names), dtype=torch.float64)

    def add(self, name: str, gradient: Gradient, params: Sequence[Tensor], times: float, n: float) -> None:
        """Add ``times * gradient`` of a term on n examples to those of the part that is being read."""
        if self.compares:
            new, old = sampled(gradient, params), self._part.get(name)
            if old is not None:
                before = self._times[name]
                new = [before * a + times * b for a, b in zip(old, new, strict=True)]
            self._part[name], self._times[name] = new, times if old is None else 1.0
            self._counts[name] += n  # type: ignore[assignment]

    def end_part(self, params: Sequence[Tensor]) -> None:
        """End a part after all of its gradients by these parameters were added."""
        if self.compares and self.names:
            for name in self.names:
                if name not in self._part:  # a source without rows in this part
                    self._part[name] = sampled([None] * len(params), params)
            times = torch.tensor([self._times.pop(name, 1.0) for name in self.names], dtype=torch.float64)
            self.products += torch.outer(times, times) * products([self._part.pop(name) for name in self.names])
            self.sizes.append([float(self._counts.pop(name, 0)) for name in self.names])

    def excess(self, total: Tensor, n: Tensor, squares: Tensor) -> Tensor:
        """Estimate what noise adds to the gram (d, d) of the summed gradients.

        Parameters
        ----------
        total : (d, d) tensor
            The gram of the sampled entries of the summed gradients.
        n : (d,) tensor
            The sums of n_bi over parts.
        squares : (d, d) tensor
            The sums of n_bi n_bj over parts.
        """
        rest = (1 - self.share.clamp(max=1)).sqrt()
        q = squares / torch.outer(n, n).clamp(min=1)  # 1 / m
        excess = torch.outer(rest, rest) * (self.products - q * total) / (1 - q).clamp(min=1e-12)
        return torch.where(q < 1 - 1e-9, excess, torch.zeros_like(excess))  # one part alone shows no differences


class Contrast:
    """One vector of the noise of the data terms: a random combination of differences between successive parts.

    It shows how much another metric shrinks the noise. In differences of means the signal cancels.

    Parameters
    ----------
    rng : Generator
        Draws the signs of the terms.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.total: list[Tensor | None] = []  # by parameter
        self._factors: dict[str, float] = {}  # of the terms: random signs, divided by the sizes of their gradients
        self._part: list[Tensor | None] = []
        self._previous: list[Tensor | None] = []

    def add(self, name: str, gradient: Gradient, times: float) -> None:
        """Add ``times * gradient`` of a term to the part that is being read."""
        if name not in self._factors:
            norm = sum(float(g.square().sum()) for g in gradient if g is not None) ** 0.5
            self._factors[name] = float(self.rng.choice([-1.0, 1.0])) / (norm or 1.0)
        self._part = _sum(self._part, gradient, times * self._factors[name])

    def end_part(self, n: int) -> None:
        """End a part of n examples; after every second part, add the difference of the last two."""
        if self._previous:
            self.total = _sum(_sum(self.total, self._previous, 1.0), self._part, -1.0 / n)
            self._previous = []
        else:
            self._previous = _sum([], self._part, 1.0 / n)
        self._part = []


def _sum(total: Gradient, gradient: Gradient, times: float) -> list[Tensor | None]:
    """Return ``total + times * gradient``, by parameter; an empty total is 0."""
    pairs = zip(total or [None] * len(gradient), gradient, strict=True)
    return [a if g is None else times * g if a is None else a + times * g for a, g in pairs]


def sampled(gradient: Gradient, params: Sequence[Tensor]) -> list[Tensor]:
    """Return some entries of a gradient, by parameter, scaled so that their squares sum to all squares."""
    most = sum(p.numel() for p in params) / ENTRIES
    step = next((s for s in STRIDES if s >= most), STRIDES[-1])
    samples = []
    for g, p in zip(gradient, params, strict=True):
        flat = (torch.zeros_like(local(p)) if g is None else local(g)).reshape(-1)
        stride = next(s for s in count(step) if math.gcd(s, max(len(flat), 1)) == 1)  # meets all columns of a matrix
        some = flat[::stride].to(torch.promote_types(flat.dtype, torch.float32))
        samples.append(some if stride == 1 else some * (len(flat) / max(len(some), 1)) ** 0.5)
    return samples


def products(gradients: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the inner products (d, d) of d gradients, each a list by parameter."""
    total = torch.zeros(len(gradients), len(gradients), dtype=torch.float64)
    for parts in zip(*gradients, strict=True):
        rows = torch.stack(parts)
        total += (rows @ rows.T).cpu().double()
    return total


def nearest_gram(gram: Tensor, size: Tensor) -> Tensor:
    """Return the nearest positive semidefinite matrix, after division by the sizes (k,) of the vectors.

    Examples
    --------
    >>> nearest_gram(torch.tensor([[1.0, 0.0], [0.0, -1.0]]), torch.ones(2))
    tensor([[1., 0.],
            [0., 0.]])
    """
    unit = torch.outer(size, size).clamp(min=torch.finfo(size.dtype).tiny)
    values, vectors = torch.linalg.eigh(gram / unit)
    nearest: Tensor = (vectors * values.clamp(min=0)) @ vectors.T * unit
    return nearest
