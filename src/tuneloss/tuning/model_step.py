"""The point of greatest expected improvement, by a Gaussian process of the error."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from tuneloss.tuning.gaussian_process import Posterior, expected_improvement, fit
from tuneloss.types import Array

NEAREST = 60  # largest number of runs, those nearest to the best one, that the process is fitted to
SPREAD, NEAR, PARTLY = (
    300,
    200,
    150,
)  # candidates: anywhere in the region, near the best run, best in some coordinates
REFINED = 2  # candidates of greatest expected improvement that are refined
NEAR_SPREAD = 0.15  # standard deviation of candidates near the best run, as a fraction of the region
LARGEST_EXCESS = 1e300  # in units of the median; anything larger counts as this
NEW = 0.01  # a point is new if it differs by more, in a coordinate, from each known point
NOISY = 1e-2  # noise variance, of standardised values, above which the best value is taken from the process


def model_step(
    points: Array, scores: Array, low: Array, high: Array, radius: float, rng: np.random.Generator, pending: Array
) -> Array:
    """Return the new point (d,) of greatest expected improvement in a region around the best run.

    If the process finds noise, the best run is the one whose error is least by the process: the least error may be
    good luck. A point is new if it is not one of the nearest `NEAREST` runs, nor pending.

    Parameters
    ----------
    points : (m, d) array
        The coordinates of the runs.
    scores : (m,) array
        Their errors.
    low, high : (d,) array
        The ends of all coordinates.
    radius : float
        The region contains points whose coordinates differ by no more from those of the best run.
    rng : numpy.random.Generator
    pending : (n, d) array
        Points whose errors are not known yet. They count as if they were what the process expects.
    """
    best = points[scores.argmin()]
    nearest = np.argsort(np.abs(points - best).max(axis=1), kind="stable")[:NEAREST]
    points, values = points[nearest], standardised(scores[nearest])
    process, means = fit(points, values), values
    if np.exp(process.theta[2]) > NOISY:
        means = process.mean_and_variance(points)[0]
    best, goal = points[means.argmin()], float(means.min())
    if len(pending):
        expected = process.mean_and_variance(pending)[0]
        process = Posterior.of(np.vstack([points, pending]), np.append(values, expected), process.theta)
    low, high = np.clip(best - radius, low, high), np.clip(best + radius, low, high)
    return _best_candidate(process, goal, _candidates(best, low, high, rng), low, high)


def standardised(scores: Array) -> Array:
    """Return log(1 + 2 (score - least) / median), with mean 0 and standard deviation 1.

    The logarithm keeps runs that went very wrong from setting the scale.
    """
    excess = scores - scores.min()
    unit = float(np.median(excess)) or float(excess.max()) or 1.0
    with np.errstate(over="ignore"):
        values = np.log1p(np.minimum(2 * excess / unit, LARGEST_EXCESS))
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


def _candidates(best: Array, low: Array, high: Array, rng: np.random.Generator) -> Array:
    d = len(best)
    anywhere = rng.uniform(low, high, (SPREAD, d))
    near = np.clip(best + NEAR_SPREAD * (high - low) * rng.standard_normal((NEAR, d)), low, high)
    partly = np.where(rng.random((PARTLY, d)) < 0.5, anywhere[:PARTLY], best)
    return np.vstack([anywhere, near, partly])


def _best_candidate(process: Posterior, goal: float, candidates: Array, low: Array, high: Array) -> Array:
    """Refine the best candidates, and return the best new point. In noise, a known point may promise the most."""
    gains = expected_improvement([process], goal, candidates)
    order = np.argsort(-gains)
    refined = [
        minimize(
            lambda point: -np.log(expected_improvement([process], goal, point[None])[0] + 1e-300),
            candidate,
            method="L-BFGS-B",
            bounds=np.column_stack([low, high]),
            options={"maxiter": 12},
        )
        for candidate in candidates[order[:REFINED]]
    ]
    refined.sort(key=lambda solution: float(solution.fun))
    proposals = np.vstack([*(solution.x for solution in refined), candidates[order]])
    distances = np.abs(proposals[:, None] - process.x).max(axis=2).min(axis=1)
    return np.asarray(proposals[(distances > NEW).argmax()])
