"""Convex piecewise-linear penalties on parameters, as sums of hinges (paper, app. B).

With knots a_0 < ... < a_{p-1} and weights right, left >= 0, the penalty of one parameter x is

    r(x) = sum_j right_j * max(x - a_j, 0) + left_j * max(a_j - x, 0)

All that a hinge needs to know of a parameter is its bin (grid.py). In a bin every hinge is linear, so values, gradients
and Gram matrices come from the counts and sums of the 2p + 1 bins, and no n x 2p Jacobian is ever made. Weights are
ordered right_0.., left_0.. .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tuneloss.errors import InvalidInput
from tuneloss.hinges import lookup
from tuneloss.torch.terms.grid import Grid, can_look_up, searched_bins


def hinge_matrix(p: int) -> Tensor:
    """Gradients (2p, 2p+1) of the 2p hinges in the 2p+1 bins.

    With counts (2p+1,) of parameters and sums S (2p+1, d) of the rows of D in each bin, the hinges' Jacobian J
    gives J'J = A diag(counts) A' and J'D = A S.

    >>> hinge_matrix(1)
    tensor([[ 0.,  0.,  1.],
            [-1.,  0.,  0.]], dtype=torch.float64)
    """
    knot, b = 2 * torch.arange(p).unsqueeze(1) + 1, torch.arange(2 * p + 1)
    return torch.cat([(b > knot).long(), -(b < knot).long()]).double()


def hinge_values(counts: Tensor, sums: Tensor, knots: Tensor) -> Tensor:
    """Values (2p,) of the hinges, each summed over all parameters, from counts and sums (2p+1,) of the bins.

    >>> x, knots = torch.tensor([-1.0, 3.0]), torch.tensor([0.0])
    >>> hinge_values(torch.tensor([1, 0, 1]), torch.tensor([-1.0, 0.0, 3.0]), knots).tolist()
    [3.0, 1.0]
    """
    A, a = hinge_matrix(len(knots)).to(knots.device), knots.double()
    return A @ sums.double() - (A @ counts.double()) * torch.cat([a, a])


def bin_sums(index: Tensor, rows: Tensor, n_bins: int) -> Tensor:
    """Sums (n_bins, d) of the d rows of `rows` (d, b), by the bins `index` (b,) of their entries.

    >>> bin_sums(torch.tensor([0, 2, 0]), torch.tensor([[1.0, 2.0, 3.0]]), 3).tolist()
    [[4.0], [0.0], [2.0]]
    """
    sums = rows.new_zeros(len(rows), n_bins)
    for own, row in zip(sums, rows, strict=True):  # one by one, which is faster than rows of several numbers
        own.index_add_(0, index, row)
    return sums.T


@dataclass(frozen=True)
class Table:
    """A penalty ready for use: r(x) = intercept + slope * (x - center) in each of the 2p + 1 bins (float64).

    center: 0 if that is among the knots, else a knot where r is least: so that little cancels.
    """

    grid: Grid
    center: float
    slope: Tensor
    intercept: Tensor


def table(knots: Tensor, right: Tensor, left: Tensor) -> Table:
    """Prepare the penalty of increasing knots and of weights, each (p,), for many calls of `penalty`.

    >>> table(torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([1.0])).slope.tolist()
    [-1.0, 0.0, 1.0]
    """
    if not (knots.ndim == 1 and len(knots) > 0 and knots.shape == right.shape == left.shape):
        found = ", ".join(str(tuple(t.shape)) for t in (knots, right, left))
        raise InvalidInput(f"Knots, right and left must have one shape (p,), p > 0; found {found}. Give one of each.")
    if not (bool(knots.isfinite().all()) and bool((knots.diff() > 0).all())):
        raise InvalidInput(f"Knots must be finite and increase; found {knots.tolist()}. Use `quantile_knots`.")
    weights, a = torch.cat([right, left]).detach().double(), knots.detach().double()
    A = hinge_matrix(len(knots)).to(knots.device)
    slope = weights @ A
    center = 0.0
    if not a[0] <= 0 <= a[-1]:
        center = float(a[int((slope[2:-1:2] < 0).sum())].float())  # r falls up to this knot, and not after it
    intercept = (weights * (center - torch.cat([a, a]))) @ A
    return Table(Grid(knots), center, slope, intercept)


def _value_and_slopes(x: Tensor, ready: Table) -> tuple[Tensor, Tensor]:
    """r summed over `x` (n,), in float64, and its slope at each entry (n,)."""
    if can_look_up(x):
        slopes = torch.empty_like(x)
        slope, intercept = ready.slope.float().numpy(), ready.intercept.float().numpy()
        center = np.float32(ready.center)
        value = lookup.value_and_slopes(slopes.numpy(), x.numpy(), slope, intercept, center, *ready.grid.cells)
        return torch.tensor(value, dtype=torch.float64), slopes
    index = searched_bins(x, ready.grid.knots)
    own = ready.slope[index]
    return (own * (x.double() - ready.center) + ready.intercept[index]).sum(), own.to(x.dtype)


class _Penalty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ready: Table) -> Tensor:
        flat = x.detach().reshape(-1).to(torch.promote_types(x.dtype, torch.float32))
        value, slopes = _value_and_slopes(flat, ready)
        ctx.save_for_backward(slopes.to(x.dtype).view(x.shape))
        return value.to(flat.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        plain = grad.device.type == "cpu" and grad.item() == 1  # in a sum that is not scaled: one pass less
        return slopes if plain else slopes * grad, None


def penalty(x: Tensor, ready: Table) -> Tensor:
    """Sum of r over the entries of `x`, as a scalar with gradient. At a knot its two hinges have no slope.

    >>> absolute = table(torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([1.0]))
    >>> x = torch.tensor([-3.0, 0.0, 2.0], requires_grad=True)
    >>> value = penalty(x, absolute)
    >>> value.backward()
    >>> value.item(), x.grad.tolist()
    (5.0, [-1.0, 0.0, 1.0])
    """
    value: Tensor = _Penalty.apply(x, ready)  # type: ignore[no-untyped-call]
    return value


def quantile_knots(x: Tensor, p: int) -> Tensor:
    """Exactly `p` increasing knots from the least to the greatest entry of `x`, at its quantiles (paper, app. B).

    Quantiles that repeat count once, and the widest gaps are halved until there are p knots. Where all entries
    equal v the knots are spread evenly over [v - 1, v + 1].

    >>> quantile_knots(torch.arange(9.0), 3).tolist()
    [0.0, 4.0, 8.0]
    """
    x = x.detach().reshape(-1).to(torch.promote_types(x.dtype, torch.float32))
    if p < 2:
        raise InvalidInput(f"`p` must be at least 2; found {p}. The least and the greatest parameter are knots.")
    if len(x) == 0 or not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise InvalidInput(f"Knots need parameters that are finite; found {bad} of {len(x)} not. Place knots earlier.")
    at = torch.linspace(0, len(x) - 1, p, dtype=torch.float64, device=x.device).round().long()
    knots: Tensor = torch.unique_consecutive(x.sort().values[at])
    if len(knots) == 1:  # at least some digits apart, if 1 is nothing beside v
        reach = max(1.0, abs(float(knots)) * p * torch.finfo(x.dtype).eps)
        return (knots.double() + torch.linspace(-reach, reach, p, dtype=torch.float64, device=x.device)).to(x.dtype)
    while len(knots) < p:
        knots = _with_middle_of_widest_gap(knots)
    return knots


def _with_middle_of_widest_gap(knots: Tensor) -> Tensor:
    """One knot more; where no gap has a number left inside it, beyond the last one."""
    j = int(knots.diff().argmax())
    middle = knots[j] + (knots[j + 1] - knots[j]) / 2
    if not bool((knots[j] < middle) & (middle < knots[j + 1])):
        j, middle = len(knots) - 1, torch.nextafter(knots[-1], torch.full_like(knots[-1], torch.inf))
    return torch.cat([knots[: j + 1], middle.unsqueeze(0), knots[j + 1 :]])
