"""The columns of penalties in the jacobian, and the gram of all terms, summed over blocks of parameters.

An observation needs the Gram matrix of the gradients of all terms, not the gradients. So a penalty gives one `Columns`
object per group of its parameters, and the object sees the parameters in blocks. It either gives its gradients as rows,
which are multiplied at once with the rows of other terms, or it gathers sums per bin. At the end it adds its values and
what it gathered to the observation. No n x k matrix is ever formed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tuneloss.hinges import hinge_gram, hinge_matrix, hinge_products, hinge_values
from tuneloss.torch.terms.hinges import Grid, bin_sums
from tuneloss.torch.wrappers import local
from tuneloss.types import Array

BLOCK = 1 << 15  # entries of a parameter at a time: a block with a few dozen rows in float64 fits into a CPU's cache


@dataclass(frozen=True)
class Block:
    """Some successive entries of a parameter.

    Parameters
    ----------
    name : str
        The parameter's name.
    part : slice
        The positions of the entries in the flattened parameter.
    entries : (b,) tensor
        The entries, in the parameter's dtype.
    numbers : (b,) tensor
        The same entries in float64.
    """

    name: str
    part: slice
    entries: Tensor
    numbers: Tensor


def blocks(name: str, p: Tensor) -> Iterator[Block]:
    """Cut the local part of a parameter into blocks."""
    flat = local(p).reshape(-1)
    for start in range(0, flat.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        entries = flat[part].cpu() if flat.device.type == "mps" else flat[part]  # mps has no float64
        yield Block(name, part, entries, entries.double())


@dataclass(eq=False)
class Columns(ABC):
    """The gradients of some weights of a penalty, as columns of the jacobian.

    Parameters
    ----------
    positions : list of int
        The positions of the weights in the loss.
    members : collection of str
        The names of the parameters to be seen.
    """

    gathers: ClassVar[bool] = False  # whether `gather` may be called instead of `rows`
    positions: list[int]
    members: Collection[str]

    @abstractmethod
    def see(self, block: Block) -> None:
        """Add a block of a member to the values. Each block is seen once, before `rows` or `gather`."""

    @abstractmethod
    def rows(self, block: Block) -> Tensor:
        """Return the gradients (d, b) of the d weights by the block that was seen last."""

    def gather(self, columns: Sequence[int], rows: Tensor) -> None:
        """Gather the products of these columns with rows (len(columns), b) of other columns, for the last block."""
        raise NotImplementedError(f"{type(self).__name__} gives rows.")

    @abstractmethod
    def add_to(self, gram: Tensor, values: Tensor) -> None:
        """Add the values, and the products that were gathered, to the gram (k + 1, k + 1) and the values (k + 1,)."""


@dataclass(eq=False)
class GradientColumn(Columns):
    """One weight whose value and gradient, by name of the parameter, are known as a whole, by autograd."""

    value: float
    gradient: Mapping[str, Tensor]

    def see(self, block: Block) -> None:
        """Do nothing: the value is known."""

    def rows(self, block: Block) -> Tensor:
        return self.gradient[block.name].reshape(-1)[block.part].to(block.numbers.device).double().unsqueeze(0)

    def add_to(self, gram: Tensor, values: Tensor) -> None:
        values[self.positions] += self.value


@dataclass(eq=False)
class EntrywiseColumn(Columns):
    """One weight of a sum over single entries: `value` (b,) -> scalar, and its gradient `slope` (b,) -> (b,)."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    total: float = 0.0

    def see(self, block: Block) -> None:
        self.total += float(self.value(block.numbers))

    def rows(self, block: Block) -> Tensor:
        return self.slope(block.numbers).unsqueeze(0)

    def add_to(self, gram: Tensor, values: Tensor) -> None:
        values[self.positions] += self.total


