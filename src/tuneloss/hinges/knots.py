"""Where to put the knots of a function: at quantiles of the numbers to which it is applied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.types import Array

Floats = NDArray[np.floating[Any]]


def inner_quantiles(x: Array, p: int) -> Array:
    """Place at most p knots at quantiles of x, none at its ends, and one at 0.

    Examples
    --------
    >>> inner_quantiles(np.array([-2.0, -1.0, 1.0, 2.0]), 2).tolist()
    [-1.25, 0.0, 1.25]
    """
    inner = np.quantile(x, (np.arange(p) + 0.5) / p)
    return np.unique(np.append(inner, 0.0))


def quantile_ranks(n: int, p: int) -> NDArray[np.int64]:
    """Return p ranks among n sorted numbers, evenly spread from the least to the greatest.

    Examples
    --------
    >>> quantile_ranks(9, 3).tolist()
    [0, 4, 8]
    """
    return np.linspace(0, n - 1, p).round().astype(np.int64)


def increasing_knots(quantiles: Floats) -> Floats:
    """Return as many increasing knots as there are quantiles (p,), in their dtype; p is at least 2.

    Equal quantiles count once, and the widest gaps are halved until there are p knots. If all quantiles equal v, the
    knots are spread evenly over ``[v - 1, v + 1]``.

    Examples
    --------
    >>> increasing_knots(np.array([0.0, 0.0, 8.0])).tolist()
    [0.0, 4.0, 8.0]
    """
    p, knots = len(quantiles), np.unique(quantiles)
    if len(knots) == 1:
        reach = max(
            1.0, abs(float(knots[0])) * p * float(np.finfo(knots.dtype).eps)
        )  # wider if v is so large that 1 is lost in rounding
        return (knots.astype(np.float64) + np.linspace(-reach, reach, p)).astype(knots.dtype)
    while len(knots) < p:
        knots = _with_one_more(knots)
    return knots


def _with_one_more(knots: Floats) -> Floats:
    """Add the middle of the widest gap or, if no number lies inside that gap, the next number after the last knot."""
    with np.errstate(over="ignore"):
        j = int(np.diff(knots).argmax())
        middle = knots[j] + (knots[j + 1] - knots[j]) / 2
    if not knots[j] < middle < knots[j + 1]:
        j, middle = len(knots) - 1, np.nextafter(knots[-1], knots.dtype.type(np.inf))
    return np.insert(knots, j + 1, middle)
