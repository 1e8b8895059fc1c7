"""A convex piecewise-linear function as a weighted sum of hinges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.errors import InvalidInput
from tuneloss.types import Array


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """A function r that is linear between its knots. It is convex if no weight is negative (paper, app. B).

    .. math:: r(x) = \\sum_j right_j \\max(x - a_j, 0) + left_j \\max(a_j - x, 0)

    Parameters
    ----------
    knots : (p,) array
        Positions where the slope changes, finite and increasing.
    right, left : (p,) array
        The weights of the hinges to the right and to the left of each knot.

    Raises
    ------
    InvalidInput
        If the shapes differ, or the knots are not finite or do not increase.

    Examples
    --------
    >>> absolute = PiecewiseLinear(np.zeros(1), np.ones(1), np.ones(1))
    >>> absolute(np.array([-3.0, 0.0, 2.0]))
    array([3., 0., 2.])
    >>> absolute.slopes
    array([-1.,  1.])
    """

    knots: Array
    right: Array
    left: Array

    def __post_init__(self) -> None:
        shapes = [part.shape for part in (self.knots, self.right, self.left)]
        if self.knots.ndim != 1 or not len(self.knots) or len(set(shapes)) > 1:
            raise InvalidInput(
                "Knots, right and left must have one shape (p,), p > 0; found "
                f"{', '.join(map(str, shapes))}. Give one right and one left weight per knot."
            )
        if not (np.isfinite(self.knots).all() and (self.knots[1:] > self.knots[:-1]).all()):
            raise InvalidInput(f"Knots must be finite and increase; found {self.knots.tolist()}. Sort them.")

    @classmethod
    def from_weights(cls, knots: ArrayLike, weights: ArrayLike) -> PiecewiseLinear:
        """Build r.

        Parameters
        ----------
        knots : (p,) array
            Finite and increasing positions.
        weights : (2p,) array
            The weights of all hinges, in the order of `hinge_names`.
        """
        positions, both = np.array(knots, dtype=np.float64), np.array(weights, dtype=np.float64)
        return cls(positions, *np.split(both, [len(positions)]))

    def scaled(self, factor: float) -> PiecewiseLinear:
        """Return r multiplied by a number."""
        return PiecewiseLinear(self.knots, factor * self.right, factor * self.left)

    @property
    def bin_slopes(self) -> Array:
        """The slope of r in each bin, (2p + 1,). At a knot, the two hinges of that knot count as flat."""
        return _over_bins(self.right, self.left)

    @property
    def slopes(self) -> Array:
        """The slope of r below the first knot, between knots, and above the last: (p + 1,)."""
        return self.bin_slopes[::2]

    @property
    def center(self) -> float:
        """The point from which `intercepts` are measured: 0 if it lies among the knots, else a knot where r is least.

        Near this point r is small, so slopes and intercepts hardly cancel. Its value is that of a float32.
        """
        if self.knots[0] <= 0 <= self.knots[-1]:
            return 0.0
        falling = int((self.slopes[1:-1] < 0).sum())  # r falls up to this knot, and not beyond
        with np.errstate(over="ignore"):
            return float(np.float32(self.knots[falling]))

    @property
    def intercepts(self) -> Array:
        """The values (2p + 1,) for which r(x) is ``intercepts + bin_slopes * (x - center)`` in each bin."""
        distance = self.center - self.knots
        return _over_bins(self.right * distance, self.left * distance)

    def __call__(self, x: Array) -> Array:
        """Evaluate r at each entry of an array, hinge by hinge, so that nothing cancels if no weight is negative."""
        total = np.zeros_like(x)
        for knot, right, left in zip(self.knots, self.right, self.left, strict=True):
            total += right * np.maximum(x - knot, 0.0) + left * np.maximum(knot - x, 0.0)
        return total

    def curve(self) -> tuple[Array, Array]:
        """Return the knots, and r there minus its least value."""
        values = self(self.knots)
        return self.knots, values - values.min()

    def points(self, margin: float = 1.0) -> tuple[Array, Array]:
        """Return points to draw lines through: the knots with one point beyond each end, and r there.

        Parameters
        ----------
        margin : float, default 1.0
            The distance of the outer points from the ends, relative to the distance between the first and the last
            knot. With one knot, the distance is 1.

        Examples
        --------
        >>> [part.tolist() for part in PiecewiseLinear(np.zeros(1), np.ones(1), np.full(1, 2.0)).points()]
        [[-1.0, 0.0, 1.0], [2.0, 0.0, 1.0]]
        """
        reach = margin * float(np.ptp(self.knots)) or 1.0
        x = np.concatenate([self.knots[:1] - reach, self.knots, self.knots[-1:] + reach])
        return x, self(x)

    def proximal(self, v: Array, step: Array) -> Array:
        """Minimise ``r(w) + (w - v)^2 / (2 step)`` over w, entry by entry.

        Parameters
        ----------
        v, step : array
            Arrays of one shape; steps are positive.

        Notes
        -----
        In a segment of slope s, the stationary point is ``v - step * s``. The minimum lies in the last segment whose
        stationary point is above the segment's lower end. If the point is above the upper end too, the minimum is at
        the upper end. So a minimum at a knot is exactly the knot.

        Examples
        --------
        >>> PiecewiseLinear(np.zeros(1), np.ones(1), np.ones(1)).proximal(np.array([-3.0, 0.5, 2.0]), np.ones(3))
        array([-2.,  0.,  1.])
        """
        knots, slopes = self.knots, self.slopes
        w = np.minimum(v - step * slopes[0], knots[0])
        for lower, upper, slope in zip(knots, np.append(knots[1:], np.inf), slopes[1:], strict=True):
            stationary = v - step * slope
            w = np.where(stationary > lower, np.minimum(stationary, upper), w)
        return np.asarray(w)


def _over_bins(right: Array, left: Array) -> Array:
    """Return for each of 2p + 1 bins the sum of `right` over knots below minus the sum of `left` over knots above."""
    below, above = np.append(0.0, np.cumsum(right)), np.append(np.cumsum(left[::-1])[::-1], 0.0)
    bins = np.empty(2 * len(right) + 1)
    bins[::2], bins[1::2] = below - above, below[:-1] - above[1:]
    return bins
