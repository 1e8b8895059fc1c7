"""Where among a few knots each of many numbers lies, compiled by numba: mostly without a search.

Bin 2j lies strictly between knots j - 1 and j, and bin 2j + 1 is knot j itself. An even grid of cells is laid over the
knots; a cell without a knot is in one bin, which a table says. Only the few numbers whose cell holds a knot are
searched for among the knots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

CELLS = 2**13  # so many that few numbers share one with a knot, so few that the nearest cache holds their bins
ONE = np.float32(1)

F = TypeVar("F", bound=Callable[..., object])
Knots = NDArray[np.floating[Any]]  # float32 or float64


def compiled(function: F, fastmath: frozenset[str] = frozenset()) -> F:
    """Compiled when first called, and kept on disk if there is a place for it; 1 / 0 is infinity.

    fastmath: what may be rounded otherwise than written, by the names of LLVM. Here nothing may, so that a number has
    the same cell wherever it is asked for.
    """
    options: dict[str, Any] = {"error_model": "numpy", "nogil": True, "fastmath": set(fastmath)}
    try:
        return cast(F, njit(cache=True, **options)(function))
    except RuntimeError:  # no folder can be written to
        return cast(F, njit(**options)(function))


@dataclass(frozen=True)
class Cells:
    """Cells 1 .. CELLS - 2 over increasing knots (p,); the first and the last are for what is outside of them.

    bins: (CELLS,), the bin of each cell; -1 where it holds a knot.
    """

    knots: Knots
    first: np.float32
    scale: np.float32
    bins: NDArray[np.int32]


def make_cells(knots: Knots) -> Cells:
    """Cells for finite and increasing knots."""
    first = np.float32(knots[0])
    scale = np.float32(min((CELLS - 4) / (float(knots[-1]) - float(knots[0]) or 2.0), 1e30))
    own = np.array([cell_of(np.float32(knot), first, scale, CELLS - 1) for knot in knots], dtype=np.int64)
    bins = 2 * np.searchsorted(own, np.arange(CELLS)).astype(np.int32)
    bins[own] = -1
    return Cells(knots, first, scale, bins)


@compiled
def cell_of(x: np.float32, first: np.float32, scale: np.float32, last: int) -> np.uint32:
    """0 below the first knot, and for NaN; `last` far above. Rounding does not change the order of two numbers."""
    place = (x - first) * scale + ONE
    if place >= np.float32(last):
        return np.uint32(last)
    return np.uint32(place) if place >= ONE else np.uint32(0)


@compiled
def searched_bin(x: np.float32, knots: Knots) -> int:
    """The bin, 0 .. 2p, of one number."""
    j = int(np.searchsorted(knots, x))
    return 2 * j + 1 if j < len(knots) and x == knots[j] else 2 * j


@compiled
def all_bins(
    found: NDArray[np.int64], x: NDArray[np.float32], knots: Knots, first: np.float32, scale: np.float32,
    bins: NDArray[np.int32],
) -> None:  # fmt: skip
    """The bins of all numbers, into `found`."""
    last = len(bins) - 1
    for i in range(len(x)):
        b = bins[cell_of(x[i], first, scale, last)]
        found[i] = b if b >= 0 else searched_bin(x[i], knots)


@compiled
def value_and_slopes(
    slopes: NDArray[np.float32], x: NDArray[np.float32], slope: NDArray[np.float32], intercept: NDArray[np.float32],
    center: np.float32, knots: Knots, first: np.float32, scale: np.float32, bins: NDArray[np.int32],
) -> float:  # fmt: skip
    """The sum of intercept[b] + slope[b] * (x - center) over all x, b its bin; and slope[b] into `slopes`."""
    total, last = 0.0, len(bins) - 1
    for i in range(len(x)):
        b = int(bins[cell_of(x[i], first, scale, last)])
        if b < 0:
            b = searched_bin(x[i], knots)
        at = np.uint32(b)
        slopes[i] = slope[at]
        total += np.float64(intercept[at] + slope[at] * (x[i] - center))
    return total
