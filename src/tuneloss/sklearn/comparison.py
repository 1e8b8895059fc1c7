"""Compare three classifiers on the same rows: no regularizer, the best of an L2 path, and learned weights."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from tuneloss.data import Dataset
from tuneloss.data.dataset import check_dataset
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.estimator import TunedLogisticRegression
from tuneloss.sklearn.fold_fits import Fold, FoldFits
from tuneloss.sklearn.preparation import Preparation, learn_preparation
from tuneloss.sklearn.softmax import predicted
from tuneloss.types import Array

PLAIN, L2_PATH, TUNED = "no regularizer", "L2 path (LogisticRegressionCV)", "tuned"  # the models, by name
MEASURES = ("test log loss", "test error")
MAX_FOLDS = 5  # folds of the L2 path; fewer if a class has fewer rows
MIN_PROBABILITY = float(np.finfo(float).eps)  # lower probabilities count as this in the log loss, as in scikit-learn
N_STEPS = 2 + TunedLogisticRegression().max_runs  # steps of progress: two models, then the runs of the third

Scores = dict[str, float]  # by measure
Progress = Callable[[int, str], object]  # called with the number of steps done, out of N_STEPS, and a note


@dataclass(frozen=True, eq=False)
class TrainTestRows:
    """Prepared rows to train with and rows to test with.

    Parameters
    ----------
    x : (N, E) array
        Inputs to train with.
    y : (N,) array
        Labels to train with.
    x_test : (M, E) array
        Inputs to test with.
    y_test : (M,) array
        Labels to test with.
    preparation : Preparation
        How columns became inputs.
    """

    x: Array
    y: NDArray[Any]
    x_test: Array
    y_test: NDArray[Any]
    preparation: Preparation

    def __str__(self) -> str:
        sizes = f"{len(self.y)} rows to train, {len(self.y_test)} to test"
        return f"{sizes}, {self.x.shape[1]} inputs, {len(np.unique(self.y))} classes"


def hold_out(dataset: Dataset, test_fraction: float = 0.25, seed: int = 0) -> TrainTestRows:
    """Hold out a fraction of each class for testing, and prepare the columns by what the other rows hold.

    Missing numbers are replaced by the median, and a further input tells where they were. Each category becomes an
    input; rare ones share one. All inputs are standardised.

    Parameters
    ----------
    dataset : Dataset
        Inputs and labels, at least 3 rows per class.
    test_fraction : float, default 0.25
        The fraction to hold out. At least one row of each class is held out, and at least two are not.
    seed : int, default 0
        Decides which rows are held out.

    Raises
    ------
    InvalidInput
        If the data breaks a rule of `check_dataset`, or if its numbers are too large to be squared.
    """
    y = check_dataset(dataset)
    rng, test = np.random.default_rng(seed), np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        test[rows[: min(max(round(test_fraction * len(rows)), 1), len(rows) - 2)]] = True
    preparation = learn_preparation(dataset, ~test)
    x = preparation(dataset)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = (preparation.mean, preparation.scale, np.square(x))
    if not all(np.isfinite(part).all() for part in parts):
        raise InvalidInput(
            f"Inputs must have finite squares; {dataset.title} has values that are too large. Rescale them."
        )
    return TrainTestRows(x[~test], y[~test], x[test], y[test], preparation)


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Three fitted models and their test scores.

    Parameters
    ----------
    tuned : TunedLogisticRegression
        The model with learned weights.
    run_scores : list of dict
        The test scores of each run of its search: means over the models of all folds.
    scores : dict of dict
        The test scores of each model by its name, and the seconds that its fit took.
    """

    tuned: TunedLogisticRegression
    run_scores: list[Scores]
    scores: dict[str, Scores]


def compare_models(rows: TrainTestRows, seed: int = 0, on_progress: Progress | None = None) -> ModelComparison:
    """Fit a model without a regularizer, one with the best L2 weight of a path, and one with learned weights.

    Parameters
    ----------
    rows : TrainTestRows
        What `hold_out` returns.
    seed : int, default 0
        Decides which rows validate the learned weights.
    on_progress : callable, optional
        Called as ``on_progress(done, note)``, where `done` counts steps from 0 to 17: two models, then up to 15 runs of
        the third.
    """
    advance = on_progress or (lambda done, note: None)
    n_folds = min(MAX_FOLDS, int(np.unique(rows.y, return_counts=True)[1].min()))
    scores = {}
    rivals = {PLAIN: LogisticRegression(C=np.inf, max_iter=1000), L2_PATH: l2_cv(cv=n_folds)}
    for i, (name, model) in enumerate(rivals.items()):
        advance(i, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model without a regularizer need not converge
            scores[name] = _fit_and_score(model.fit, rows)
    advance(len(rivals), TUNED)
    tuned, run_scores = TunedLogisticRegression(random_state=seed), list[Scores]()

    def on_run(run: FoldFits, folds: Sequence[Fold]) -> None:
        run_scores.append(_score_run(run, folds, tuned.classes_, rows))
        note = f"{TUNED}: run {len(run_scores)}, validation log loss {run.mean_error:.4f}"
        advance(len(rivals) + len(run_scores), note)

    scores[TUNED] = _fit_and_score(partial(tuned._fit, on_run=on_run), rows)
    advance(N_STEPS, "done")
    return ModelComparison(tuned, run_scores, scores)


def l2_cv(**options: Any) -> LogisticRegressionCV:
    """Return a `LogisticRegressionCV` with L2 alone, chosen by log loss, for any supported scikit-learn."""
    if "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters:  # since 1.8
        options |= {"l1_ratios": (0,), "use_legacy_attributes": False}
    return LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000, **options)


def _fit_and_score(fit: Callable[[Any, Any], Any], rows: TrainTestRows) -> Scores:
    """Return the test scores of the model that `fit` returns, and the seconds that the fit took."""
    start = time.perf_counter()
    model = fit(rows.x, rows.y)
    seconds = time.perf_counter() - start
    return _score(model.predict_proba(rows.x_test), model.classes_, rows) | {"seconds": seconds}


def _score(probabilities: Array, classes: NDArray[Any], rows: TrainTestRows) -> Scores:
    """Return the test scores of predicted probabilities (M, C)."""
    codes = np.searchsorted(classes, rows.y_test)
    likelihood = np.maximum(probabilities[np.arange(len(codes)), codes], MIN_PROBABILITY)
    wrong = probabilities.argmax(axis=1) != codes
    return dict(zip(MEASURES, (float(-np.log(likelihood).mean()), float(wrong.mean())), strict=True))


def _score_run(run: FoldFits, folds: Sequence[Fold], classes: NDArray[Any], rows: TrainTestRows) -> Scores:
    """Return the test scores of a run: the mean over the models of all folds."""
    pairs = zip(folds, run.params, strict=True)
    scores = [_score(np.exp(predicted(fold.data, params, rows.x_test)), classes, rows) for fold, params in pairs]
    return {name: float(np.mean([values[name] for values in scores])) for name in MEASURES}
