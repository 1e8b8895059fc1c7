"""Search for weights with a few warm-started runs: first a short path of L2 weights, then LearnLoss.

The path goes from a strong L2 weight to weaker ones and ends when the validation error no longer falls. It therefore
avoids the slow fits at its weak end. From its last three models LearnLoss learns all weights. Each further run adds a
model to learn from, until one is not clearly better than the best before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tuneloss import Box, LearnedLoss
from tuneloss.core.learn import learn_loss_on_folds
from tuneloss.errors import RunFailed, SolverError
from tuneloss.sklearn.fold_fits import (
    Fold,
    FoldFits,
    ParallelMap,
    SearchOptions,
    add_dropout,
    best_of,
    clearly_better,
    fit_folds,
    observe_gradients,
    observe_values,
)
from tuneloss.sklearn.softmax import NAMES, Data, Weights
from tuneloss.tuning.sampling import same_point
from tuneloss.types import Array

# The contract of the search. The values were set by trial; `benchmarks/tuned_logistic.py` measures their result.
PATH_FACTOR = 6.0  # ratio of neighbouring L2 weights on the path
MIN_PATH, MAX_PATH = 3, 15  # smallest and largest number of fits on the path
START_CURVATURE = 1 / 8  # curvature of L2 at the start of the path, relative to that of log loss for the median input
FLAT_TOLERANCE = 1e-3  # relative difference below which an error counts as that of constant predictions
PATH_STALL = 1e-4  # relative gain in error below which the path ends
LEARNED_FROM = 9  # number of models, the last ones, that LearnLoss learns from
MIN_L2 = 1e-3  # lower bound of the learned L2 weight, relative to the best one of the path
MAX_TERM = 4.0  # upper bound of each learned term, relative to what L2 contributes to the loss of the path's best model
TINY = 1e-300  # stands for 0 where a number is divided by, or where a logarithm is taken


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The result of a search.

    Parameters
    ----------
    runs : list of FoldFits
        All runs, in the order in which they were made.
    box : Box
        The ranges that LearnLoss could choose weights from.
    learned : LearnedLoss, optional
        The last answer of LearnLoss, in sums over examples. None if nothing was learned.
    """

    runs: list[FoldFits]
    box: Box
    learned: LearnedLoss | None


def only_l2(l2: float) -> Weights:
    """Return weights with L2 as the only regularizer."""
    return {"l1": 0.0, "l2": l2, "uniform": 0.0, "dropout": 0.0, "logloss": 1.0}


def is_l2_only(weights: Weights) -> bool:
    """Return whether L2 is the only regularizer that has a weight."""
    return weights == only_l2(weights["l2"])


def grow_penalties(weights: Weights, factor: float) -> Weights:
    """Multiply the weights of L1 and L2. The other terms are sums over examples, so they grow by themselves."""
    return weights | {name: factor * weights[name] for name in ("l1", "l2")}


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


def make_box(terms: Sequence[str], l2: float, features: Array) -> Box:
    """Return the ranges of the weights that may be learned, around the best model of the path.

    No term may contribute more to the loss than MAX_TERM times what L2 contributes at that model.

    Parameters
    ----------
    terms : sequence of str
        The terms that may have a weight.
    l2 : float
        The L2 weight of the model.
    features : (5,) array
        The features of the model.
    """
    contribution = l2 * features[NAMES.index("l2")]
    upper = {name: MAX_TERM * contribution / max(value, TINY) for name, value in zip(NAMES, features, strict=True)}
    ranges: dict[str, Any] = {name: (0.0, upper[name]) for name in ("l1", "dropout")}
    ranges |= {"l2": (MIN_L2 * l2, MAX_TERM * l2), "uniform": (0.0, min(1.0, upper["uniform"]))}
    allowed = {name: ranges[name] if name in terms else 0.0 for name in NAMES[:-1]}
    return Box.from_dict(allowed | {"logloss": 1.0})


