"""Softmax regression that learns the weights of its regularizers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from tuneloss import Observation
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.checks import check_options, check_split, check_two_classes
from tuneloss.sklearn.examples import Examples, read_examples
from tuneloss.sklearn.fitting import Fitted, fit
from tuneloss.sklearn.online import online_search, repeated
from tuneloss.sklearn.search import (
    Fold,
    OnRun,
    Options,
    Run,
    best_l2_of,
    best_of,
    chosen,
    grown,
    ignore_run,
    search,
)
from tuneloss.sklearn.softmax import Data, Inputs, Weights, all_classes, log_probabilities, make_data, weighted_targets
from tuneloss.sklearn.splits import Split, k_splits, one_split
from tuneloss.types import Array

SMALL = 5e7  # examples * inputs * classes: below it, the threads of NumPy's BLAS and of SciPy's wait for each other
FOLDS, ENOUGH, A_CLASS = 5, 500, 20  # by default: of so many folds, as many as validate with so many examples
SEARCH_TOL = 3  # the search's fits may be this much less exact than the last; at 10, weak regularizers look too good


class TunedLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression whose regularizers, several at once, get their weights from validation examples.

    The loss is a sum over training examples, with weights >= 0:

        log loss + l1 |coef|_1 + l2 |coef|^2 + uniform * (log loss on uniform labels) + dropout * (what dropout adds)

    A short path of L2 fits comes first, then LearnLoss: each further fit has weights learned from the ones before, by a
    quadratic program that matches the gradients of the terms to that of the validation error. The weights of least
    validation log loss are used (L2 alone, unless that is worse by more than a standard error), in a last fit on all
    data. The weights of L1 and L2 grow with the root of the number of examples then; the other terms are sums over
    examples, as the log loss is.

    terms: which of "l1", "uniform", "dropout" may have a weight beside "l2", which must be among them.
    strategy: "runs", as above; or "online": one run of proximal gradient steps in which the weights, and a convex
        regularizer of 20 knots instead of L1, are learned as it goes.
    validation_fraction: takes one split, with this part of the examples to validate. None, with no `cv` either, takes a
        fifth of them if that is at least 500 and 20 a class; with more classes as many of 5 folds as that takes; and 5
        folds of fewer examples, on which a weak regularizer can win by luck.
    cv: instead, a number of folds; a splitter; or a list of (train, validation) indices, as everywhere in scikit-learn.
        Costs of folds add. Splits of ours depend on the examples' inputs: equal ones fall on the same side (or, if
        many share them, count in part on both), and an example of weight 2 counts as two.
    max_runs: most fits of the search. tol, max_iter: of the last fit. (Online that is the same run on all data; they
        are for its first part, with L2 alone.)
    n_jobs: folds fitted at once. random_state: decides the split.

    After `fit`: `classes_`, `coef_`, `intercept_`, `n_iter_`, `loss_weights_`, and `history_`: a list with the weights,
    the mean validation log loss, the number of iterations and the `Observation` of each run, of which `best_run_` was
    chosen. (The error of an observation is that mean; its features are sums over the models of all folds.) `learned_`
    is what LearnLoss said last, a `LearnedLoss` or None: its weights . features is scale * error, but for a constant.
    `box_` is where it looked, around the best fit with L2 alone.
    Online they are not there; each epoch is a run, without observation, and `regularizer_` holds points of the learned
    regularizer, coefficients and values: it is the lines through them, and beyond.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TunedLogisticRegression(random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape, sorted(model.loss_weights_)
    ((150, 3), ['dropout', 'l1', 'l2', 'logloss', 'uniform'])
    """

    def __init__(
        self,
        *,
        terms: Sequence[str] = ("l1", "l2", "uniform", "dropout"),
        strategy: Literal["runs", "online"] = "runs",
        validation_fraction: float | None = None,
        cv: Any = None,
        max_runs: int = 15,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.terms = terms
        self.strategy = strategy
        self.validation_fraction = validation_fraction
        self.cv = cv
        self.max_runs = max_runs
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> Self:
        """Learn the weights and the model.

        X: (N, D), an array, DataFrame or sparse matrix. y: (N,) labels.
        X_val, y_val: examples that validate; then `cv` and `validation_fraction` are not used, and the last fit is on
            X and X_val together. X_val must be as X is: a Pipeline passes it through its earlier steps only if it has
            transform_input=["X_val"].
        """
        return self._fit(X, y, sample_weight, X_val, y_val, sample_weight_val)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        *,
        on_run: OnRun = ignore_run,
    ) -> Self:
        """Fit as `fit` does, and call ``on_run(run, folds)`` after each run of the search. `comparison.py` does."""
        check_options(self)
        for name in ("regularizer_", "box_", "learned_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        given = read_examples(self, X, y, sample_weight, X_val, y_val, sample_weight_val)
        self.classes_, codes = np.unique(given.labels, return_inverse=True)
        check_two_classes(self, self.classes_)
        folds = [self._fold(given.x, codes, *split) for split in self._splits(given, codes, y)]
        data = make_data(given.x, codes, given.weight, len(self.classes_), intercept=self.fit_intercept)
        small = given.x.shape[0] * given.x.shape[1] * len(self.classes_) < SMALL
        with threadpool_limits(1, user_api="blas") if small else nullcontext():
            self._learn(data, folds, on_run)
        return self

    def _splits(self, given: Examples, codes: NDArray[np.intp], y: Any) -> list[Split]:
        """Sample weights of training and validation, split by split. A splitter is shown all labels y."""
        weight = given.weight
        if given.n_train is not None:
            first = np.arange(len(weight)) < given.n_train
            return [(weight * first, weight * ~first)]
        seed = int(check_random_state(self.random_state).randint(2**31))
        if self.validation_fraction is not None:
            return one_split(given.x, codes, weight, float(self.validation_fraction), seed)
        if self.cv is None:
            return self._default_splits(given, codes, seed)
        if isinstance(self.cv, (int, np.integer)):
            return k_splits(given.x, codes, weight, int(self.cv), seed)
        found = []
        n = len(np.asarray(y))
        for parts in check_cv(self.cv, y, classifier=True).split(np.zeros((n, 1)), y):
            train, held = (np.bincount(np.arange(n)[part], minlength=n)[given.kept] for part in parts)
            found.append((weight * train, weight * held))
        return found

    def _default_splits(self, given: Examples, codes: NDArray[np.intp], seed: int) -> list[Split]:
        """A fifth validates, if that is ENOUGH examples and A_CLASS a class; or more folds; on few examples, all."""
        fifth = given.weight.sum() / FOLDS
        n = math.ceil(A_CLASS * len(self.classes_) / fifth) if fifth >= ENOUGH else FOLDS
        if n == 1:
            return one_split(given.x, codes, given.weight, 1 / FOLDS, seed)
        return k_splits(given.x, codes, given.weight, FOLDS, seed)[:n]

    def _fold(self, x: Inputs, codes: NDArray[np.intp], train: Array, held: Array) -> Fold:
        """The data that sample weights (N,) of training and of validation pick out."""
        own, other = np.flatnonzero(train > 0), np.flatnonzero(held > 0)
        check_split(self.classes_, codes[own], len(other))
        data = make_data(x[own], codes[own], train[own], len(self.classes_), intercept=self.fit_intercept)
        return Fold(data, x[other], weighted_targets(codes[other], held[other], len(self.classes_)))

    def _learn(self, data: Data, folds: list[Fold], on_run: OnRun) -> None:
        """Search for weights on the folds, then fit all data."""
        if not folds:
            raise InvalidInput(
                f"`{type(self).__name__}` needs examples to validate with; found none in n_samples={len(data.y)}. Give "
                "X_val and y_val, more examples, or cv=[(train, validation)]."
            )
        growth = data.total / float(np.mean([fold.data.total for fold in folds]))
        options = Options(tuple(self.terms), self.max_runs, SEARCH_TOL * self.tol, self.max_iter, on_run)
        if self.strategy == "runs":
            found = search(folds, options, self._each)
            runs, self.box_, learned = found.runs, found.box, found.learned
            total = float(runs[0].sample_weight.sum())  # errors are sums in the search, and means in `history_`
            self.learned_ = learned and replace(learned, scale=total * learned.scale)
            best = chosen(runs)
            weights = grown(best.weights, growth**0.5)
            data = self._with_dropout(data, weights, grown(best_l2_of(runs).weights, growth**0.5), best)
            fitted = fit(data, weights, mean_params(best), tol=self.tol, max_iter=self.max_iter)
        else:
            runs, losses = online_search(folds, options, self._each)
            best = best_of(runs)
            losses = [loss.grown(growth**0.5) for loss in losses[: runs.index(best) + 1]]
            fitted = repeated(data, losses, mean_params(runs[0]), options)
            self.regularizer_ = losses[-1].regularizer.points()
        if not fitted.converged:
            message = f"The last fit did not converge in {fitted.n_iter} iterations: {fitted.message}."
            warnings.warn(f"{message} Raise max_iter, or scale the inputs.", ConvergenceWarning, stacklevel=4)
        self.history_ = [_shown(run) for run in runs]
        self.best_run_ = runs.index(best)
        self._keep(data, fitted)

    def _with_dropout(self, data: Data, weights: Weights, first: Weights, best: Run) -> Data:
        """The data with the dropout term, at the probabilities of a first fit, if it has a weight."""
        if not weights["dropout"] > 0:
            return data
        one = fit(data, first, mean_params(best), tol=SEARCH_TOL * self.tol, max_iter=self.max_iter)
        return data.with_dropout(one.params)

    def _keep(self, data: Data, fitted: Fitted) -> None:
        self.coef_ = fitted.params[:, :-1].copy()
        self.intercept_ = fitted.params[:, -1] - self.coef_ @ data.mean
        self.n_iter_ = np.array([max(1, fitted.n_iter)])
        self.loss_weights_ = dict(fitted.weights)

    def _each(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self.n_jobs in (None, 1) or len(jobs) == 1:
            return [function(*job) for job in jobs]
        return list(Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(function)(*job) for job in jobs))

    def decision_function(self, X: ArrayLike) -> Array:
        """Logits: (N, C), or (N,) of the second class where there are two."""
        check_is_fitted(self)
        x = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        z = np.asarray(x @ self.coef_.T) + self.intercept_
        return np.asarray(z[:, 0] if z.shape[1] == 1 else z)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Log probabilities (N, C)."""
        z = self.decision_function(X)
        return log_probabilities(all_classes(z[:, None] if z.ndim == 1 else z.copy()))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities (N, C)."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each example."""
        z = self.decision_function(X)
        found: NDArray[Any] = self.classes_[(z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)]
        return found


def mean_params(run: Run) -> Array:
    """Where the fit of all data starts."""
    return np.asarray(np.mean([one.params for one in run.fits], axis=0))


def _shown(run: Run) -> dict[str, Any]:
    total = float(run.sample_weight.sum())
    return {
        "weights": dict(run.weights),
        "validation_loss": run.error / total,
        "n_iter": sum(one.n_iter for one in run.fits),
        "observation": joined(run.observations, total) if run.observations else None,
    }


def joined(observations: Sequence[Observation], total: float) -> Observation:
    """The models of all folds as one model: sums, and the error a mean over the weight of all validation examples."""
    features = np.sum([o.features for o in observations], axis=0)
    grams = [o.gram for o in observations if o.gram is not None]
    gram = None
    if len(grams) == len(observations):
        unit = np.append(np.ones(len(features)), 1 / total)
        gram = np.sum(grams, axis=0) * np.outer(unit, unit)
    return Observation(sum(o.error for o in observations) / total, features, gram, names=observations[0].names)
