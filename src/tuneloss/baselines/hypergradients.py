"""Searches that follow hypergradients: derivatives of the error of the trained model by the weights of the loss.

A range of a decade or more has the natural logarithm of its weight as coordinate. Any other range has a linear
coordinate, on which the range is as long as one decade. All coordinates begin at 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from tuneloss.baselines.search import Cube, Search
from tuneloss.checks import as_finite
from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.tuning.sampling import DECADE, sample_box
from tuneloss.types import Array

SAME = 1e-7  # coordinates this close to each other are the same point
FIRST_STEP = math.log(DECADE)  # length of the first step of either search
GROWTH, CUT = 1 / 0.95, 0.5  # factors of Hoag's step after enough decrease, and after an increase or a failure
LEAST_DECREASE = 1e-4  # relative; L-BFGS-B ends after an iteration that lowers the error by less


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run in coordinates.

    Parameters
    ----------
    x : (free,) array
        The coordinates of its weights.
    error : float or None
        Its metric, or else its error; None if it failed.
    slopes : (free,) array
        The derivative by each coordinate; 0 if it failed.
    """

    x: Array
    error: float | None
    slopes: Array

    def is_at(self, x: Array) -> bool:
        """Return whether the run has these coordinates."""
        return bool(np.abs(x - self.x).max(initial=0.0) <= SAME)


class HypergradientSearch(Search):
    """What both searches share: derivatives that are told, and coordinates in which they take their steps.

    Parameters
    ----------
    box : Box
        The allowed weights; not a simplex.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first; by default they are drawn at random.

    Raises
    ------
    InvalidInput
        If the box is a simplex.
    """

    def __init__(self, box: Box, *, seed: int = 0, start: Mapping[str, float] | None = None) -> None:
        if box.is_simplex:
            raise InvalidInput(
                f"A search by hypergradients needs weights that are free of each other; found {box}. "
                "Use `Box.from_dict`, with one weight pinned."
            )
        super().__init__(box, seed=seed, start=start)
        self.cube = Cube(box)
        r, free = self.cube.ranges, self.cube.free
        low, high, self._is_log = r.low[free], r.high[free], r.log[free]
        ratio = np.divide(high, low, out=np.full(len(low), DECADE), where=self._is_log)
        self.spans = np.log(ratio)  # lengths of the ranges in coordinates
        self._slopes = (high - low) / self.spans  # of a weight by its coordinate, where the range is linear
        self.outcomes = list[Outcome]()  # one per run

    def tell(
        self,
        weights: Mapping[str, float],
        observation: Observation | None = None,
        *,
        failed: str | None = None,
        derivative: Mapping[str, float] | ArrayLike | None = None,
    ) -> None:
        """Record the outcome of a run: an observation and the derivative of its error, or why the run failed.

        Parameters
        ----------
        weights : mapping of str to float
            The weights of the run.
        observation : Observation, optional
            The observation of the trained model.
        failed : str, optional
            The reason why the run failed.
        derivative : mapping of str to float or (k,) array, optional
            The derivative of the metric, or of the error if there is no metric, by each weight. It is needed with an
            observation. Numbers for pinned weights are ignored.

        Raises
        ------
        InvalidInput
            If there is an observation without its derivative, or as for the other searches.
        """
        if observation is not None and derivative is None:
            raise InvalidInput(
                "A search by hypergradients must be told the derivative of the error by the weights; found none. "
                "Use tell(weights, observation, derivative=...)."
            )
        if isinstance(derivative, Mapping):
            self.box.check_names(tuple(derivative), "derivative")
            derivative = [derivative[name] for name in self.box.names]
        if observation is None or derivative is None:
            derivative = np.zeros(len(self.box))
        slopes = as_finite(derivative, "derivative")
        if slopes.shape != (len(self.box),):
            raise InvalidInput(f"`derivative` must be {len(self.box)} numbers, one per weight; found {slopes.shape}.")
        super().tell(weights, observation, failed=failed)
        x, free = self.coordinates(self.box.as_array(weights)), self.cube.free
        by_coordinate = np.where(self._is_log, self.point(x)[free], self._slopes) * slopes[free]
        self.outcomes.append(Outcome(x, None if observation is None else observation.score, by_coordinate))

    def coordinates(self, point: Array) -> Array:
        """Map a point of the box (k,) to coordinates (free,); an infinite range ends where sampling ends."""
        return np.asarray(self.cube.to_cube(point).clip(0.0, 1.0) * self.spans)

    def point(self, x: Array) -> Array:
        """Map coordinates (free,) to a point of the box (k,)."""
        return self.cube.to_box((x / self.spans).clip(0.0, 1.0))


