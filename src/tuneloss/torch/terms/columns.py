"""The columns of a penalty in the jacobian, gathered block by block of its parameters.

An observation needs the Gram matrix of the gradients of all terms, not the gradients. So a penalty gives one `Columns`
object per group of its parameters, and the object sees the parameters in blocks. It either gives its gradients as rows,
which are multiplied at once with the rows of other terms, or it gathers sums per bin. At the end it adds its values and
what it gathered to the observation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tuneloss.hinges import hinge_gram, hinge_matrix, hinge_products, hinge_values
from tuneloss.torch.terms.hinges import Grid, bin_sums
from tuneloss.types import Array


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


class Columns(ABC):
    """The gradients of some weights of a penalty, as columns of the jacobian.

    Parameters
    ----------
    positions : sequence of int
        The positions of the weights in the loss.
    members : collection of str
        The names of the parameters to be seen.
    """

    gathers = False  # whether `gather` may be called instead of `rows`

    def __init__(self, positions: Sequence[int], members: Collection[str]) -> None:
        self.positions, self.members = list(positions), members

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


class GradientColumn(Columns):
    """One weight whose value and gradient are known as a whole, by autograd."""

    def __init__(self, position: int, value: float, gradient: Mapping[str, Tensor]) -> None:
        super().__init__([position], gradient.keys())
        self.value, self.gradient = value, gradient

    def see(self, block: Block) -> None:
        """Do nothing: the value is known."""

    def rows(self, block: Block) -> Tensor:
        return self.gradient[block.name].reshape(-1)[block.part].to(block.numbers.device).double().unsqueeze(0)

    def add_to(self, gram: Tensor, values: Tensor) -> None:
        values[self.positions] += self.value


class EntrywiseColumn(Columns):
    """One weight of a sum over single entries: `value` (b,) -> scalar, and its gradient `slope` (b,) -> (b,)."""

    def __init__(
        self,
        position: int,
        members: Collection[str],
        value: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__([position], members)
        self.value, self.slope, self.total = value, slope, 0.0

    def see(self, block: Block) -> None:
        self.total += float(self.value(block.numbers))

    def rows(self, block: Block) -> Tensor:
        return self.slope(block.numbers).unsqueeze(0)

    def add_to(self, gram: Tensor, values: Tensor) -> None:
        values[self.positions] += self.total


class HingeColumns(Columns):
    """The hinges at the knots (p,) of one group: counts and sums per bin are all that they need."""

    gathers = True

    def __init__(self, positions: Sequence[int], members: Collection[str], knots: Tensor) -> None:
        super().__init__(positions, members)
        self.knots = knots
        self.grids: dict[torch.device, Grid] = {}
        self.grid, self.bins = Grid(knots), torch.empty(0, dtype=torch.long)  # of the last block
        self.last_counts = np.zeros(self.grid.size)  # of the last block too
        self.counts, self.sums, self.mass = np.zeros((3, self.grid.size))  # mass: counts of entries in the gram
        self.products: dict[int, Array] = {}  # by column: its sums per bin

    def see(self, block: Block) -> None:
        device = block.entries.device
        self.grid = self.grids.setdefault(device, Grid(self.knots.to(device)))
        self.bins = self.grid.bins_of(block.entries)
        self.last_counts = torch.bincount(self.bins, minlength=self.grid.size).double().cpu().numpy()
        self.counts += self.last_counts
        self.sums += bin_sums(self.bins, block.numbers.unsqueeze(0), self.grid.size)[:, 0].cpu().numpy()

    def rows(self, block: Block) -> Tensor:
        return torch.as_tensor(hinge_matrix(len(self.knots))).to(block.numbers)[:, self.bins]

    def gather(self, columns: Sequence[int], rows: Tensor) -> None:
        self.mass += self.last_counts
        for j, sums in zip(columns, bin_sums(self.bins, rows, self.grid.size).T.cpu().numpy(), strict=True):
            self.products[j] = self.products.get(j, 0.0) + sums

    def add_to(self, gram: Tensor, values: Tensor) -> None:
        values[self.positions] += torch.from_numpy(hinge_values(self.counts, self.sums, self.grid.positions))
        add_block(gram, self.positions, self.positions, torch.from_numpy(hinge_gram(self.mass)))
        if self.products:
            others, sums = list(self.products), np.stack(list(self.products.values()), axis=1)
            cross = torch.from_numpy(hinge_products(sums))
            add_block(gram, self.positions, others, cross)
            add_block(gram, others, self.positions, cross.T)


def add_block(gram: Tensor, rows: Sequence[int], columns: Sequence[int], block: Tensor) -> None:
    """Add a block to ``gram[rows, columns]``; no row and no column may repeat."""
    gram[torch.tensor(rows, dtype=torch.long).unsqueeze(1), torch.tensor(columns, dtype=torch.long)] += block
