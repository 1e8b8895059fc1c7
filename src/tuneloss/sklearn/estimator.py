"""TunedLogisticRegression: logistic regression that learns the weights of its regularizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from tuneloss.errors import InvalidInput
from tuneloss.sklearn.examples import read_examples
from tuneloss.sklearn.fitting import Fitted, fit
from tuneloss.sklearn.fold_fits import Fold, FoldFits, OnRun, SearchOptions, best_of, ignore_run, make_fold
from tuneloss.sklearn.online import online_search, repeated
from tuneloss.sklearn.search import best_l2_of, choose, grow_penalties, search
from tuneloss.sklearn.softmax import NAMES, Data, all_classes, log_probabilities, make_data
from tuneloss.sklearn.splits import make_splits
from tuneloss.types import Array

ONE_THREAD = 5e7  # examples * inputs * classes; below it, BLAS has one thread, since more would wait for each other
SEARCH_TOL = 3  # tolerance of the search, relative to that of the last fit; at 10, weak regularizers look too good
REGULARIZERS = NAMES[:-1]


class TunedLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Logistic regression that learns the weights of several regularizers at once.

    Use it where you would use `LogisticRegressionCV`. Instead of one penalty and a grid, it has up to four
    regularizers, and `fit` learns all their weights from validation examples. The loss is a sum over the training
    examples, with weights >= 0::

        loss = log loss
             + l1 * sum |coef|
             + l2 * sum coef^2
             + uniform * (log loss on uniform labels, as in label smoothing)
             + dropout * (what dropout of half of the inputs adds to the log loss)

    Standardise the inputs first: penalties depend on their units.

    Parameters
    ----------
    terms : sequence of str, default ("l1", "l2", "uniform", "dropout")
        The regularizers that may get a weight. "l2" must be among them.
    strategy : {"runs", "online"}, default "runs"
        "runs" fits several models and learns from each of them; see Notes. "online" learns the weights while one
        model trains, by proximal gradient steps. It learns a convex piecewise-linear penalty of each coefficient
        instead of L1 (unless `terms` leave "l1" out), and takes several times as long.
    validation_fraction : float, optional
        Validate with one split that holds out this fraction of the examples. By default, 20% of the examples are held
        out. If these are fewer than 500, 5-fold cross-validation is used instead. If they are fewer than 20 per class,
        as many of the 5 folds are used as it takes to have 20 per class.
    cv : int, splitter or iterable of (train, validation) indices, optional
        Cross-validate instead, as everywhere in scikit-learn. If it is a number of folds, examples with equal inputs
        fall into the same fold, and an example of weight 2 counts as two examples.
    max_runs : int, default 15
        The largest number of runs of the search; at least 3. In each run, every fold is fitted once.
    fit_intercept : bool, default True
        Whether to fit intercepts. L1, L2 and dropout do not penalise them.
    tol : float, default 1e-4
        The precision of the last fit: how steep the loss may be where the solver stops. With "online", this and
        `max_iter` apply to the first part of the run, with L2 alone.
    max_iter : int, default 1000
        The largest number of iterations of the last fit.
    n_jobs : int, optional
        The number of folds that are fitted in parallel, in threads; -1 for all cores.
    random_state : int, RandomState instance or None, default None
        Decides which examples validate. Everything else is deterministic.

    Attributes
    ----------
    classes_ : (C,) array
        The class labels.
    coef_ : (C, D) array, or (1, D) for two classes
        The coefficients.
    intercept_ : (C,) array, or (1,) for two classes
        The intercepts.
    loss_weights_ : dict of str to float
        The weight of each term in the last fit. In scikit-learn's terms, ``loss_weights_["l2"]`` is 1 / (2 C).
    history_ : list of dict
        The runs of the search, one record each: "weights", "validation_loss" (the mean log loss of all validation
        examples), "n_iter", and "observation" (an `Observation`; its error is the validation loss, its features are
        sums over the models of all folds). With "online", each epoch is a run, and the first is a fit with L2 alone.
    best_run_ : int
        The position in `history_` of the run whose weights were chosen.
    learned_ : LearnedLoss or None
        The last answer of LearnLoss: up to a constant, ``weights . features`` predicts ``scale * error``. The run after
        it may go further in its direction. Not set with "online".
    box_ : Box
        The ranges that LearnLoss could choose weights from: around the best fit with L1 or L2 alone, or, with
        "online", of the hinges of the penalty and of the other terms.
    regularizer_ : tuple of two arrays
        The penalty that "online" learned, as the positions and values of points. It is linear between the points and
        beyond them. Set only with "online".
    steps_ : list of StepRecord
        The epochs that "online" went through, as in `OnlineTuner.history`: the weights of all hinges and terms, and
        how those of the next epoch were learned. Set only with "online".
    n_iter_ : (1,) array
        The number of iterations of the last fit.
    n_features_in_, feature_names_in_
        The number of inputs and, if they are columns of a DataFrame, their names.

    See Also
    --------
    sklearn.linear_model.LogisticRegressionCV : One penalty, chosen from a grid.
    tuneloss.LossTuner : The same for a model of your own, between training runs.
    tuneloss.torch.OnlineTuner : The same for a PyTorch model, inside one training run.

    Notes
    -----
    The search starts with a short path of L2 weights, from strong to weak. Unless a few fits on one fold show that L1
    alone is clearly worse, a path of L1 weights follows. From the best models LearnLoss learns the weights of all
    terms: a quadratic program matches the gradients of the terms to that of the validation error. The next run uses
    these weights and is learned from in turn. The search ends when a run is not clearly better than the best one
    before.

    The weights of least validation log loss are chosen. If their gain over one penalty alone is within one standard
    error, or below 0.1%, that penalty alone is used, because more of the gain is luck when more weights are learned.
    The penalty is L2, or L1 if that is better by half a standard error.

    The last fit is on all examples, which are more than in the search. The weights of L1 and L2 therefore grow with the
    square root of the number of examples. The other terms are sums over examples and grow by themselves.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from tuneloss.sklearn import TunedLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), TunedLogisticRegression(random_state=0)).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> sorted(model[-1].loss_weights_)
    ['dropout', 'l1', 'l2', 'logloss', 'uniform']
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
        """Learn the loss weights, then fit the model to all examples.

        Parameters
        ----------
        X : (N, D) array, DataFrame or sparse matrix
            The inputs.
        y : (N,) array
            The labels.
        sample_weight : (N,) array, optional
            The weight of each example, >= 0. A weight of 2 is the same as the example twice.
        X_val, y_val : (M, D) and (M,) arrays, optional
            Validation examples. If they are given, `cv` and `validation_fraction` are ignored, and the last fit is on X
            and X_val together. X_val must be scaled in the same way as X. A Pipeline transforms it only if it has
            ``transform_input=["X_val"]``.
        sample_weight_val : (M,) array, optional
            The weight of each validation example.

        Returns
        -------
        TunedLogisticRegression
            The fitted estimator.

        Raises
        ------
        InvalidInput
            If a parameter or the examples break a rule. It is a `ValueError`.

        Warns
        -----
        ConvergenceWarning
            If the last fit reaches `max_iter`.
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
        """Fit as `fit` does, and call ``on_run(run, folds)`` after each run of the search."""
        check_parameters(self)
        for name in ("regularizer_", "steps_", "box_", "learned_"):
            self.__dict__.pop(name, None)  # set by an earlier fit with the other strategy
        examples = read_examples(self, X, y, sample_weight, X_val, y_val, sample_weight_val)
        self.classes_, codes = np.unique(examples.labels, return_inverse=True)
        if len(self.classes_) < 2:
            name, classes = type(self).__name__, self.classes_.tolist()
            raise InvalidInput(f"`{name}` needs examples of at least 2 classes; found one class, {classes}.")
        split_options = {name: getattr(self, name) for name in ("validation_fraction", "cv", "random_state")}
        splits = make_splits(examples, codes, y, **split_options)
        intercept = self.fit_intercept
        folds = [make_fold(examples.x, codes, split, self.classes_, intercept=intercept) for split in splits]
        data = make_data(examples.x, codes, examples.weight, len(self.classes_), intercept=intercept)
        is_small = data.x.shape[0] * data.x.shape[1] * len(self.classes_) < ONE_THREAD
        with threadpool_limits(1, user_api="blas") if is_small else nullcontext():
            self._learn(data, folds, on_run)
        return self

    def _learn(self, data: Data, folds: list[Fold], on_run: OnRun) -> None:
        """Search for weights on the folds, then fit all data."""
        if not folds:
            raise InvalidInput(
                f"`{type(self).__name__}` needs examples to validate with; found none in n_samples={len(data.y)}. Give "
                "X_val and y_val, more examples, or cv=[(train, validation)]."
            )
        growth = float(data.total / float(np.mean([fold.data.total for fold in folds]))) ** 0.5
        options = SearchOptions(tuple(self.terms), self.max_runs, SEARCH_TOL * self.tol, self.max_iter, on_run)
        learn = self._learn_by_runs if self.strategy == "runs" else self._learn_online
        runs, best, fitted = learn(data, folds, growth, options)
        if not fitted.converged:
            message = f"The last fit did not converge in {fitted.n_iter} iterations: {fitted.message}."
            warnings.warn(f"{message} Raise max_iter, or scale the inputs.", ConvergenceWarning, stacklevel=4)
        self.history_ = [_record(run) for run in runs]
        self.best_run_ = runs.index(best)
        self.coef_ = fitted.params[:, :-1].copy()
        self.intercept_ = fitted.params[:, -1] - self.coef_ @ data.mean
        self.n_iter_ = np.array([max(1, fitted.n_iter)])
        self.loss_weights_ = dict(fitted.weights)

    def _learn_by_runs(
        self, data: Data, folds: list[Fold], growth: float, options: SearchOptions
    ) -> tuple[list[FoldFits], FoldFits, Fitted]:
        """Return all runs, the chosen one, and the last fit."""
        result = search(folds, options, self._parallel)
        runs, self.box_, learned = result.runs, result.box, result.learned
        total = float(runs[0].sample_weight.sum())  # errors are sums in the search, and means in `history_`
        self.learned_ = learned and replace(learned, scale=total * learned.scale)
        best = choose(runs)
        weights = grow_penalties(best.weights, growth)
        start = best.mean_params()
        if weights["dropout"] > 0:  # its probabilities are those of a first fit with L2 alone
            l2_only = grow_penalties(best_l2_of(runs).weights, growth)
            first = fit(data, l2_only, start, tol=SEARCH_TOL * self.tol, max_iter=self.max_iter)
            data = data.with_dropout(first.params)
        return runs, best, fit(data, weights, start, tol=self.tol, max_iter=self.max_iter)

    def _learn_online(
        self, data: Data, folds: list[Fold], growth: float, options: SearchOptions
    ) -> tuple[list[FoldFits], FoldFits, Fitted]:
        """Return all runs, which are epochs, the best one, and a repetition on all data up to the best epoch."""
        result = online_search(folds, options, self._parallel)
        runs, self.box_, self.steps_ = result.runs, result.box, result.steps
        best = best_of(runs)
        losses = [loss.grown(growth) for loss in result.losses[: runs.index(best) + 1]]
        self.regularizer_ = losses[-1].regularizer.points()
        return runs, best, repeated(data, losses, runs[0].mean_params(), options)

    def _parallel(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call the function with each tuple of arguments, in threads if `n_jobs` asks for them."""
        if self.n_jobs in (None, 1) or len(jobs) == 1:
            return [function(*job) for job in jobs]
        return list(Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(function)(*job) for job in jobs))

    def decision_function(self, X: ArrayLike) -> Array:
        """Compute the logits.

        Parameters
        ----------
        X : (N, D) array, DataFrame or sparse matrix
            The inputs.

        Returns
        -------
        (N, C) array, or (N,) array for two classes
            The logits; with two classes, those of the second.
        """
        check_is_fitted(self)
        x = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        z = np.asarray(x @ self.coef_.T) + self.intercept_
        return np.asarray(z[:, 0] if z.shape[1] == 1 else z)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Compute the logarithm of the probability of each class.

        Parameters
        ----------
        X : (N, D) array, DataFrame or sparse matrix
            The inputs.

        Returns
        -------
        (N, C) array
        """
        z = self.decision_function(X)
        return log_probabilities(all_classes(z[:, None] if z.ndim == 1 else z.copy()))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Compute the probability of each class.

        Parameters
        ----------
        X : (N, D) array, DataFrame or sparse matrix
            The inputs.

        Returns
        -------
        (N, C) array
        """
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class of each example.

        Parameters
        ----------
        X : (N, D) array, DataFrame or sparse matrix
            The inputs.

        Returns
        -------
        (N,) array
            The labels.
        """
        z = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)]
        return labels


