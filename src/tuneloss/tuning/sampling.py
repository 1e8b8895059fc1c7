"""Points of a box that are chosen without data: its center, random points, and points near another one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuneloss.core.box import Box
from tuneloss.types import Array

DECADE = 10.0  # a range is sampled on a log scale if its ends differ by this factor or more
UNKNOWN_SPAN = 1e3  # an infinite range is sampled up to this many times its lower bound
STEP = 0.1  # fraction of a range: the standard deviation of a nearby point
SAME = 1e-6  # relative; weights this close to each other are the same point


@dataclass(frozen=True)
class Ranges:
    """The range (k,) to sample each weight from, and whether on a log scale."""

    low: Array
    high: Array
    log: NDArray[np.bool_]


def ranges(box: Box) -> Ranges:
    """Return the ranges to sample from.

    ========================== ==========================================================================
    bounds                     range
    ========================== ==========================================================================
    (a, b), 0 < a, b >= 10 a   log scale
    (a, b) otherwise           linear
    (a, infinity), a > 0       log scale over (a, 1000 a)
    (0, infinity)              log scale over (r / 1000, 1000 r), r the largest pinned weight, or 1
    (a, infinity), a < 0       linear over (a, -a)
    ========================== ==========================================================================
    """
    low, high = box.lower, box.upper
    reference = float(np.abs(low[box.pinned]).max(initial=0.0)) or 1.0
    endless = np.isinf(high)
    high = np.where(endless & (low > 0), low * UNKNOWN_SPAN, high)
    high = np.where(endless & (low < 0), -low, high)
    zero = endless & (low == 0)
    low, high = np.where(zero, reference / UNKNOWN_SPAN, low), np.where(zero, reference * UNKNOWN_SPAN, high)
    return Ranges(low, high, (low > 0) & (high >= DECADE * low))


def center(box: Box) -> Array:
    """Return the first point to try (k,): the middle of each range, on its scale.

    A range (0, b) starts at b / 2. A weight without an upper bound starts at its lower bound, since its unit is unknown
    before a model is seen. A simplex starts at equal weights.

    >>> center(Box.from_dict({"l1": (0.1, 10.0), "smooth": (0.0, 1.0), "l2": (0.0, None), "logloss": 1.0}))
    array([1. , 0.5, 0. , 1. ])
    """
    if box.is_simplex:
        return np.full(len(box), 1 / len(box))
    r = ranges(box)
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = np.where(r.log, np.sqrt(r.low) * np.sqrt(r.high), (r.low + r.high) / 2)
    return np.where(np.isinf(box.upper), box.lower, middle)


def sample_box(box: Box, rng: np.random.Generator) -> Array:
    """Draw a point (k,), uniform on the scale of each range, or uniform over a simplex."""
    if box.is_simplex:
        return rng.dirichlet(np.ones(len(box)))
    r = ranges(box)
    u = rng.random(len(box))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(r.log, r.low * (r.high / r.low) ** u, r.low + u * (r.high - r.low))


def nearby(box: Box, point: Array, rng: np.random.Generator) -> Array:
    """Draw a point near another one: a normal step of a tenth of each range, on its scale.

    A weight of 0 on a log scale stays 0, unless nothing else can move. On a simplex, 0.01 is added to each weight,
    which is then multiplied by a log-normal factor.
    """
    step = STEP * rng.standard_normal(len(box))
    moved: Array
    if box.is_simplex:
        moved = (point + 0.01) * np.exp(10 * step)
        return np.asarray(moved / moved.sum())
    r = ranges(box)
    if np.where(r.log, point == 0, r.low == r.high).all():
        point = np.where(r.log, r.low, point)
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = np.where(r.log, point * (r.high / r.low) ** step, point + step * (r.high - r.low))
    return np.clip(moved, box.lower, box.upper)


def same_point(a: Array, b: Array) -> bool:
    """Return whether a point (k,) agrees with another, or with any of many (n, k), to a millionth in every weight."""
    return bool(same_points(a, b).any())


def same_points(points: Array, other: Array) -> NDArray[np.bool_]:
    """Return which of the points (n, k) agree with another one to a millionth in every weight."""
    near = np.abs(points - other) <= SAME * np.maximum(np.abs(points), np.abs(other))
    return np.asarray(near.all(axis=-1))


def distance(box: Box, a: Array, b: Array) -> float:
    """Return the largest difference in any weight between points a (k,) and b (k,), as a fraction of its range.

    If b is many points (n, k), return the distance to the nearest one; infinity if there is none.
    """
    if box.is_simplex:
        return float(np.abs(a - b).max(axis=-1).min(initial=np.inf))
    r = ranges(box)
    width = np.where(r.high > r.low, r.high - r.low, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.maximum(a, r.low) / np.maximum(b, r.low)) / np.log(r.high / r.low)
    return float(np.abs(np.where(r.log, logs, (a - b) / width)).max(axis=-1).min(initial=np.inf))
