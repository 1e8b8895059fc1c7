"""Coordinates of a box: logarithms of weights, so that a step is a factor."""

from __future__ import annotations

import numpy as np

from tuneloss.core.box import Box
from tuneloss.tuning.sampling import ranges
from tuneloss.types import Array

FLOOR = 0.01  # fraction of a range that is not logarithmic: above it, coordinates are about logarithmic

LARGEST = 690.0  # the largest coordinate whose exponential is a float


class Coordinates:
    r"""The free weights of a box as :math:`x = \log(w - s)`, a (d,) array.

    The shift s is 0 where a range is sampled on a log scale. Elsewhere it is a hundredth of the range below the lower
    bound. So a range (0, b) is about logarithmic above b / 100, and linear below.

    Parameters
    ----------
    box : Box
        A box that is not a simplex.

    Attributes
    ----------
    low, high : (d,) array
        The ends of the ranges. An infinite range has the ends that it is sampled from.
    upper : (d,) array
        The largest x that is allowed; infinity for a weight without an upper bound.

    Examples
    --------
    >>> x = Coordinates(Box.from_dict({"l2": (0.01, 100.0), "logloss": 1.0}))
    >>> (x.high - x.low).round(2), x.to_weights(x.of(np.array([1.0, 1.0])))
    (array([9.21]), array([1., 1.]))
    """

    def __init__(self, box: Box) -> None:
        self._box, self._free, r = box, ~box.pinned, ranges(box)
        low, high = r.low[self._free], r.high[self._free]
        floor = np.maximum(FLOOR * (high - low), 4 * np.spacing(np.abs(low)))  # a range may be a few roundings wide
        self._shift = np.where(r.log[self._free], 0.0, low - floor)
        self._least = low
        self.low, self.high = np.log(low - self._shift), np.log(high - self._shift)
        self.upper = np.where(np.isinf(box.upper[self._free]), np.inf, self.high)

    def of(self, points: Array) -> Array:
        """Return the coordinates (..., d) of points (..., k) of the box."""
        return np.asarray(np.log(np.maximum(points[..., self._free], self._least) - self._shift))

    def to_weights(self, x: Array) -> Array:
        """Return the point (k,) of the box with the coordinates x (d,), moved into the box."""
        weights, lower = self._box.lower.copy(), self._box.lower[self._free]
        weights[self._free] = np.where(
            x <= self.low, lower, np.exp(np.minimum(x, np.minimum(self.upper, LARGEST))) + self._shift
        )
        return np.clip(weights, self._box.lower, self._box.upper)

    def derivative(self, point: Array, by_weights: Array) -> Array:
        """Convert a derivative by the weights (k,) at a point (k,) to one by the coordinates (d,)."""
        rate = np.maximum(point[self._free], self._least) - self._shift  # dw / dx
        return np.asarray(by_weights[self._free] * rate)
