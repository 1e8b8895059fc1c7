"""Two short paths of one penalty each: L2, and L1 unless it is clearly worse.

A path goes from a strong weight to weaker ones and ends when the validation error no longer falls. It therefore avoids
the slow fits at its weak end. One more fit lies between its best three.

The L2 path is fitted on all folds. For L1, a coarse path on the first fold shows which weight is about the best, and
whether L1 is clearly worse than L2 there. If it is not, its path is fitted on all folds, from about there.

A fit never starts from the model of another fold. That model has seen the validation examples, and a fit that stops
early would remember them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tuneloss.errors import RunFailed
from tuneloss.sklearn.fold_fits import (
    Fold,
    FoldFits,
    ParallelMap,
    SearchOptions,
    best_of,
    fit_folds,
    ignore_run,
    mean_gain,
)
from tuneloss.sklearn.softmax import Data, Weights, cross_entropy
from tuneloss.types import Array

# The contract of the paths. The values were set by trial; `benchmarks/tuned_logistic.py` measures their result.
L2_FACTOR, L1_FACTOR = 6.0, 3.0  # ratio of neighbouring weights
PROBE_FACTOR = 6.0  # the same on the coarse path of L1 weights
L2_STALL, L1_STALL = 1e-4, 1e-2  # relative gain in error below which a path ends
DENSE = 0.5  # share of inputs that are used, above which L1 starts from models with L2
PROBE_MARGIN = 1.0  # standard errors by which L1 must be worse than L2 on the first fold to be dropped
L1_MARGIN = 0.5  # standard errors by which L1 must be better than L2 on all folds
MIN_SHIFT = 0.05  # shift of the best weight, in steps of the path, below which no more is fitted
MIN_PATH, MAX_PATH = 3, 15  # smallest and largest number of fits on a path
START_CURVATURE = 1 / 8  # curvature of L2 at the start of the path, relative to that of log loss for the median input
FLAT_TOLERANCE = 1e-3  # relative difference below which an error counts as that of constant predictions
TINY = 1e-300  # stands for 0 where a logarithm is taken


@dataclass(frozen=True)
class Path:
    """Weights of one penalty, from strong to weak.

    Parameters
    ----------
    name : {"l1", "l2"}
        The penalty.
    first : float
        The first weight.
    factor : float
        The ratio of neighbouring weights.
    stall : float
        The relative gain in error below which the path ends.
    """

    name: str
    first: float
    factor: float
    stall: float

    def weights(self, weight: float) -> Weights:
        """Return weights with this penalty alone."""
        return only_l2(0.0) | {self.name: weight}


def only_l2(l2: float) -> Weights:
    """Return weights with L2 as the only regularizer."""
    return {"l1": 0.0, "l2": l2, "uniform": 0.0, "dropout": 0.0, "logloss": 1.0}


def is_l2_only(weights: Weights) -> bool:
    """Return whether L2 is the only regularizer that has a weight."""
    return weights == only_l2(weights["l2"])


def only_l1(l1: float) -> Weights:
    """Return weights with L1 as the only regularizer."""
    return only_l2(0.0) | {"l1": l1}


def is_plain(weights: Weights) -> bool:
    """Return whether L1 or L2 is the only regularizer that has a weight."""
    return sum(weight > 0 for weight in weights.values()) <= 2 and weights["l1"] + weights["l2"] > 0


def first_l2(data: Data) -> float:
    """Return the L2 weight at the start of the path, which is rather strong: see START_CURVATURE."""
    moments = data.second[data.second > 0]
    return float(np.median(moments)) * START_CURVATURE / 8 if len(moments) else 1.0  # log loss: moment / 4; L2: 2 l2


def constant_error(folds: Sequence[Fold]) -> float:
    """Return the validation error of models that predict the share of each class, whatever the inputs."""
    total = 0.0
    for fold in folds:
        share = fold.data.targets().sum(axis=0) / fold.data.total
        total -= float(fold.targets.sum(axis=0) @ np.log(np.maximum(share, TINY)))
    return total


def fit_path(
    fit_weights: Callable[[Weights, Sequence[Array]], FoldFits],
    folds: Sequence[Fold],
    path: Path,
    starts: Sequence[Array],
    max_runs: int,
) -> list[FoldFits]:
    """Fit weaker and weaker weights of one penalty, then one near the best weight, found by a parabola.

    If the second run is worse than the first, the path turns to stronger weights. While the error is that of constant
    predictions, its changes are noise. So the path neither turns nor ends there, except among strong weights.

    Parameters
    ----------
    fit_weights : callable
        Fits all folds with some weights, from one start per fold.
    folds : sequence of Fold
        The folds.
    path : Path
        The penalty, its first weight, and how its weights fall.
    starts : sequence of (F, D + 1) arrays
        Where the first fits start, one per fold.
    max_runs : int
        The largest number of runs.

    Returns
    -------
    list of FoldFits
        The runs in the order of their weights, except the last one. In a path that turned, the second run comes before
        the first.
    """
    runs: list[FoldFits] = []
    flat, is_flat = constant_error(folds), False
    weight, factor, turns_up = path.first, 1 / path.factor, False
    while len(runs) < min(MAX_PATH, max_runs):
        runs.append(fit_weights(path.weights(weight), starts))
        was_flat, is_flat = is_flat, abs(runs[-1].error / flat - 1) <= FLAT_TOLERANCE
        if len(runs) == 2 and not is_flat and runs[1].error > runs[0].error:
            runs, factor, weight = runs[::-1], path.factor, path.first
        elif len(runs) >= MIN_PATH and not is_flat and runs[-1].error > (1 - path.stall) * runs[-2].error:
            turns_up = True
            break
        elif factor > 1 and is_flat and was_flat:
            break
        starts = runs[-1].params
        weight *= factor
    if turns_up and len(runs) < max_runs and best_of(runs) is runs[-2]:
        best, shift = runs[-2], vertex([run.error for run in runs[-3:]])
        if abs(shift) > MIN_SHIFT:
            runs.append(fit_weights(path.weights(best.weights[path.name] * factor**shift), best.params))
    return runs


def vertex(errors: Sequence[float]) -> float:
    """Return where the parabola through errors at -1, 0 and 1 is least; the middle error must be the least.

    The result is within (-1/2, 1/2).

    Examples
    --------
    >>> vertex([3.0, 1.0, 2.0]) > 0
    True
    """
    before, at, after = errors
    bend = before - 2 * at + after
    return (before - after) / (2 * bend) if bend > 0 else 0.0


def max_l1(data: Data) -> float:
    """Return the least L1 weight with which all coefficients are 0, at the intercepts that fit the class shares."""
    params = data.zeros()
    if data.intercept:
        share = np.log(data.targets().sum(axis=0) / data.total)
        params[:, -1] = (share - share[0])[-data.n_rows :]
    _, gradient = cross_entropy(data, params, data.targets())
    return float(np.abs(gradient[:, :-1]).max(initial=0.0))


def fit_l2_path(folds: Sequence[Fold], options: SearchOptions, parallel: ParallelMap) -> list[FoldFits]:
    """Fit a path of L2 weights on all folds. One run is left for learned weights."""
    data = folds[0].data
    crowd = max(1.0, np.count_nonzero(data.second) / len(data.y))  # more inputs than examples act together
    path = Path("l2", crowd * first_l2(data), L2_FACTOR, L2_STALL)
    fit_weights = partial(fit_folds, folds, options=options, parallel=parallel)
    return fit_path(fit_weights, folds, path, [fold.data.zeros() for fold in folds], options.max_runs - 1)


def fit_l1_path(
    folds: Sequence[Fold], rival: FoldFits, options: SearchOptions, parallel: ParallelMap
) -> list[FoldFits]:
    """Fit a path of L1 weights on all folds, unless L1 is clearly worse than another penalty on the first fold.

    Parameters
    ----------
    folds : sequence of Fold
        The folds.
    rival : FoldFits
        The best run with the other penalty.
    options, parallel
        As for `fit_folds`; there may be `options.max_runs` runs.
    """
    first = max_l1(folds[0].data) / L1_FACTOR
    if not first or options.max_runs < MIN_PATH:
        return []
    try:
        best = probe_l1(folds[0], rival, first, replace(options, on_run=ignore_run))
    except RunFailed:
        return []
    if best is None:
        return []
    is_dense = np.mean((best.params[0][:, :-1] != 0).any(axis=0)) > DENSE
    starts = rival.params if is_dense else [fold.data.zeros() for fold in folds]
    fit_weights = partial(fit_folds, folds, options=options, parallel=parallel)
    path = Path("l1", best.weights["l1"] * L1_FACTOR, L1_FACTOR, L1_STALL)
    return fit_path(fit_weights, folds, path, starts, options.max_runs)


def probe_l1(fold: Fold, rival: FoldFits, first: float, options: SearchOptions) -> FoldFits | None:
    """Return the best run of a coarse path of L1 weights on the first fold, or None if L1 is clearly worse there.

    One fold and a coarse path cannot show that L1 is better, but often that it is not.

    Parameters
    ----------
    fold : Fold
        The first fold.
    rival : FoldFits
        The best run with the other penalty, on all folds.
    first : float
        The first weight.
    options : SearchOptions
        As for `fit_folds`.
    """
    fit_one = partial(fit_folds, [fold], options=options, parallel=in_turn)
    runs, l1 = [fit_one(only_l1(first), [fold.data.zeros()])], first
    while len(runs) < MAX_PATH and (len(runs) < 2 or runs[-1].error < (1 - L1_STALL) * runs[-2].error):
        l1 /= PROBE_FACTOR
        runs.append(fit_one(only_l1(l1), runs[-1].params))
    best = best_of(runs)
    n = len(best.losses)
    on_fold = replace(rival, losses=rival.losses[:n], sample_weight=rival.sample_weight[:n])
    gain, standard_error = mean_gain(best, on_fold)
    return best if gain >= -PROBE_MARGIN * standard_error else None


def in_turn(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call the function with each tuple of arguments: the plainest `ParallelMap`."""
    return [function(*job) for job in jobs]
