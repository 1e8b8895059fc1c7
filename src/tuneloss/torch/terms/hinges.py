"""Hinges of tensors: computations over all parameters, on any device.

Computations over knots are in NumPy, in `tuneloss.hinges`. On a CPU, bins are found by the compiled look-up
(`tuneloss.hinges.lookup`), elsewhere by search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tuneloss.errors import InvalidInput
from tuneloss.hinges import PiecewiseLinear, increasing_knots, lookup, quantile_ranks
from tuneloss.types import Array


@dataclass(frozen=True)
class Grid:
    """Knots (p,), finite and increasing, on the device of the tensors whose bins are asked for."""

    knots: Tensor

    @cached_property
    def positions(self) -> Array:
        """The knots in NumPy."""
        return np.asarray(self.knots.detach().double().cpu().numpy())

    @cached_property
    def cells(self) -> tuple[Any, ...]:
        """The arguments that each compiled look-up takes: the knots, and the cells over them."""
        cells = lookup.make_cells(self.positions)
        return cells.knots, cells.first, cells.scale, cells.bins

    def bins_of(self, x: Tensor) -> Tensor:
        """Find the bin, 0 to 2p, of every entry of `x` (n,).

        >>> Grid(torch.tensor([0.0, 1.0])).bins_of(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist()
        [0, 1, 2, 3, 4]
        """
        if not can_look_up(x):
            return searched_bins(x, self.knots)
        bins = torch.empty(len(x), dtype=torch.long)
        lookup.all_bins(bins.numpy(), x.detach().contiguous().numpy(), *self.cells)
        return bins


def can_look_up(x: Tensor) -> bool:
    """Return whether the compiled look-up takes these numbers; torch.compile cannot trace it."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and not torch.compiler.is_compiling()


def searched_bins(x: Tensor, knots: Tensor) -> Tensor:
    """Find the bin, 0 to 2p, of every entry of `x` by search.

    >>> searched_bins(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0]), torch.tensor([0.0, 1.0])).tolist()
    [0, 1, 2, 3, 4]
    """
    dtype = torch.promote_types(torch.promote_types(x.dtype, knots.dtype), torch.float32)
    x, knots = x.detach().reshape(-1).to(dtype), knots.to(dtype)
    below = torch.bucketize(x, knots)  # the number of knots below
    return 2 * below + (below < len(knots)) * (x == knots[below.clamp(max=len(knots) - 1)])


def bin_sums(bins: Tensor, rows: Tensor, size: int) -> Tensor:
    """Sum each row of `rows` (d, n) by the bins (n,) of its entries, and return the sums (size, d).

    >>> bin_sums(torch.tensor([0, 2, 0]), torch.tensor([[1.0, 2.0, 3.0]]), 3).tolist()
    [[4.0], [0.0], [2.0]]
    """
    sums = rows.new_zeros(len(rows), size)
    for total, row in zip(sums, rows, strict=True):  # row by row is faster than all rows at once
        total.index_add_(0, bins, row)
    return sums.T


@dataclass(frozen=True)
class Table:
    """A convex function r ready for tensors: ``intercepts + slopes * (x - center)`` in each bin.

    Parameters
    ----------
    grid : Grid
        The knots, p of them.
    center : float
        Where the intercepts are measured.
    slopes, intercepts : (2p + 1,) float64 tensor
        On the device of the knots.
    """

    grid: Grid
    center: float
    slopes: Tensor
    intercepts: Tensor


def make_table(r: PiecewiseLinear, grid: Grid) -> Table:
    """Prepare r, whose knots are those of the grid, for many calls of `penalty`.

    >>> grid = Grid(torch.tensor([0.0]))
    >>> make_table(PiecewiseLinear.from_weights(grid.positions, [1.0, 1.0]), grid).slopes.tolist()
    [-1.0, 0.0, 1.0]
    """
    slopes, intercepts = (torch.as_tensor(part, device=grid.knots.device) for part in (r.bin_slopes, r.intercepts))
    return Table(grid, r.center, slopes, intercepts)


def penalty(x: Tensor, table: Table) -> Tensor:
    """Sum r over the entries of `x`, as a scalar with gradient. At a knot the two hinges of that knot have slope 0.

    >>> grid = Grid(torch.tensor([0.0]))
    >>> absolute = make_table(PiecewiseLinear.from_weights(grid.positions, [1.0, 1.0]), grid)
    >>> x = torch.tensor([-3.0, 0.0, 2.0], requires_grad=True)
    >>> value = penalty(x, absolute)
    >>> value.backward()
    >>> value.item(), x.grad.tolist()
    (5.0, [-1.0, 0.0, 1.0])
    """
    value: Tensor = _Penalty.apply(x, table)  # type: ignore[no-untyped-call]
    return value


class _Penalty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Table) -> Tensor:
        flat = x.detach().reshape(-1).to(torch.promote_types(x.dtype, torch.float32))
        if can_look_up(flat):
            slopes = torch.empty_like(flat)
            of_bins = (table.slopes.float().numpy(), table.intercepts.float().numpy(), np.float32(table.center))
            total = lookup.value_and_slopes(slopes.numpy(), flat.numpy(), *of_bins, *table.grid.cells)
            value = torch.tensor(total, dtype=torch.float64)
        else:
            bins = searched_bins(flat, table.grid.knots)
            slopes = table.slopes[bins]
            value = (slopes * (flat.double() - table.center) + table.intercepts[bins]).sum()
            slopes = slopes.to(flat.dtype)
        ctx.save_for_backward(slopes.to(x.dtype).view(x.shape))
        return value.to(flat.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        is_one = grad.device.type == "cpu" and grad.item() == 1  # in a sum that is not scaled: this saves a pass
        return slopes if is_one else slopes * grad, None


def quantile_knots(x: Tensor, p: int) -> Tensor:
    """Place exactly `p` increasing knots from the least to the greatest entry of `x`, at its quantiles (paper, app. B).

    Quantiles that repeat are replaced as `increasing_knots` says.

    >>> quantile_knots(torch.arange(9.0), 3).tolist()
    [0.0, 4.0, 8.0]
    """
    x = x.detach().reshape(-1).to(torch.promote_types(x.dtype, torch.float32))
    if p < 2:
        raise InvalidInput(f"`p` must be at least 2; found {p}. The least and the greatest parameter are knots.")
    if len(x) == 0 or not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise InvalidInput(f"Knots need parameters that are finite; found {bad} of {len(x)} not. Place knots earlier.")
    ranks = torch.as_tensor(quantile_ranks(len(x), p), device=x.device)
    return torch.as_tensor(increasing_knots(x.sort().values[ranks].cpu().numpy()), device=x.device)