class Hoag(HypergradientSearch):
    """Gradient descent on the log weights, with the step size of HOAG (Pedregosa, 2016, arXiv:1602.02355).

    The step is the gradient divided by an estimate L of its Lipschitz constant. The first step is one decade long.
    After a step that lowered the error by L / 2 times its squared length or more, L is multiplied by 0.95. After one
    that raised the error, L is doubled. HOAG also trains its first models with less precision; here, the caller trains
    each model.

    A failed run is repeated with half of the step. A point that was tried before is replaced by a random one, from
    which the descent starts again.

    Parameters
    ----------
    box : Box
        The allowed weights; not a simplex.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first; by default they are drawn at random.

    Examples
    --------
    The error log(l2)^2 has its minimum at l2 = 1:

    >>> search = Hoag(Box.from_dict({"l2": (0.1, 100.0), "logloss": 1.0}), start={"l2": 50.0, "logloss": 1.0})
    >>> for _ in range(12):
    ...     weights = search.ask()
    ...     log = np.log(weights["l2"])
    ...     search.tell(weights, Observation(log**2, [0.0, 0.0]), derivative=[2 * log / weights["l2"], 0.0])
    >>> bool(search.best.observation.error < 0.01)
    True
    """

    def propose(self) -> Array:
        """Take one step from the last run that did not fail."""
        base: Outcome | None = None
        proposed, constant = None, 0.0  # constant: the estimate L
        for run in self.outcomes:
            if proposed is None or not run.is_at(proposed):
                base = None  # no step led here: a new start
            constant = _next_constant(constant, base, run)
            base = base if run.error is None else run
            proposed = None
            if base is not None and constant > 0:
                proposed = (base.x - base.slopes / constant).clip(0.0, self.spans)
        return sample_box(self.box, self.rng) if proposed is None else self.new(self.point(proposed))


def _next_constant(constant: float, base: Outcome | None, run: Outcome) -> float:
    """Return the next estimate of the Lipschitz constant, after a step from `base` to `run`, or after a start."""
    if run.error is None:
        return constant / CUT
    if base is None or base.error is None:
        return float(np.linalg.norm(run.slopes)) / FIRST_STEP
    if run.error > base.error:
        return constant / CUT
    is_enough = run.error <= base.error - constant / 2 * np.square(run.x - base.x).sum()
    return constant / GROWTH if is_enough else constant


class HypergradientLbfgs(HypergradientSearch):
    """L-BFGS-B on the log weights (Byrd, Lu, Nocedal and Zhu, 1995), by SciPy.

    Where it ends, because the error is stationary or cannot be lowered, it starts again at a random point. A failed run
    counts as an error above all others, so that the line search shortens its step.

    Parameters
    ----------
    box : Box
        The allowed weights; not a simplex.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first; by default they are drawn at random.

    Notes
    -----
    SciPy calls the function that it minimises, but here the caller trains. So each proposal runs L-BFGS-B again from
    the start, on the runs that were told, up to the first point that no run has. This takes milliseconds.

    The length of its first step is that of the gradient, because all weights have two bounds. So the error is scaled
    until this is one decade.

    Examples
    --------
    The error log(l2)^2 has its minimum at l2 = 1:

    >>> box = Box.from_dict({"l2": (0.1, 100.0), "logloss": 1.0})
    >>> search = HypergradientLbfgs(box, start={"l2": 50.0, "logloss": 1.0})
    >>> for _ in range(5):
    ...     weights = search.ask()
    ...     log = np.log(weights["l2"])
    ...     search.tell(weights, Observation(log**2, [0.0, 0.0]), derivative=[2 * log / weights["l2"], 0.0])
    >>> bool(search.best.observation.error < 1e-6)
    True
    """

    def __init__(self, box: Box, *, seed: int = 0, start: Mapping[str, float] | None = None) -> None:
        super().__init__(box, seed=seed, start=start)
        self._starts = [] if self._start is None else [self.coordinates(self._start)]

    def propose(self) -> Array:
        """Return the first point that L-BFGS-B needs and no run has."""
        if not len(self.spans):
            return self.box.lower.copy()
        for number in count():
            if number == len(self._starts):
                self._starts.append(self.coordinates(sample_box(self.box, self.rng)))
            try:
                self._descend(self._starts[number])
            except _Untried as untried:
                return self.point(untried.x)
        raise AssertionError("unreachable")

    def _descend(self, start: Array) -> None:
        """Run L-BFGS-B from these coordinates, until it ends or needs a point that no run has."""
        slopes = self._outcome(start)[1]
        is_held = ((start <= 0) & (slopes > 0)) | ((start >= self.spans) & (slopes < 0))  # at a bound
        unit = float(np.linalg.norm(slopes[~is_held])) / FIRST_STEP or 1.0

        def scaled(x: Array) -> tuple[float, Array]:
            error, slopes = self._outcome(x)
            return error / unit, slopes / unit

        bounds, options = [(0.0, span) for span in self.spans], {"ftol": LEAST_DECREASE}
        minimize(scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)

    def _outcome(self, x: Array) -> tuple[float, Array]:
        """Return error and derivative at coordinates x; raise `_Untried` if no run has them."""
        for i, run in enumerate(self.outcomes):
            if run.is_at(x):
                errors = [other.error for other in self.outcomes[:i] if other.error is not None]
                worst = max(errors, default=0.0)
                return worst + abs(worst) if run.error is None else run.error, run.slopes
        raise _Untried(x)


class _Untried(Exception):
    """No run has these coordinates."""

    def __init__(self, x: Array) -> None:
        super().__init__()
        self.x = x.copy()
