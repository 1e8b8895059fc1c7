"""A convex piecewise-linear regularizer of each coefficient (app. B): its values, gradients and proximal steps.

    r(w) = sum_j right_j max(w - knot_j, 0) + left_j max(knot_j - w, 0),      right, left >= 0

In a bin between two knots every hinge is linear, so values and Gram matrices come from counts and sums of bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuneloss.types import Array

Bins = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Regularizer:
    """r, by its knots (p,), ascending, and the weights of its hinges (p,)."""

    knots: Array
    right: Array
    left: Array

    @property
    def slopes(self) -> Array:
        """(p + 1,) of r below the first knot, between knots, and above the last."""
        rising, falling = np.append(0.0, np.cumsum(self.right)), np.append(np.cumsum(self.left[::-1])[::-1], 0.0)
        return np.asarray(rising - falling)

    def __call__(self, w: Array) -> Array:
        """r(w).

        >>> Regularizer(np.zeros(1), np.ones(1), np.ones(1))(np.array([-3.0, 0.0, 2.0]))
        array([3., 0., 2.])
        """
        found = np.zeros_like(w)
        for knot, right, left in zip(self.knots, self.right, self.left, strict=True):
            found += right * np.maximum(w - knot, 0.0) + left * np.maximum(knot - w, 0.0)
        return found

    def points(self) -> tuple[Array, Array]:
        """Where its slope changes, with one more point at each end, and r there: lines through these are all of it.

        >>> [part.tolist() for part in Regularizer(np.zeros(1), np.ones(1), np.full(1, 2.0)).points()]
        [[-1.0, 0.0, 1.0], [2.0, 0.0, 1.0]]
        """
        span = float(np.ptp(self.knots)) or 1.0
        w = np.concatenate([self.knots[:1] - span, self.knots, self.knots[-1:] + span])
        return w, self(w)

    def proximal(self, v: Array, step: Array) -> Array:
        """argmin over w of r(w) + (w - v)^2 / (2 step), entry by entry.

        It lies in the last segment whose lower end v, less step times the slope there, has got past; at its upper end,
        if that was got past too. So what comes to lie at a knot is exactly the knot.

        >>> Regularizer(np.zeros(1), np.ones(1), np.ones(1)).proximal(np.array([-3.0, 0.5, 2.0]), np.ones(3))
        array([-2.,  0.,  1.])
        """
        knots, slopes = self.knots, self.slopes
        w = np.minimum(v - step * slopes[0], knots[0])
        for lower, upper, slope in zip(knots, np.append(knots[1:], np.inf), slopes[1:], strict=True):
            inside = v - step * slope
            w = np.where(inside > lower, np.minimum(inside, upper), w)
        return np.asarray(w)


def quantile_knots(w: Array, p: int) -> Array:
    """At most p knots at quantiles of the coefficients, and 0."""
    inner = np.quantile(w, (np.arange(p) + 0.5) / p)
    return np.unique(np.append(inner, 0.0))


def hinge_features(w: Array, knots: Array) -> Array:
    """(2p,) each hinge, right ones first, summed over the coefficients."""
    bins = _bins(w, knots)
    counts, sums = np.bincount(bins, minlength=2 * len(knots) + 1), _sums(bins, w, len(knots))
    A = _slopes(len(knots))
    return np.asarray(A @ sums - (A @ counts) * np.tile(knots, 2))


def hinge_gram(w: Array, knots: Array, metric: Array, columns: Array) -> Array:
    """Inner products (2p + d, 2p + d) of the gradients of the hinges and of d columns, in a diagonal metric."""
    p, d = len(knots), len(columns)
    bins, A = _bins(w, knots), _slopes(p)
    gram = np.empty((2 * p + d, 2 * p + d))
    gram[: 2 * p, : 2 * p] = (A * _sums(bins, metric, p)) @ A.T
    for j, column in enumerate(columns):
        gram[: 2 * p, 2 * p + j] = A @ _sums(bins, metric * column, p)
    gram[2 * p :, : 2 * p] = gram[: 2 * p, 2 * p :].T
    flat = columns.reshape(d, -1)
    gram[2 * p :, 2 * p :] = (flat * metric.ravel()) @ flat.T
    return gram


def _bins(w: Array, knots: Array) -> Bins:
    """2j + 1 for what equals knot j, even numbers for what lies between."""
    flat = w.ravel()
    below, within = (np.searchsorted(knots, flat, side=side) for side in ("left", "right"))
    return np.asarray(below + within, dtype=np.intp)


def _sums(bins: Bins, values: Array, p: int) -> Array:
    return np.asarray(np.bincount(bins, weights=values.ravel(), minlength=2 * p + 1), dtype=np.float64)


def _slopes(p: int) -> Array:
    """(2p, 2p + 1) the gradient of each hinge in each bin; 0 at its knot."""
    knot, b = 2 * np.arange(p)[:, None] + 1, np.arange(2 * p + 1)
    return np.asarray(np.vstack([b > knot, b < knot]) * np.repeat([1.0, -1.0], p)[:, None])