def _record(run: FoldFits) -> dict[str, Any]:
    """Return a run as a record of `history_`."""
    return {
        "weights": dict(run.weights),
        "validation_loss": run.mean_error,
        "n_iter": sum(fitted.n_iter for fitted in run.fits),
        "observation": run.joined_observation(),
    }


def check_parameters(model: TunedLogisticRegression) -> None:
    """Raise unless the parameters of the constructor are as documented."""
    _check_terms(model.terms)
    if model.strategy not in ("runs", "online"):
        raise InvalidInput(f'`strategy` must be "runs" or "online"; found {model.strategy!r}.')
    _check_splits(model.validation_fraction, model.cv)
    if not isinstance(model.tol, Real) or not float(model.tol) > 0:
        raise InvalidInput(f"`tol` must be a number > 0; found {model.tol!r}.")
    for name, least in (("max_runs", 3), ("max_iter", 1)):
        value = getattr(model, name)
        if not isinstance(value, Integral) or value < least:
            raise InvalidInput(f"`{name}` must be a whole number, at least {least}; found {value!r}.")


def _check_terms(terms: Any) -> None:
    """Raise unless `terms` names regularizers, "l2" among them."""
    is_names = isinstance(terms, (list, tuple)) and all(isinstance(term, str) for term in terms)
    if not is_names or not {"l2"} <= set(terms) <= set(REGULARIZERS) or len(set(terms)) != len(terms):
        raise InvalidInput(
            f'`terms` must be some of {list(REGULARIZERS)}, each once, "l2" among them; found {terms!r}.'
        )


def _check_splits(fraction: Any, cv: Any) -> None:
    """Raise unless `validation_fraction` and `cv` are as documented."""
    if fraction is not None and (not isinstance(fraction, Real) or not 0 < float(fraction) < 1):
        raise InvalidInput(f"`validation_fraction` must be None or between 0 and 1; found {fraction!r}.")
    if fraction is not None and cv is not None:
        raise InvalidInput("`validation_fraction` and `cv` are two ways to split; found both. Give one of them.")
    if isinstance(cv, Integral) and (isinstance(cv, bool) or cv < 2):
        raise InvalidInput(f"`cv` must be at least 2 folds, a splitter or a list of splits; found {cv!r}.")
