"""Compiled lookup of the bins of many numbers among a few knots, mostly without a search.

Bins are those of `tuneloss.hinges.bins`. An even grid of cells is laid over the knots. A cell without a knot lies in
one bin, which a table names. Only a number whose cell holds a knot needs a search among the knots.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

# Number of cells. With more cells, fewer numbers need a search. With fewer cells, the table stays in the L1 cache.
CELLS = 2**13
ONE = np.float32(1)

F = TypeVar("F", bound=Callable[..., object])
Knots = NDArray[np.floating[Any]]  # float32 or float64


class _ForgivingCache(FunctionCache):
    """A cache of compiled code on disk. Code that cannot be saved is compiled again in the next process."""

    def save_overload(self, sig: object, data: object) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def compiled(function: F, fastmath: frozenset[str] = frozenset()) -> F:
    """Compile a function when it is first called, and keep the code on disk if there is a place for it.

    Parameters
    ----------
    function : callable
        The function. Within it, 1 / 0 is infinity.
    fastmath : frozenset of str, default empty
        LLVM's names of the optimizations that may change rounding. By default there are none, so that a number has the
        same cell in every function that looks it up.
    """
    dispatcher: Any = njit(error_model="numpy", nogil=True, fastmath=set(fastmath))(function)
    with suppress(RuntimeError):  # no folder can be written to
        dispatcher._cache = _ForgivingCache(function)  # type: ignore[no-untyped-call]
    return cast(F, dispatcher)


@dataclass(frozen=True)
class Cells:
    """Even cells over increasing knots. The first and the last cell are for numbers outside of the knots.

    Parameters
    ----------
    knots : (p,) array
        Finite and increasing positions.
    first, scale : float32
        A number x lies in cell ``(x - first) * scale + 1``, rounded down.
    bins : (CELLS,) array of int32
        The bin of each cell; -1 if the cell holds a knot.
    """

    knots: Knots
    first: np.float32
    scale: np.float32
    bins: NDArray[np.int32]


def make_cells(knots: Knots) -> Cells:
    """Lay cells over finite and increasing knots."""
    first = np.float32(knots[0])
    scale = np.float32(min((CELLS - 4) / (float(knots[-1]) - float(knots[0]) or 2.0), 1e30))
    with_knot = np.array([cell_of(np.float32(knot), first, scale, CELLS - 1) for knot in knots], dtype=np.int64)
    bins = 2 * np.searchsorted(with_knot, np.arange(CELLS)).astype(np.int32)
    bins[with_knot] = -1
    return Cells(knots, first, scale, bins)


@compiled
def cell_of(x: np.float32, first: np.float32, scale: np.float32, last: int) -> np.uint32:
    """Return the cell of a number: 0 below the first knot and for NaN, `last` far above the last knot.

    Rounding never swaps the order of two numbers' cells.
    """
    place = (x - first) * scale + ONE
    if place >= np.float32(last):
        return np.uint32(last)
    return np.uint32(place) if place >= ONE else np.uint32(0)


@compiled
def searched_bin(x: np.float32, knots: Knots) -> int:
    """Return the bin, 0 to 2p, of one number by a search."""
    j = int(np.searchsorted(knots, x))
    return 2 * j + 1 if j < len(knots) and x == knots[j] else 2 * j


@compiled
def all_bins(
    out: NDArray[np.int64], x: NDArray[np.float32], knots: Knots, first: np.float32, scale: np.float32,
    bins: NDArray[np.int32],
) -> None:  # fmt: skip
    """Write the bins of all numbers into `out`."""
    last = len(bins) - 1
    for i in range(len(x)):
        b = bins[cell_of(x[i], first, scale, last)]
        out[i] = b if b >= 0 else searched_bin(x[i], knots)


@compiled
def value_and_slopes(
    slopes: NDArray[np.float32], x: NDArray[np.float32], slope: NDArray[np.float32], intercept: NDArray[np.float32],
    center: np.float32, knots: Knots, first: np.float32, scale: np.float32, bins: NDArray[np.int32],
) -> float:  # fmt: skip
    """Return the sum of ``intercept[b] + slope[b] * (x - center)`` over all x in bins b; write slope[b] to `slopes`."""
    total, last = 0.0, len(bins) - 1
    for i in range(len(x)):
        b = int(bins[cell_of(x[i], first, scale, last)])
        if b < 0:
            b = searched_bin(x[i], knots)
        at = np.uint32(b)
        slopes[i] = slope[at]
        total += np.float64(intercept[at] + slope[at] * (x[i] - center))
    return total