def search(folds: Sequence[Fold], options: SearchOptions, parallel: ParallelMap) -> SearchResult:
    """Fit a path of L2 weights, then learned weights."""
    path = fit_l2_path(partial(fit_folds, folds, options=options, parallel=parallel), folds, options.max_runs)
    folds = add_dropout(folds, best_of(path))
    earlier = [observe_values(folds, run) for run in path[:-MIN_PATH]]
    path = earlier + [observe_gradients(folds, run, parallel) for run in path[-MIN_PATH:]]
    result = fit_learned(folds, path, options, parallel)
    first = sorted(path[:2], key=lambda run: -run.weights["l2"])  # the stronger one was made first
    return replace(result, runs=[*first, *path[2:], *result.runs])


def fit_l2_path(
    fit_weights: Callable[[Weights, Sequence[Array]], FoldFits], folds: Sequence[Fold], max_runs: int
) -> list[FoldFits]:
    """Fit weaker and weaker L2 weights, then one near the best weight, found by a parabola.

    If the second run is worse than the first, the path turns to stronger weights. While the error is that of constant
    predictions, its changes are noise, so the path neither turns nor ends.

    Parameters
    ----------
    fit_weights : callable
        Fits all folds with some weights, from one start per fold.
    folds : sequence of Fold
        The folds.
    max_runs : int
        The largest number of runs of the whole search.

    Returns
    -------
    list of FoldFits
        The runs in the order of their weights, except the last one. In a path that turned, the second run comes before
        the first.
    """
    runs: list[FoldFits] = []
    flat = constant_error(folds)
    l2, factor, starts = first_l2(folds[0].data), 1 / PATH_FACTOR, [fold.data.zeros() for fold in folds]
    while len(runs) < min(MAX_PATH, max_runs - 1):
        runs.append(fit_weights(only_l2(l2), starts))
        is_flat = abs(runs[-1].error / flat - 1) <= FLAT_TOLERANCE
        if len(runs) == 2 and not is_flat and runs[1].error > runs[0].error:
            runs, factor, l2 = runs[::-1], PATH_FACTOR, runs[0].weights["l2"]
        elif len(runs) >= MIN_PATH and not is_flat and runs[-1].error > (1 - PATH_STALL) * runs[-2].error:
            break
        starts = runs[-1].params
        l2 *= factor
    if MIN_PATH <= len(runs) < max_runs and best_of(runs) is runs[-2]:
        best, shift = runs[-2], vertex([run.error for run in runs[-3:]])
        if shift:
            runs.append(fit_weights(only_l2(best.weights["l2"] * factor**shift), best.params))
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


def fit_learned(
    folds: Sequence[Fold], path: Sequence[FoldFits], options: SearchOptions, parallel: ParallelMap
) -> SearchResult:
    """Fit learned weights until a run is not clearly better than the best before. The result excludes the path."""
    best = best_of(path)
    box = make_box(options.terms, best.weights["l2"], np.sum([o.features for o in best.observations], axis=0))
    recent, runs, tried = list(path[-MIN_PATH:]), list[FoldFits](), list[Array]()
    learned: LearnedLoss | None = None
    goes_on = len(path) < options.max_runs
    while goes_on:
        try:
            by_fold = list(zip(*(run.observations for run in recent), strict=True))
            learned = learn_loss_on_folds(by_fold, box, epsilon=math.inf)
            if any(same_point(learned.weights, weights) for weights in tried):
                break
            run = fit_folds(folds, learned.as_dict(), best.params, options=options, parallel=parallel)
        except (SolverError, RunFailed):
            break  # the runs so far are kept
        goes_on = clearly_better(run, best) and len(path) + len(runs) + 1 < options.max_runs
        run = observe_gradients(folds, run, parallel) if goes_on else observe_values(folds, run)
        tried.append(learned.weights)
        runs.append(run)
        best = best_of([best, run])
        recent = [*recent[1 - LEARNED_FROM :], run]
    return SearchResult(runs, box, learned)


def best_l2_of(runs: Sequence[FoldFits]) -> FoldFits:
    """Return the best run with L2 alone."""
    return best_of([run for run in runs if is_l2_only(run.weights)])


def choose(runs: Sequence[FoldFits]) -> FoldFits:
    """Return the run of least error, or the best one with L2 alone unless the former is clearly better.

    The more weights are learned, the more of the gain on the validation examples is luck.
    """
    best, plain = best_of(runs), best_l2_of(runs)
    return best if clearly_better(best, plain) else plain
