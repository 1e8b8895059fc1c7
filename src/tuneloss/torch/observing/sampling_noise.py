"""From the gram of some of the training batches to that of all of them.

A gradient taken on a part of the batches is the gradient on all of them plus noise. Squares of noise do not cancel in a
gram: it has the covariance of the noise added, and a term whose square is larger than it should be is given a smaller
weight. How the batches differ among themselves says how large that covariance is, so it can be taken out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

from tuneloss.torch.shards import local

PARTS = 4  # in which the batches are read, at least, to be compared
ENTRIES = 2**22  # of the parameters, by which they are compared at most: 16 MB a term
STRIDES = (1, 17, 67, 257, 1031, 4099)  # so all of them, or about every 17th, and so on

Gradient = Sequence[Tensor | None]  # by parameter


@dataclass
class Spread:
    """Sums over parts b of n_b^2 <g_b,i, g_b,j>, with n_b examples and gradients g_b,i, of data terms i and j.

    Of m parts drawn from all without replacement, as large as each other, the mean gradients g have

        expected <g_i, g_j> = that of all + (1 - share) * expected c_ij
        c_ij = (sum_b <g_b,i, g_b,j> / m^2 - <g_i, g_j> / m) / (1 - 1 / m)

    where c estimates, without bias, the covariance of a mean of m independent parts. A random term's draws count as if
    they were part of the data: what is estimated is the gram that all batches would give, each with draws of its own.

    names: of the data terms. share: the part of all batches that is read; 0 of an endless loader.
    compares: whether anything is kept; not if all batches are read, here and in all other processes.
    """

    names: Sequence[str]
    share: float = 1.0
    compares: bool = False
    products: Tensor = field(init=False)
    sizes: list[int] = field(default_factory=list)  # n_b
    _own: dict[str, list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.products = torch.zeros(len(self.names), len(self.names), dtype=torch.float64)

    def add(self, name: str, gradient: Gradient, params: Sequence[Tensor], times: float) -> None:
        """A gradient of this part, times its number of examples."""
        if self.compares:
            found = [times * sample for sample in sampled(gradient, params)]
            known = self._own.get(name)
            self._own[name] = found if known is None else [a + b for a, b in zip(known, found, strict=True)]

    def end_part(self, n: int) -> None:
        """All gradients of a part of n examples were added."""
        if self.compares and self.names:
            self.products += products([self._own.pop(name) for name in self.names])
            self.sizes.append(n)

    def excess(self, total: Tensor, n: float, squares: float) -> Tensor:
        """What the gram (d, d) of the terms' summed gradients has too much.

        total: the gram of the same entries of the summed gradients. n, squares: sums of n_b and of n_b^2.
        """
        if self.share >= 1 or squares >= n**2:
            return torch.zeros_like(total)  # of one part nothing is known
        q = squares / n**2  # 1 / m
        found: Tensor = (1 - self.share) * (self.products - q * total) / (1 - q)
        return found


def sampled(gradient: Gradient, params: Sequence[Tensor]) -> list[Tensor]:
    """Some entries of each parameter's gradient, times a number that gives their squares the sum of all."""
    most = sum(p.numel() for p in params) / ENTRIES
    step = next((s for s in STRIDES if s >= most), STRIDES[-1])
    found = []
    for g, p in zip(gradient, params, strict=True):
        flat = (torch.zeros_like(local(p)) if g is None else local(g)).reshape(-1)
        own = next(s for s in count(step) if math.gcd(s, max(len(flat), 1)) == 1)  # meets all columns of a matrix
        some = flat[::own]
        weight = (len(flat) / max(len(some), 1)) ** 0.5
        found.append(some.to(torch.promote_types(some.dtype, torch.float32)) * weight)
    return found


def products(gradients: Sequence[Sequence[Tensor]]) -> Tensor:
    """Inner products (d, d) of d gradients, each a list by parameter."""
    total = torch.zeros(len(gradients), len(gradients), dtype=torch.float64)
    for parts in zip(*gradients, strict=True):
        rows = torch.stack(parts)
        total += (rows @ rows.T).cpu().double()
    return total


def nearest_gram(gram: Tensor, size: Tensor) -> Tensor:
    """The nearest positive semidefinite matrix, where entries count by the sizes (k,) of the vectors.

    >>> nearest_gram(torch.tensor([[1.0, 0.0], [0.0, -1.0]]), torch.ones(2))
    tensor([[1., 0.],
            [0., 0.]])
    """
    unit = torch.outer(size, size).clamp(min=torch.finfo(size.dtype).tiny)
    values, vectors = torch.linalg.eigh(gram / unit)
    nearest: Tensor = (vectors * values.clamp(min=0)) @ vectors.T * unit
    return nearest
