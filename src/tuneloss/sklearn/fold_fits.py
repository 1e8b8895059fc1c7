"""Runs of the search: one fit per fold with the same weights, and which of two runs is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss import Observation
from tuneloss.sklearn.fitting import Fitted, fit
from tuneloss.sklearn.observe import observe
from tuneloss.sklearn.softmax import NAMES, Data, Inputs, Weights, make_data, predicted, terms, weighted_targets
from tuneloss.sklearn.splits import Split, check_split
from tuneloss.types import Array

MIN_GAIN = 1e-3  # relative gain in error below which a run is not clearly better

ParallelMap = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]
"""Calls a function with each of several tuples of arguments, perhaps in parallel."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Training data and the examples that validate it.

    Parameters
    ----------
    data : Data
        The training examples.
    x : (N, D) array or sparse matrix
        The validation inputs.
    targets : (N, C) array
        One row per validation example: its sample weight in the column of its class, and 0 elsewhere.
    """

    data: Data
    x: Inputs
    targets: Array

    def losses(self, params: Array) -> Array:
        """Return the log loss (N,) of each validation example, without its weight."""
        log_p = predicted(self.data, params, self.x)
        losses: Array = -log_p[np.arange(len(log_p)), self.targets.argmax(axis=1)]
        return losses


def make_fold(x: Inputs, codes: NDArray[np.intp], split: Split, classes: NDArray[Any], *, intercept: bool) -> Fold:
    """Build the fold of a split. `codes` are the labels, as positions in `classes`."""
    train, held = (np.flatnonzero(weight > 0) for weight in split)
    check_split(classes, codes[train], len(held))
    data = make_data(x[train], codes[train], split[0][train], len(classes), intercept=intercept)
    return Fold(data, x[held], weighted_targets(codes[held], split[1][held], len(classes)))


@dataclass(frozen=True, eq=False)
class FoldFits:
    """A run of the search: one fit per fold, all with the same weights.

    Parameters
    ----------
    weights : dict of str to float
        The loss weights.
    fits : tuple of Fitted
        One fit per fold.
    losses, sample_weight : (N,) arrays
        The log loss and the weight of each validation example, fold after fold.
    observations : tuple of Observation
        One per fold, or none. Those that LearnLoss learns from have grams.
    """

    weights: Weights
    fits: tuple[Fitted, ...]
    losses: Array
    sample_weight: Array
    observations: tuple[Observation, ...] = ()

    @classmethod
    def of(cls, folds: Sequence[Fold], weights: Weights, fits: Sequence[Fitted]) -> FoldFits:
        """Validate one fit per fold, and return them as a run."""
        losses = [fold.losses(fitted.params) for fold, fitted in zip(folds, fits, strict=True)]
        sample_weight = np.concatenate([fold.targets.sum(axis=1) for fold in folds])
        return cls(weights, tuple(fits), np.concatenate(losses), sample_weight)

    @property
    def error(self) -> float:
        """The weighted sum of the log losses of all validation examples."""
        return float(self.sample_weight @ self.losses)

    @property
    def mean_error(self) -> float:
        """The weighted mean of the log losses of all validation examples."""
        return self.error / float(self.sample_weight.sum())

    @property
    def params(self) -> list[Array]:
        """The params of each fold's model."""
        return [fitted.params for fitted in self.fits]

    def mean_params(self) -> Array:
        """Return the mean of all models, from which the fit of all data starts."""
        return np.asarray(np.mean(self.params, axis=0))

    def joined_observation(self) -> Observation | None:
        """Join the observations of all folds into one; None if there are none.

        The features are sums over folds. The error is `mean_error`, and the gram is scaled accordingly.
        """
        if not self.observations:
            return None
        total = float(self.sample_weight.sum())
        features = np.sum([o.features for o in self.observations], axis=0)
        grams = [o.gram for o in self.observations if o.gram is not None]
        gram = None
        if len(grams) == len(self.observations):
            unit = np.append(np.ones(len(features)), 1 / total)
            gram = np.sum(grams, axis=0) * np.outer(unit, unit)
        error = sum(o.error for o in self.observations) / total
        return Observation(error, features, gram, names=self.observations[0].names)


