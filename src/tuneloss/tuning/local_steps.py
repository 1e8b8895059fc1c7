"""Steps from the best run: where its slopes point, and how far the runs so far say that one may go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.ranking import best_index
from tuneloss.tuning.coordinates import Coordinates
from tuneloss.tuning.run import Run
from tuneloss.tuning.slopes import slopes
from tuneloss.types import Array

# Lengths, in natural logarithms of weights.
WIDE = 4 * math.log(10)  # in a wider range, the first runs say little about the length of a step
LEAST_SIZE = 0.05  # the shortest step by signs
ROUNDING = 1e-9  # a shorter move is none
FIRST_RADIUS = 3 * math.log(10)  # of the trust region around the best run
LEAST_RADIUS, LARGEST_RADIUS = 0.35, 4 * math.log(10)

# Ratios.
FIRST_SIZE = 0.3  # of a range: the first step by signs
SAME_WAY = 0.2  # cosine of the last gain and the way downhill, above which a step by signs goes farther
EXTENSION = (2.0, 4.0)  # least and largest factor of a learned step that is extended
LARGER, SMALLER = 1.6, 0.6  # factors of the radius after a run that gained, and after one that did not
LEAST_GAIN = 1e-3  # of the error; a smaller gain is none
NEARLY = 0.1  # of the absolute error; noise may hide a gain from a run that is no farther above the best


class LocalSteps:
    """Steps from the best run, in the coordinates of a box. They depend only on the runs, in their order.

    Parameters
    ----------
    box : Box
        The allowed weights: a box that is not a simplex, with a weight that is not pinned.
    """

    def __init__(self, box: Box) -> None:
        self._box, self._x = box, Coordinates(box)
        self._start()

    def _start(self) -> None:
        self._n_runs = -1  # while the state changes, so that an interrupt makes `follow` start again
        self._points: list[Array] = []  # coordinates of the runs with an observation
        self._scores: list[float] = []
        self._best = self._before = -1  # the best run, and the best of the runs before it
        self._best_model: Observation | None = None
        self._slope = np.zeros(len(self._x.low))  # of the best run: the direction in which its error rises
        self._sizes = FIRST_SIZE * (self._x.high - self._x.low)  # of the next step by signs
        self._radius = FIRST_RADIUS
        self._n_runs = 0

    @property
    def is_wide(self) -> bool:
        """Whether the range of a weight spans more than four decades."""
        return bool((self._x.high - self._x.low > WIDE).any())

    @property
    def n_points(self) -> int:
        """The number of runs with an observation, which the model is fitted to."""
        return len(self._points)

    @property
    def has_slope(self) -> bool:
        """Whether the best run says in which direction the error falls."""
        return bool(self._slope.any())

    @property
    def goes_on(self) -> bool:
        """Whether the error still falls at the best run in the direction that led to it, so that one may go farther."""
        if self._before < 0:
            return False
        best, slope = self._points[self._best], self._slope
        at_a_bound = ((best <= self._x.low) & (slope > 0)) | ((best >= self._x.upper) & (slope < 0))
        way, slope = best - self._points[self._before], np.where(at_a_bound, 0.0, slope)
        return bool(-(way @ slope) > SAME_WAY * np.linalg.norm(way) * np.linalg.norm(slope))

    def follow(self, runs: Sequence[Run]) -> None:
        """Take in the new ones of all runs so far. Of several models of a run, its checkpoints, the best one counts."""
        known = {run.run for run in runs[: max(self._n_runs, 0)]} - {None}
        if not 0 <= self._n_runs <= len(runs) or any(run.run in known for run in runs[self._n_runs :]):
            self._start()
        new, self._n_runs = runs[self._n_runs :], -1
        by_number: dict[int | None, list[tuple[Mapping[str, float], Observation]]] = {}
        for run in new:
            if run.weights is not None and run.observation is not None:
                by_number.setdefault(run.run, []).append((run.weights, run.observation))
        for models in by_number.values():
            weights, model = models[best_index([model for _, model in models])]
            self._add(np.array([weights[name] for name in self._box.names]), model)
        self._n_runs = len(runs)

    def _add(self, weights: Array, model: Observation) -> None:
        """Add a run, and adapt the length of the next steps to it.

        The next step of a coordinate is twice as long if the run gained, or nearly so, and its slope points onward.
        Otherwise it is half of the last move.
        """
        point, score = self._x.of(weights), model.score
        gains = self._best_model is None or best_index([self._best_model, model]) == 1  # as for `Ledger.best`
        slope = self._slope_of(model, weights)
        if self._best >= 0:
            best = self._scores[self._best]
            move = point - self._points[self._best]
            length = np.abs(move)
            sizes = length / 2
            if gains or score <= best + NEARLY * abs(best):
                sizes = np.where(np.sign(move) == -np.sign(slope), 2 * np.maximum(self._sizes, length), sizes)
            sizes = np.where(length > ROUNDING, sizes, self._sizes)
            self._sizes = np.clip(sizes, LEAST_SIZE, self._x.high - self._x.low)
            self._resize_region(score, float(length.max()))
        self._points.append(point)
        self._scores.append(score)
        if gains:
            self._best, self._before = len(self._scores) - 1, self._best
            self._best_model, self._slope = model, slope

    def _slope_of(self, model: Observation, weights: Array) -> Array:
        """Return the direction (d,) of the derivative of the error by the coordinates; 0 without gradients.

        Its largest entry is 1, so that no square of it overflows.
        """
        by_weights = np.zeros(len(weights)) if model.gram is None else slopes(model, weights, self._box.pinned)
        with np.errstate(over="ignore"):
            slope = np.nan_to_num(self._x.derivative(weights, by_weights))
        return np.asarray(slope / (np.abs(slope).max() or 1.0))

    def _resize_region(self, score: float, length: float) -> None:
        best = self._scores[self._best]
        if score >= best - LEAST_GAIN * abs(best):
            self._radius = max(self._radius * SMALLER, LEAST_RADIUS)
        elif length > self._radius / 2:
            self._radius = min(self._radius * LARGER, LARGEST_RADIUS)

    def by_signs(self) -> Array:
        """Return the best run, moved in each coordinate against the sign of its slope."""
        return self._x.to_weights(self._points[self._best] - np.sign(self._slope) * self._sizes)

    def beyond(self, target: Array) -> Array:
        """Return weights (k,) that were learned from the best run, or weights beyond them.

        If the step goes on in the direction that led to the best run, it is at least doubled. LearnLoss compares
        gradients at one model. Far from the optimum, they tell the direction of a step but not its length.
        """
        best = self._points[self._best]
        step = self._x.of(target) - best
        length = float(np.linalg.norm(step))
        if self._before >= 0 and length > ROUNDING:
            last = best - self._points[self._before]
            if last @ step > 0:
                step = step * float(np.clip(1 + np.linalg.norm(last) / length, *EXTENSION))
                return self._x.to_weights(best + step)
        return target

    def by_model(self, pending: Sequence[Array], failed: Array, anywhere: bool, rng: np.random.Generator) -> Array:
        """Return the weights of greatest expected improvement, by a Gaussian process, near the best run or anywhere.

        Parameters
        ----------
        pending : sequence of (k,) arrays
            Weights that were asked for and not told yet.
        failed : (n, k) array
            Weights of failed runs, which count as runs of the largest error.
        anywhere : bool
            Whether the point may be anywhere in the box.
        rng : numpy.random.Generator
        """
        from tuneloss.tuning.model_step import model_step  # loads scipy.optimize

        points = np.vstack([*self._points, *map(self._x.of, failed)])
        scores = np.append(self._scores, np.full(len(failed), max(self._scores)))
        radius = np.inf if anywhere else self._radius
        # A weight without an upper bound stays where weights are sampled or were tried, or near the best run.
        farthest = np.maximum(self._x.high, points.max(axis=0)) if anywhere else self._points[self._best] + radius
        high = np.where(np.isinf(self._x.upper), farthest, self._x.upper)
        waiting = np.array([self._x.of(point) for point in pending]).reshape(-1, points.shape[1])
        return self._x.to_weights(model_step(points, scores, self._x.low, high, radius, rng, waiting))
