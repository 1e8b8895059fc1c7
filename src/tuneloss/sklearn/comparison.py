"""Compare classifiers on the same rows: no inputs, no regularizer, the best of an L2 path, and learned weights."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.utils.class_weight import compute_sample_weight

from tuneloss.data import Dataset
from tuneloss.data.dataset import check_dataset
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.estimator import REGULARIZERS, TunedLogisticRegression, check_parameters
from tuneloss.sklearn.fold_fits import Fold, FoldFits
from tuneloss.sklearn.online import EPOCHS
from tuneloss.sklearn.preparation import Preparation, learn_preparation
from tuneloss.sklearn.scores import ERROR, LOG_LOSS, Interval, Scores, all_scores, bootstrap, class_scores, mean_scores
from tuneloss.sklearn.softmax import predicted
from tuneloss.types import Array

MAJORITY = "majority class"  # the model without inputs: the most frequent class, and the frequencies of all classes
PLAIN, L2_PATH, TUNED = "no regularizer", "L2 path (LogisticRegressionCV)", "tuned"  # the other models, by name
MEASURES = (LOG_LOSS, ERROR)  # what each run of the search is tested for, too
MAX_FOLDS = 5  # folds of the L2 path; fewer if a class has fewer rows
N_STEPS = {  # steps of progress by strategy: two models, then the runs or epochs of the third
    "runs": 2 + TunedLogisticRegression().max_runs,
    "online": 2 + 1 + EPOCHS,  # epoch 0 counts, too
}

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
    """Four fitted models and their test scores.

    Parameters
    ----------
    tuned : TunedLogisticRegression
        The model with learned weights.
    run_scores : list of dict
        The test scores of each run of its search, or of each epoch: means over the models of all folds.
    scores : dict of dict
        The test scores of each model by its name, and the seconds that its fit took: log loss, error, calibration error
        and, for two classes, the area under the ROC curve. The calibration error compares the probability of the
        predicted class with the fraction of right predictions, in 10 groups of rows of equal size. It is the mean
        absolute difference. With few test rows it is above 0 by chance.
    classes : dict of dict
        By class: its number of test rows, and recall and precision of the tuned model.
    intervals : dict
        95% bootstrap intervals of log loss, error and ROC AUC: ``{model: {measure: (low, high)}}``.
    differences : dict
        95% bootstrap intervals of the tuned model's log loss minus that of each other model, on the same rows.
    is_balanced : bool
        Whether every class counted the same, in training and in all scores.
    """

    tuned: TunedLogisticRegression
    run_scores: list[Scores]
    scores: dict[str, Scores]
    classes: dict[str, Scores] = field(default_factory=dict)
    intervals: dict[str, dict[str, Interval]] = field(default_factory=dict)
    differences: dict[str, Interval] = field(default_factory=dict)
    is_balanced: bool = False


def compare_models(
    rows: TrainTestRows,
    seed: int = 0,
    on_progress: Progress | None = None,
    *,
    terms: Sequence[str] = REGULARIZERS,
    cv: Any = None,
    class_weight: str | None = None,
    strategy: Literal["runs", "online"] = "runs",
) -> ModelComparison:
    """Fit a model without a regularizer, one with the best L2 weight of a path, and one with learned weights.

    A model without inputs, which predicts how frequent the classes are, is the baseline.

    Parameters
    ----------
    rows : TrainTestRows
        What `hold_out` returns.
    seed : int, default 0
        Decides which rows validate the learned weights, and the bootstrap samples.
    on_progress : callable, optional
        Called as ``on_progress(done, note)``, where `done` counts steps from 0 to 17: two models, then up to 15 runs of
        the third. With "online" it counts to 43, since there are up to 41 epochs.
    terms : sequence of str, default ("l1", "l2", "uniform", "dropout")
        The regularizers that may get a weight, as in `TunedLogisticRegression`.
    cv : int, splitter or iterable, optional
        How the learned weights are validated, as in `TunedLogisticRegression`.
    class_weight : {"balanced"}, optional
        If given, every class counts the same, however many rows it has: in the training of all models, in validation,
        and in the test scores.
    strategy : {"runs", "online"}, default "runs"
        How the weights are learned, as in `TunedLogisticRegression`.

    Raises
    ------
    InvalidInput
        If `terms`, `cv`, `class_weight` or `strategy` breaks a rule. No model is fitted then.
    """
    is_balanced = _read_class_weight(class_weight)
    balance = partial(compute_sample_weight, "balanced")
    weight, test_weight = (balance(rows.y), balance(rows.y_test)) if is_balanced else (None, None)
    tuned = TunedLogisticRegression(terms=terms, strategy=strategy, cv=cv, random_state=seed)
    check_parameters(tuned)
    run_scores = list[Scores]()
    advance = on_progress or (lambda done, note: None)
    n_folds = min(MAX_FOLDS, int(np.unique(rows.y, return_counts=True)[1].min()))
    classes, codes = np.unique(rows.y_test, return_inverse=True)
    rivals = {PLAIN: LogisticRegression(C=np.inf, max_iter=1000), L2_PATH: l2_cv(cv=n_folds)}
    fitted = {MAJORITY: _fit(DummyClassifier(strategy="prior").fit, rows, weight)}
    for i, (name, model) in enumerate(rivals.items()):
        advance(i, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model without a regularizer need not converge
            fitted[name] = _fit(model.fit, rows, weight)
    advance(len(rivals), TUNED)

    def on_run(run: FoldFits, folds: Sequence[Fold]) -> None:
        run_scores.append(_score_run(run, folds, rows.x_test, codes, test_weight))
        which = f"run {len(run_scores)}" if strategy == "runs" else f"epoch {len(run_scores) - 1}"
        note = f"{TUNED}: {which}, validation log loss {run.mean_error:.4f}"
        advance(len(rivals) + len(run_scores), note)

    fitted[TUNED] = _fit(partial(tuned._fit, on_run=on_run), rows, weight)
    advance(N_STEPS[strategy], "done")
    probabilities = {name: p for name, (p, _) in fitted.items()}
    scores = {name: all_scores(p, codes, test_weight) | {"seconds": seconds} for name, (p, seconds) in fitted.items()}
    samples = bootstrap(probabilities, codes, seed, test_weight)
    by_class = class_scores(probabilities[TUNED], codes, classes)
    return ModelComparison(tuned, run_scores, scores, by_class, samples.scores, samples.differences, is_balanced)


def _read_class_weight(class_weight: Any) -> bool:
    """Return whether classes are to be balanced; raise unless this is None or "balanced"."""
    if class_weight not in (None, "balanced"):
        raise InvalidInput(f'`class_weight` must be "balanced" or None; found {class_weight!r}.')
    return class_weight is not None


def l2_cv(**options: Any) -> LogisticRegressionCV:
    """Return a `LogisticRegressionCV` with L2 alone, chosen by log loss, for any supported scikit-learn."""
    if "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters:  # since 1.8
        options |= {"l1_ratios": (0,), "use_legacy_attributes": False}
    return LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000, **options)


def _fit(fit: Callable[..., Any], rows: TrainTestRows, weight: Array | None) -> tuple[Array, float]:
    """Return the probabilities that the fitted model predicts for the test rows, and the seconds that the fit took."""
    start = time.perf_counter()
    model = fit(rows.x, rows.y, sample_weight=weight)
    seconds = time.perf_counter() - start
    return model.predict_proba(rows.x_test), seconds


def _score_run(
    run: FoldFits, folds: Sequence[Fold], x_test: Array, codes: NDArray[np.intp], weight: Array | None
) -> Scores:
    """Return the test scores of a run: the mean over the models of all folds."""
    pairs = zip(folds, run.params, strict=True)
    scores = [mean_scores(np.exp(predicted(fold.data, params, x_test)), codes, weight) for fold, params in pairs]
    return {name: float(np.mean([values[name] for values in scores])) for name in MEASURES}