OnRun = Callable[[FoldFits, Sequence[Fold]], object]
"""Called with each run of a search as it ends, and the folds."""


def ignore_run(run: FoldFits, folds: Sequence[Fold]) -> None:
    """Do nothing: the default `OnRun`."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search.

    Parameters
    ----------
    terms : tuple of str
        The regularizers that may get a weight.
    max_runs : int
        The largest number of runs.
    tol, max_iter : float, int
        The precision and the largest number of iterations of each fit; see `fit`.
    on_run : callable
        Called as ``on_run(run, folds)`` after each run.
    """

    terms: tuple[str, ...]
    max_runs: int
    tol: float
    max_iter: int
    on_run: OnRun = ignore_run


def fit_folds(
    folds: Sequence[Fold], weights: Weights, starts: Sequence[Array], *, options: SearchOptions, parallel: ParallelMap
) -> FoldFits:
    """Fit every fold with these weights, from one start per fold."""

    def fit_fold(fold: Fold, start: Array) -> Fitted:
        return fit(fold.data, weights, start, tol=options.tol, max_iter=options.max_iter)

    run = FoldFits.of(folds, weights, parallel(fit_fold, list(zip(folds, starts, strict=True))))
    options.on_run(run, folds)
    return run


def add_dropout(folds: Sequence[Fold], run: FoldFits) -> list[Fold]:
    """Return the folds with a dropout term, whose probabilities are those of the run's models."""
    pairs = zip(folds, run.params, strict=True)
    return [replace(fold, data=fold.data.with_dropout(params)) for fold, params in pairs]


def observe_gradients(folds: Sequence[Fold], run: FoldFits, parallel: ParallelMap) -> FoldFits:
    """Return the run with observations that include grams."""
    jobs = [(fold.data, fitted, fold.x, fold.targets) for fold, fitted in zip(folds, run.fits, strict=True)]
    return replace(run, observations=tuple(parallel(observe, jobs)))


def observe_values(folds: Sequence[Fold], run: FoldFits) -> FoldFits:
    """Return the run with observations without grams, which are cheap."""
    ends = np.cumsum([len(fold.targets) for fold in folds])[:-1]
    errors = [float(part.sum()) for part in np.split(run.sample_weight * run.losses, ends)]
    values = [terms(fold.data, params)[0] for fold, params in zip(folds, run.params, strict=True)]
    pairs = zip(errors, values, strict=True)
    return replace(run, observations=tuple(Observation(e, dict(zip(NAMES, v, strict=True))) for e, v in pairs))


def best_of(runs: Sequence[FoldFits]) -> FoldFits:
    """Return the run of least error, or the first one of a tie.

    `best_index` of the core returns the last one of a tie. Here, a tie means that new weights did not move a fit with a
    warm start. So the weights that led to the model are those of the first run.
    """
    return min(runs, key=lambda run: run.error)


def mean_gain(run: FoldFits, other: FoldFits) -> tuple[float, float]:
    """Return the mean gain of `run` over `other` per validation example, and its standard error."""
    gain, weight = other.losses - run.losses, run.sample_weight
    mean = float(np.average(gain, weights=weight))
    return mean, math.sqrt(float(weight @ (gain - mean) ** 2)) / float(weight.sum())


def clearly_better(run: FoldFits, other: FoldFits, margin: float = 1.0) -> bool:
    """Return whether the gain of `run` over `other` exceeds MIN_GAIN and `margin` standard errors."""
    gain, standard_error = mean_gain(run, other)
    return gain > max(margin * standard_error, MIN_GAIN * other.mean_error)
