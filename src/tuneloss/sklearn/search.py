"""Search for weights with a few warm-started runs: short paths of L2 and L1 weights, then LearnLoss.

From the best models of the better path LearnLoss learns all weights. Each further run adds a model to learn from, until
one is not clearly better than the best before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from tuneloss.sklearn.paths import L1_MARGIN, fit_l1_path, fit_l2_path, is_l2_only, is_plain
from tuneloss.sklearn.softmax import NAMES, Weights
from tuneloss.tuning.sampling import same_point
from tuneloss.types import Array

# The contract of learning. The values were set by trial; `benchmarks/tuned_logistic.py` measures their result.
FIRST_GRAMS = 2  # number of models, the best of a path, that LearnLoss learns from at first
LEARNED_FROM = 9  # number of models, the last ones, that LearnLoss learns from
MIN_L1, MIN_L2 = 0.25, 1e-3  # lower bounds of learned weights, relative to the best one of a path with L1 or L2 alone
MAX_TERM = 4.0  # upper bound of each learned term, relative to what the penalty of the path contributes to the loss
MIN_EXTENSION, MAX_EXTENSION = 2.0, 4.0  # by how much a step is multiplied that continues the last one
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


def grow_penalties(weights: Weights, factor: float) -> Weights:
    """Multiply the weights of L1 and L2. The other terms are sums over examples, so they grow by themselves."""
    return weights | {name: factor * weights[name] for name in ("l1", "l2")}


def make_box(terms: Sequence[str], weights: Weights, features: Array) -> Box:
    """Return the ranges of the weights that may be learned, around the best model of a path.

    No term may contribute more to the loss than MAX_TERM times what the penalty of the path contributes at that model.

    Parameters
    ----------
    terms : sequence of str
        The terms that may have a weight.
    weights : dict of str to float
        The weights of the model: L1 alone or L2 alone.
    features : (5,) array
        The features of the model.
    """
    values = dict(zip(NAMES, features, strict=True))
    contribution = weights["l1"] * values["l1"] + weights["l2"] * values["l2"]
    upper = {name: MAX_TERM * contribution / max(value, TINY) for name, value in values.items()}
    if weights["l2"] > 0:
        upper["l2"] = MAX_TERM * weights["l2"]  # even if all coefficients are 0
    ranges: dict[str, Any] = {
        "l1": (MIN_L1 * weights["l1"], upper["l1"]),
        "l2": (MIN_L2 * weights["l2"], upper["l2"]),
        "uniform": (0.0, min(1.0, upper["uniform"])),
        "dropout": (0.0, upper["dropout"]),
    }
    allowed = {name: ranges[name] if name in terms else 0.0 for name in NAMES[:-1]}
    return Box.from_dict(allowed | {"logloss": 1.0})


def search(folds: Sequence[Fold], options: SearchOptions, parallel: ParallelMap) -> SearchResult:
    """Fit a path of L2 weights, perhaps one of L1 weights, then learned weights."""
    path = fit_l2_path(folds, options, parallel)
    best_l2, l1_path = best_of(path), list[FoldFits]()
    if "l1" in options.terms:
        left = replace(options, max_runs=options.max_runs - len(path) - 1)
        l1_path = fit_l1_path(folds, best_l2, left, parallel)
    folds = add_dropout(folds, best_l2)
    uses_l1 = bool(l1_path) and clearly_better(best_of(l1_path), best_l2, L1_MARGIN)
    path = observe_path(folds, path, parallel, gradients=not uses_l1)
    l1_path = observe_path(folds, l1_path, parallel, gradients=uses_l1)
    recent = [run for run in (l1_path if uses_l1 else path) if run.observations[0].gram is not None]
    n_left = options.max_runs - len(path) - len(l1_path)
    result = fit_learned(folds, recent, options, parallel, n_left)
    return replace(result, runs=[*in_order(path), *in_order(l1_path), *result.runs])


def observe_path(
    folds: Sequence[Fold], path: Sequence[FoldFits], parallel: ParallelMap, *, gradients: bool
) -> list[FoldFits]:
    """Observe the runs of a path, the best FIRST_GRAMS of them with grams if `gradients`."""
    best = sorted(path, key=lambda run: run.error)[: FIRST_GRAMS if gradients else 0]
    return [observe_gradients(folds, run, parallel) if run in best else observe_values(folds, run) for run in path]


def in_order(path: Sequence[FoldFits]) -> list[FoldFits]:
    """Return the runs of a path in the order in which they were made: of the first two, the stronger one was first."""
    return sorted(path[:2], key=lambda run: -run.weights["l1"] - run.weights["l2"]) + list(path[2:])


def fit_learned(
    folds: Sequence[Fold], path: Sequence[FoldFits], options: SearchOptions, parallel: ParallelMap, max_runs: int
) -> SearchResult:
    """Fit learned weights until a run is not clearly better than the best before. The result excludes the path."""
    best = best_of(path)
    box = make_box(options.terms, best.weights, np.sum([o.features for o in best.observations], axis=0))
    recent, runs, tried = list(path), list[FoldFits](), list[Array]()
    learned: LearnedLoss | None = None
    before, goes_on = best, max_runs > 0
    while goes_on:
        try:
            by_fold = list(zip(*(run.observations for run in recent), strict=True))
            learned = learn_loss_on_folds(by_fold, box, epsilon=math.inf)
            weights = extend(learned.weights, best, before, box)
            if any(same_point(weights, others) for others in tried):
                break
            named = dict(zip(box.names, weights.tolist(), strict=True))
            run = fit_folds(folds, named, best.params, options=options, parallel=parallel)
        except (SolverError, RunFailed):
            break  # the runs so far are kept
        goes_on = clearly_better(run, best) and len(runs) + 1 < max_runs
        run = observe_gradients(folds, run, parallel) if goes_on else observe_values(folds, run)
        tried.append(weights)
        runs.append(run)
        before, best = best, best_of([best, run])
        recent = [*recent[1 - LEARNED_FROM :], run]
    return SearchResult(runs, box, learned)


def extend(target: Array, best: FoldFits, before: FoldFits, box: Box) -> Array:
    """Return weights beyond the target of LearnLoss, if the last step went in the same direction.

    LearnLoss also learns from runs far behind, so its steps from the best run are too short. A step that continues the
    last one is multiplied by 2 to 4.

    Parameters
    ----------
    target : (5,) array
        What LearnLoss learned.
    best, before : FoldFits
        The best run, and the best one before it.
    box : Box
        The ranges of the weights. Lengths are relative to them.
    """
    width = np.where(box.upper > box.lower, box.upper - box.lower, 1.0)
    here = np.array([best.weights[name] for name in box.names])
    last = (here - np.array([before.weights[name] for name in box.names])) / width
    step = (target - here) / width
    length = float(np.linalg.norm(step))
    if last @ step <= 0 or length == 0:  # a tiny step has no length in floating point
        return target
    factor = min(MAX_EXTENSION, max(MIN_EXTENSION, 1 + float(np.linalg.norm(last)) / length))
    return np.asarray(np.clip(here + factor * step * width, box.lower, box.upper))


def best_l2_of(runs: Sequence[FoldFits]) -> FoldFits:
    """Return the best run with L2 alone."""
    return best_of([run for run in runs if is_l2_only(run.weights)])


def choose(runs: Sequence[FoldFits]) -> FoldFits:
    """Return the run of least error, or a plain one unless the former is clearly better.

    The plain run is the best one with L2 alone, or with L1 alone if that is better by L1_MARGIN standard errors. The
    more weights are learned, the more of the gain on the validation examples is luck.
    """
    best_l2, best_plain = best_l2_of(runs), best_of([run for run in runs if is_plain(run.weights)])
    plain = best_plain if clearly_better(best_plain, best_l2, L1_MARGIN) else best_l2
    best = best_of(runs)
    return best if clearly_better(best, plain) else plain