class HingeColumns(Columns):
    """The hinges at the knots (p,) of one group: counts and sums per bin are all that they need."""

    gathers = True

    def __init__(self, positions: list[int], members: Collection[str], knots: Tensor) -> None:
        super().__init__(positions, members)
        self.knots = knots
        self.grids: dict[torch.device, Grid] = {}
        self.grid, self.bins = Grid(knots), torch.empty(0, dtype=torch.long)  # of the last block
        self.n_bins = 2 * len(knots) + 1
        self.last_counts = np.zeros(self.n_bins)  # of the last block too
        self.counts, self.sums, self.mass = np.zeros((3, self.n_bins))  # mass: counts of entries in the gram
        self.products: dict[int, Array] = {}  # by column: its sums per bin

    def see(self, block: Block) -> None:
        device = block.entries.device
        self.grid = self.grids.setdefault(device, Grid(self.knots.to(device)))
        self.bins = self.grid.bins_of(block.entries)
        self.last_counts = torch.bincount(self.bins, minlength=self.n_bins).double().cpu().numpy()
        self.counts += self.last_counts
        self.sums += bin_sums(self.bins, block.numbers.unsqueeze(0), self.n_bins)[:, 0].cpu().numpy()

    def rows(self, block: Block) -> Tensor:
        return torch.as_tensor(hinge_matrix(len(self.knots))).to(block.numbers)[:, self.bins]

    def gather(self, columns: Sequence[int], rows: Tensor) -> None:
        self.mass += self.last_counts
        for j, sums in zip(columns, bin_sums(self.bins, rows, self.n_bins).T.cpu().numpy(), strict=True):
            self.products[j] = self.products.get(j, 0.0) + sums

    def add_to(self, gram: Tensor, values: Tensor) -> None:
        values[self.positions] += torch.from_numpy(hinge_values(self.counts, self.sums, self.grid.positions))
        add_block(gram, self.positions, self.positions, torch.from_numpy(hinge_gram(self.mass)))
        if self.products:
            others, sums = list(self.products), np.stack(list(self.products.values()), axis=1)
            cross = torch.from_numpy(hinge_products(sums))
            add_block(gram, self.positions, others, cross)
            add_block(gram, others, self.positions, cross.T)


def gram_and_values(
    params: Mapping[str, Tensor],
    columns: Sequence[Columns],
    gradients: Mapping[int, Mapping[str, Tensor]],
    k: int,
    *,
    inside: Collection[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the gram of all terms and the error, and the values of the penalties, over the local shards.

    Parameters
    ----------
    params : mapping of str to tensor
        All parameters that are trained.
    columns : sequence of Columns
        The columns of all penalties.
    gradients : mapping
        The gradients of the data terms and of the error: ``{column: {parameter: gradient}}``; a missing one is 0.
    k : int
        The number of weights. Column k is the error's.
    inside : collection of str, optional
        The parameters in the gram, by default all. The others count in the values of penalties only.

    Returns
    -------
    gram : (k + 1, k + 1) float64 tensor
    values : (k + 1,) float64 tensor
        0 for data terms and the error.
    """
    gram, values = torch.zeros(k + 1, k + 1, dtype=torch.float64), torch.zeros(k + 1, dtype=torch.float64)
    inside = set(params if inside is None else inside)
    for name, p in params.items():
        of_penalties = [c for c in columns if name in c.members]
        gathering = [c for c in of_penalties if c.gathers][:1]  # one penalty may gather sums per bin
        as_rows = [c for c in of_penalties if c not in gathering]
        of_data = {j: gradient[name].reshape(-1) for j, gradient in gradients.items() if name in gradient}
        with_rows = [*of_data, *(j for c in as_rows for j in c.positions)]
        for block in blocks(name, p):
            for c in of_penalties:
                c.see(block)
            if name in inside:
                none = block.numbers.new_zeros(0, len(block.numbers))
                parts = [g[block.part] for g in of_data.values()]
                data_rows = [torch.stack(parts).to(block.numbers.device).double()] if parts else []
                rows = torch.cat([*data_rows, *(c.rows(block) for c in as_rows), none])
                add_block(gram, with_rows, with_rows, (rows @ rows.T).cpu())
                for c in gathering:
                    c.gather(with_rows, rows)
    for c in columns:
        c.add_to(gram, values)
    return gram, values


def add_block(gram: Tensor, rows: Sequence[int], columns: Sequence[int], block: Tensor) -> None:
    """Add a block to ``gram[rows, columns]``; no row and no column may repeat."""
    gram[torch.tensor(rows, dtype=torch.long).unsqueeze(1), torch.tensor(columns, dtype=torch.long)] += block
