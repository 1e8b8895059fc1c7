"""Weights by a few warm-started fits: a short path of L2, then LearnLoss.

The path goes from strong to weak, by a factor of 6, and ends when the validation error falls no more: so it never
pays for the slow fits at its weak end. From its last three models LearnLoss learns all weights; each further fit adds a
model, until one is not clearly better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tuneloss import Box, LearnedLoss, Observation
from tuneloss.core.learn import learn_loss_on_folds
from tuneloss.errors import RunFailed, SolverError
from tuneloss.sklearn.fitting import Fitted, fit
from tuneloss.sklearn.observe import observe
from tuneloss.sklearn.softmax import NAMES, Data, Inputs, Weights, predicted, terms
from tuneloss.tuning.sampling import same_point
from tuneloss.types import Array

FACTOR = 6.0  # from one L2 weight of the path to the next
SHORTEST, LONGEST = 3, 15  # fits of the path
NOTHING = 1e-3  # of the error: this near to that of a model that knows nothing is the same
COUNTED = 9  # models that LearnLoss looks at, of the path the last 3
GAIN = 1e-3  # of the error: a gain of less is none
STALLED = 1e-4  # a path that gains less than this part of the error has ended
LEAST, MOST = 1e-3, 4.0  # of what L2 is at the path's best model
Each = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]


@dataclass(frozen=True, eq=False)
class Fold:
    """Training data, and the examples that validate it."""

    data: Data
    x: Inputs
    targets: Array  # (N, C), weighted

    def losses(self, params: Array) -> Array:
        """The log loss (N,) of each validation example."""
        log_p = predicted(self.data, params, self.x)
        found: Array = -log_p[np.arange(len(log_p)), self.targets.argmax(axis=1)]
        return found


@dataclass(frozen=True, eq=False)
class Run:
    """One fit of every fold with the same weights."""

    weights: Weights
    fits: tuple[Fitted, ...]
    losses: Array  # of all validation examples, fold after fold
    sample_weight: Array  # theirs
    observations: tuple[Observation, ...] = ()  # one a fold; with grams, if LearnLoss learned from them

    @property
    def error(self) -> float:
        """The weighted sum over all validation examples."""
        return float(self.sample_weight @ self.losses)


@dataclass(frozen=True)
class Options:
    """How the search goes.

    on_run: called with each run as it ends, and the folds.
    """

    terms: tuple[str, ...]
    max_runs: int
    tol: float
    max_iter: int
    on_run: Callable[[Run, Sequence[Fold]], object] = lambda run, folds: None


@dataclass(frozen=True, eq=False)
class Searched:
    """What a search found.

    runs: all of them, in the order in which they were made.
    box: where LearnLoss looked.
    learned: what it said last, in sums over examples; None if it was not asked, or found no solution.
    """

    runs: list[Run]
    box: Box
    learned: LearnedLoss | None


def only_l2(l2: float) -> Weights:
    """Weights of a model with L2 alone."""
    return {"l1": 0.0, "l2": l2, "uniform": 0.0, "dropout": 0.0, "logloss": 1.0}


def is_l2_only(weights: Weights) -> bool:
    """Whether no other regularizer has a weight."""
    return weights == only_l2(weights["l2"])


def grown(weights: Weights, factor: float) -> Weights:
    """L1 and L2 times `factor`; the other terms are sums over examples, and grow by themselves."""
    return weights | {name: factor * weights[name] for name in ("l1", "l2")}


def first_l2(data: Data) -> float:
    """A rather strong L2 weight: its curvature is an eighth of what the examples have for the median input."""
    varied = data.second[data.second > 0]
    return float(np.median(varied)) / 64 if len(varied) else 1.0


def flat_error(folds: Sequence[Fold]) -> float:
    """The validation error of models that know the share of each class and nothing else."""
    total = 0.0
    for fold in folds:
        share = fold.data.targets().sum(axis=0) / fold.data.total
        total -= float(fold.targets.sum(axis=0) @ np.log(np.maximum(share, 1e-300)))
    return total


def make_box(terms: Sequence[str], l2: float, features: Array) -> Box:
    """Which weights may be learned: no term may be more than MOST times what L2 is at the path's best model.

    l2: the path's best. features: (5,) of that model.
    """
    own = l2 * features[NAMES.index("l2")]
    upper = {name: MOST * own / max(value, 1e-300) for name, value in zip(NAMES, features, strict=True)}
    ranges: dict[str, Any] = {name: (0.0, upper[name]) for name in ("l1", "dropout")}
    ranges |= {"l2": (LEAST * l2, MOST * l2), "uniform": (0.0, min(1.0, upper["uniform"]))}
    return Box.from_dict({n: ranges.get(n, 1.0) if n in terms or n == "logloss" else 0.0 for n in NAMES})


def search(folds: Sequence[Fold], options: Options, each: Each) -> Searched:
    """A path of L2 fits, then fits with learned weights.

    each: calls a function with each of several tuples of arguments, perhaps at the same time.
    """
    path = l2_path(partial(run_all, folds, options=options, each=each), folds, options.max_runs)
    best = best_of(path)
    folds = [replace(fold, data=fold.data.with_dropout(one.params)) for fold, one in zip(folds, best.fits, strict=True)]
    path = [valued(folds, one) for one in path[:-SHORTEST]] + [observed(folds, one, each) for one in path[-SHORTEST:]]
    found = learned_runs(folds, path, options, each)
    first = sorted(path[:2], key=lambda one: -one.weights["l2"])  # the stronger one was made first
    return replace(found, runs=[*first, *path[2:], *found.runs])


def run_all(folds: Sequence[Fold], weights: Weights, starts: Sequence[Array], *, options: Options, each: Each) -> Run:
    """Fit every fold with these weights."""

    def train(fold: Fold, start: Array) -> Fitted:
        return fit(fold.data, weights, start, tol=options.tol, max_iter=options.max_iter)

    run = as_run(folds, weights, each(train, list(zip(folds, starts, strict=True))))
    options.on_run(run, folds)
    return run


def as_run(folds: Sequence[Fold], weights: Weights, fits: Sequence[Fitted]) -> Run:
    """The run of these fits, one a fold."""
    losses = [fold.losses(one.params) for fold, one in zip(folds, fits, strict=True)]
    sample_weight = np.concatenate([fold.targets.sum(axis=1) for fold in folds])
    return Run(weights, tuple(fits), np.concatenate(losses), sample_weight)


def best_of(runs: Sequence[Run]) -> Run:
    """The run of least error."""
    return min(runs, key=lambda one: one.error)


def l2_path(run: Callable[[Weights, Sequence[Array]], Run], folds: Sequence[Fold], most: int) -> list[Run]:
    """Fits with L2 alone, weaker and weaker (stronger, if the second is worse than the first), then one between.

    They are in the order of their weights, but for the last: of a path that turned, the second comes before the first.
    While the error is that of a model that knows nothing, where all changes are noise, it neither turns nor ends.
    """
    runs: list[Run] = []
    flat = flat_error(folds)
    l2, factor, starts = first_l2(folds[0].data), 1 / FACTOR, [fold.data.zeros() for fold in folds]
    while len(runs) < min(LONGEST, most - 1):
        runs.append(run(only_l2(l2), starts))
        starts = [one.params for one in runs[-1].fits]
        knows = abs(runs[-1].error / flat - 1) > NOTHING
        if len(runs) == 2 and knows and runs[1].error > runs[0].error:
            runs, factor, l2 = runs[::-1], FACTOR, runs[0].weights["l2"]
            starts = [one.params for one in runs[-1].fits]
        elif len(runs) >= SHORTEST and knows and runs[-1].error > (1 - STALLED) * runs[-2].error:
            break
        l2 *= factor
    if len(runs) >= 3 and best_of(runs) is runs[-2] and len(runs) < most:
        best, shift = runs[-2], vertex([one.error for one in runs[-3:]])
        if shift:
            runs.append(run(only_l2(best.weights["l2"] * factor**shift), [one.params for one in best.fits]))
    return runs


def vertex(errors: Sequence[float]) -> float:
    """Where the parabola through errors at -1, 0, 1, the middle one the least, is least: within (-1/2, 1/2).

    >>> vertex([3.0, 1.0, 2.0]) > 0
    True
    """
    before, at, after = errors
    bend = before - 2 * at + after
    return (before - after) / (2 * bend) if bend > 0 else 0.0


def learned_runs(folds: Sequence[Fold], path: Sequence[Run], options: Options, each: Each) -> Searched:
    """Fits with learned weights, until one is not clearly better than the best so far."""
    best, more = best_of(path), len(path) < options.max_runs
    box = make_box(options.terms, best.weights["l2"], np.sum([o.features for o in best.observations], axis=0))
    recent, found, tried = list(path[-SHORTEST:]), list[Run](), list[Array]()
    learned: LearnedLoss | None = None
    while more:
        try:
            by_fold = list(zip(*(one.observations for one in recent), strict=True))
            learned = learn_loss_on_folds(by_fold, box, epsilon=math.inf)
            if any(same_point(learned.weights, other) for other in tried):
                break
            starts = [one.params for one in best.fits]
            new = run_all(folds, learned.as_dict(), starts, options=options, each=each)
        except (SolverError, RunFailed):
            break  # what was found so far stands
        more = clearly_better(new, best) and len(path) + len(found) + 1 < options.max_runs
        new = observed(folds, new, each) if more else valued(folds, new)  # gradients are for the next
        tried.append(learned.weights)
        found.append(new)
        best = best_of([best, new])
        recent = [*recent[1 - COUNTED :], new]
    return Searched(found, box, learned)


def observed(folds: Sequence[Fold], run: Run, each: Each) -> Run:
    """The run with its observations, one a fold."""
    jobs = [(fold.data, own, fold.x, fold.targets) for fold, own in zip(folds, run.fits, strict=True)]
    return replace(run, observations=tuple(each(observe, jobs)))


def valued(folds: Sequence[Fold], run: Run) -> Run:
    """The run with observations without gradients, which cost little."""
    ends = np.cumsum([len(fold.targets) for fold in folds])[:-1]
    errors = [float(part.sum()) for part in np.split(run.sample_weight * run.losses, ends)]
    values = [terms(fold.data, one.params)[0] for fold, one in zip(folds, run.fits, strict=True)]
    pairs = zip(errors, values, strict=True)
    return replace(run, observations=tuple(Observation(e, dict(zip(NAMES, v, strict=True))) for e, v in pairs))


def best_l2_of(runs: Sequence[Run]) -> Run:
    """The best run with L2 alone."""
    return best_of([run for run in runs if is_l2_only(run.weights)])


def chosen(runs: Sequence[Run]) -> Run:
    """The run of least error; but L2 alone, unless that is worse by more than one standard error of the difference.

    The more weights, the more of what the validation examples gain is luck.
    """
    best, plain = best_of(runs), best_l2_of(runs)
    return best if clearly_better(best, plain) else plain


def clearly_better(run: Run, other: Run) -> bool:
    """Whether its error is lower by more than one standard error of the difference, and by more than GAIN."""
    gain, weight = other.losses - run.losses, run.sample_weight
    mean = np.average(gain, weights=weight)
    error = math.sqrt(float(weight @ (gain - mean) ** 2)) / weight.sum()
    return bool(mean > max(error, GAIN * other.error / weight.sum()))
