"""From the gram of some of the training batches to that of all of them.

A gradient taken on a part of the batches is the gradient on all of them plus noise. Noise of different terms does not
cancel in a gram: it adds its covariance, and a term whose square is larger than it should be is given a smaller weight.
How the batches differ among themselves says how large that covariance is, so it can be taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from tuneloss.torch.distributed import sum_over
from tuneloss.torch.shards import local

PARTS = 4  # in which the batches are read, at least, to be compared
STRIDE, SMALL = 17, 1024  # they are compared by every 17th entry of a parameter, and by all if it has few


@dataclass
class Spread:
    """Sums over parts b of n_b^2 <g_b,i, g_b,j>, with n_b examples and gradients g_b,i, of data terms i and j.

    Of m parts drawn from all without replacement, as large as each other, the mean gradients g have

        expected <g_i, g_j> = that of all + (1 - share) * expected c_ij
        c_ij = (sum_b <g_b,i, g_b,j> / m^2 - <g_i, g_j> / m) / (1 - 1 / m)

    where c estimates, without bias, the covariance of a mean of m independent parts. A random term's draws count as if
    they were part of the data: what is estimated is the gram that all batches would give, each with draws of its own.

    share: the part of all batches that is read.
    """

    names: Sequence[str]
    share: float
    products: Tensor = field(init=False)  # 0 where all are read
    sizes: Tensor = field(init=False)  # sum of n_b, sum of n_b^2
    _own: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        k = len(self.names)
        self.products, self.sizes = torch.zeros(k, k, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)

    def add(self, name: str, gradient: Sequence[Tensor | None], params: Sequence[Tensor], times: float) -> None:
        """A gradient of this part, times its number of examples."""
        if self.share == 1:
            return
        sample = times * torch.cat([_sampled(g, p) for g, p in zip(gradient, params, strict=True)])
        self._own[name] = self._own[name] + sample if name in self._own else sample

    def end_part(self, n: int) -> None:
        """All gradients of a part of n examples were added."""
        if self.share == 1:
            return
        rows = torch.stack([self._own.pop(name) for name in self.names]).double()
        self.products += (rows @ rows.T).cpu()
        self.sizes += torch.tensor([n, n**2], dtype=torch.float64)

    def sum_over(self, group: ProcessGroup, device: torch.device) -> None:
        """Under DDP the parts are those of all processes, and the share is the mean of theirs."""
        share = torch.tensor([self.share, 1.0], dtype=torch.float64)
        message = torch.cat([self.products.reshape(-1), self.sizes, share]).to(device)
        sum_over([message], group)
        products, self.sizes, share = torch.split(message.cpu(), [self.products.numel(), 2, 2])
        self.products, self.share = products.view_as(self.products), float(share[0] / share[1])

    def excess(self, gram: Tensor) -> Tensor:
        """What to take off the gram (d, d) of the terms' summed gradients."""
        n, squares = self.sizes.tolist()
        if self.share == 1 or squares >= n**2:
            return torch.zeros_like(gram)  # of one part nothing is known
        q = squares / n**2  # 1 / m
        found: Tensor = (1 - self.share) * (self.products - q * gram) / (1 - q)
        return found


def _sampled(gradient: Tensor | None, param: Tensor) -> Tensor:
    """Some entries, times a number that gives their squares the sum of all."""
    if gradient is None:
        gradient = torch.zeros_like(local(param))
    flat: Tensor = local(gradient).reshape(-1)
    if len(flat) <= SMALL:
        return flat
    some = flat[::STRIDE]
    return some.mul((len(flat) / len(some)) ** 0.5)


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
