"""How good predicted probabilities are on rows that were held out: scores, scores per class, bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from tuneloss.types import Array

LOG_LOSS, ERROR, AUC, CALIBRATION = "test log loss", "test error", "test ROC AUC", "test calibration error"
MIN_PROBABILITY = float(np.finfo(float).eps)  # lower probabilities count as this in the log loss, as in scikit-learn
CALIBRATION_GROUPS = 10  # groups of rows in which confidence and accuracy are compared
LEVEL = 95  # percent of the bootstrap samples that an interval holds
MAX_SAMPLES, MIN_SAMPLES = 1000, 200  # bootstrap samples of an interval
MAX_DRAWS = 10**8  # rows drawn in all samples together, above which fewer samples are drawn

Codes = NDArray[np.intp]  # (M,), the position of each label among the classes
Scores = dict[str, float]  # by measure
Interval = tuple[float, float]


def row_losses(probabilities: Array, codes: Codes) -> Array:
    """Return the log loss of each row."""
    likelihood = probabilities[np.arange(len(codes)), codes]
    return np.asarray(-np.log(np.maximum(likelihood, MIN_PROBABILITY)))


def row_errors(probabilities: Array, codes: Codes) -> Array:
    """Return 1 for each row whose most probable class is not its label, and 0 for the others."""
    return np.asarray(probabilities.argmax(axis=1) != codes, dtype=np.float64)


def mean_scores(probabilities: Array, codes: Codes, weight: Array | None = None) -> Scores:
    """Return the log loss and the error: means over rows, of which each counts `weight` times."""
    return {
        LOG_LOSS: float(np.average(row_losses(probabilities, codes), weights=weight)),
        ERROR: float(np.average(row_errors(probabilities, codes), weights=weight)),
    }


def all_scores(probabilities: Array, codes: Codes, weight: Array | None = None) -> Scores:
    """Return log loss, error, calibration error and, for two classes, the area under the ROC curve."""
    scores = mean_scores(probabilities, codes, weight)
    if probabilities.shape[1] == 2:
        scores[AUC] = float(roc_auc_score(codes, probabilities[:, 1], sample_weight=weight))
    return scores | {CALIBRATION: calibration_error(probabilities, codes, weight)}


def calibration_error(probabilities: Array, codes: Codes, weight: Array | None = None) -> float:
    """Return the expected calibration error of the predicted classes.

    Rows are split into 10 groups of about equal size by the probability of the predicted class; rows of equal
    probability are in the same group. In each group, the mean of that probability is compared with the fraction of
    right predictions. The result is the mean absolute difference over all rows.
    """
    confidence = probabilities.max(axis=1)
    edges = np.quantile(confidence, np.arange(1, CALIBRATION_GROUPS) / CALIBRATION_GROUPS)
    surplus = confidence - 1 + row_errors(probabilities, codes)
    counts = np.ones(len(codes)) if weight is None else weight
    sums = np.bincount(np.searchsorted(edges, confidence), weights=counts * surplus)
    return float(np.abs(sums).sum() / counts.sum())


def class_scores(probabilities: Array, codes: Codes, classes: NDArray[Any]) -> dict[str, Scores]:
    """Return, by class, the number of rows, the recall, and the precision (0 if the class is never predicted)."""
    labels = np.arange(len(classes))
    precision, recall, _, rows = precision_recall_fscore_support(
        codes, probabilities.argmax(axis=1), labels=labels, zero_division=0
    )
    return {
        str(name): {"rows": int(rows[i]), "recall": float(recall[i]), "precision": float(precision[i])}
        for i, name in enumerate(classes)
    }


@dataclass(frozen=True)
class Bootstrap:
    """95% intervals over samples of the test rows, which are drawn with replacement.

    Parameters
    ----------
    scores : dict
        The interval of each measure of each model: ``{model: {measure: (low, high)}}``. The calibration error has none.
    differences : dict
        The interval of the last model's log loss minus that of each other model, on the same rows:
        ``{model: (low, high)}``.
    """

    scores: dict[str, dict[str, Interval]]
    differences: dict[str, Interval]


def bootstrap(
    probabilities: Mapping[str, Array], codes: Codes, seed: int = 0, weight: Array | None = None
) -> Bootstrap:
    """Draw samples of the test rows, the same ones for all models, and compute intervals.

    Parameters
    ----------
    probabilities : mapping of str to (M, C) array
        The probabilities that each model predicts.
    codes : (M,) array of int
        The position of each label among the classes.
    seed : int, default 0
        Decides the samples.
    weight : (M,) array, optional
        How often each row counts; once by default.
    """
    once = np.ones(len(codes)) if weight is None else weight
    rng, n, names = np.random.default_rng(seed), len(codes), list(probabilities)
    values = np.column_stack([f(p, codes) for f in (row_losses, row_errors) for p in probabilities.values()])
    is_binary = all(p.shape[1] == 2 for p in probabilities.values())
    ranks = [_ranks(p[:, 1]) for p in probabilities.values()] if is_binary else []
    n_samples = min(MAX_SAMPLES, max(MIN_SAMPLES, MAX_DRAWS // n))
    means, areas = np.empty((n_samples, values.shape[1])), np.empty((n_samples, len(ranks)))
    for i in range(n_samples):
        counts = np.bincount(rng.integers(n, size=n), minlength=n) * once
        means[i] = counts @ values / counts.sum()
        areas[i] = [_area(rank, counts, codes == 1) for rank in ranks]
    losses, errors = means[:, : len(names)], means[:, len(names) :]
    measures = {LOG_LOSS: losses, ERROR: errors} | ({AUC: areas} if is_binary else {})
    scores = {name: {m: _interval(samples[:, j]) for m, samples in measures.items()} for j, name in enumerate(names)}
    differences = {name: _interval(losses[:, -1] - losses[:, j]) for j, name in enumerate(names[:-1])}
    return Bootstrap(scores, differences)


def _interval(samples: Array) -> Interval:
    """Return the middle 95% of the samples, without those that are NaN."""
    tail = (100 - LEVEL) / 2
    low, high = np.nanpercentile(samples, [tail, 100 - tail])
    return float(low), float(high)


def _ranks(values: Array) -> NDArray[np.intp]:
    """Return the rank of each value; equal values have the same rank."""
    return np.asarray(np.unique(values, return_inverse=True)[1]).ravel()


def _area(rank: NDArray[np.intp], counts: Array, positive: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve of rows that count several times; NaN if they have one class only.

    It equals `roc_auc_score` with the counts as sample weights, and takes no sorting.
    """
    above = np.bincount(rank, weights=counts * positive)
    below = np.bincount(rank, weights=counts * ~positive)
    n_pairs = above.sum() * below.sum()
    return float(above @ (np.cumsum(below) - below / 2) / n_pairs) if n_pairs else float("nan")
