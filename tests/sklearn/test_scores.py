"""Scores of predicted probabilities agree with scikit-learn's, and intervals hold what they promise."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, precision_score, recall_score, roc_auc_score

from tuneloss.sklearn.scores import (
    AUC,
    CALIBRATION,
    ERROR,
    LOG_LOSS,
    _area,
    _ranks,
    all_scores,
    bootstrap,
    calibration_error,
    class_scores,
)


def draw(n, n_classes, seed=0):
    """Draw probabilities, and labels from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), size=n)
    return p, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_are_those_of_scikit_learn(n_classes):
    p, y = draw(300, n_classes)
    found, labels = all_scores(p, y), range(n_classes)
    assert found[LOG_LOSS] == pytest.approx(log_loss(y, p, labels=labels))
    assert found[ERROR] == pytest.approx(1 - accuracy_score(y, p.argmax(axis=1)))
    assert (AUC in found) == (n_classes == 2)
    if n_classes == 2:
        assert found[AUC] == pytest.approx(roc_auc_score(y, p[:, 1]))
    by_class = class_scores(p, y, np.array(list("abcde"))[:n_classes])
    expected = zip(
        recall_score(y, p.argmax(axis=1), average=None), precision_score(y, p.argmax(axis=1), average=None), strict=True
    )
    for (name, scores), (recall, precision) in zip(by_class.items(), expected, strict=True):
        assert scores == {"rows": (y == "abcde".index(name)).sum(), "recall": recall, "precision": precision}


def test_a_row_of_weight_2_counts_as_two_rows():
    """Also where the weight is not whole: twice all weights gives the same scores."""
    p, y = draw(300, 2)
    weight = np.random.default_rng(1).integers(1, 4, size=300)
    found, repeated = all_scores(p, y, weight), all_scores(np.repeat(p, weight, axis=0), np.repeat(y, weight))
    for measure in (LOG_LOSS, ERROR, AUC):
        assert found[measure] == pytest.approx(repeated[measure])
    assert all_scores(p, y, 0.3 * weight) == pytest.approx(found)
    sure = np.where(np.arange(300)[:, None] < 150, [[1.0, 0.0]], p)  # the first half is sure, and is given no weight
    assert calibration_error(sure, y, np.repeat([0.0, 1.0], 150)) < calibration_error(sure, y)
    intervals = [bootstrap({"model": p}, y, weight=w).scores["model"] for w in (weight, 0.3 * weight, None)]
    for measure in (LOG_LOSS, ERROR, AUC):
        assert intervals[0][measure] == pytest.approx(intervals[1][measure])
        assert intervals[0][measure] != pytest.approx(intervals[2][measure])


def test_a_class_that_is_never_predicted_has_precision_0_without_a_warning():
    p = np.tile([0.9, 0.1], (4, 1))
    assert class_scores(p, np.array([0, 0, 0, 1]), np.array(["a", "b"]))["b"] == {
        "rows": 1, "recall": 0.0, "precision": 0.0,
    }  # fmt: skip


def test_calibration_error_is_small_for_true_probabilities_and_large_for_sharpened_ones():
    p, y = draw(20_000, 3)
    sharp = p**4 / (p**4).sum(axis=1, keepdims=True)
    assert calibration_error(p, y) < 0.02
    assert calibration_error(sharp, y) == pytest.approx((sharp.max(axis=1) - p.max(axis=1)).mean(), abs=0.02)


def test_equal_probabilities_share_a_group_whatever_the_order_of_the_rows():
    """So a model that predicts the frequencies of the classes is calibrated."""
    y = np.repeat([0, 1], [70, 30])
    assert calibration_error(np.tile([0.7, 0.3], (100, 1)), y) == pytest.approx(0, abs=1e-12)


def test_the_area_of_a_sample_is_that_of_scikit_learn_with_its_counts_as_weights():
    rng = np.random.default_rng(0)
    score, y = rng.integers(8, size=60) / 8, rng.integers(2, size=60)
    counts = np.bincount(rng.integers(60, size=60), minlength=60)
    assert _area(_ranks(score), counts, y == 1) == pytest.approx(roc_auc_score(y, score, sample_weight=counts))
    assert np.isnan(_area(_ranks(score), counts * (y == 1), y == 1))


def test_intervals_of_log_loss_agree_with_the_normal_ones():
    """Also for the difference of two models on the same rows, which is surer than each of them."""
    p, y = draw(2000, 2)
    near = 0.9 * p + 0.05
    found = bootstrap({"near": near, "true": p}, y)
    losses = {"near": -np.log(near[np.arange(2000), y]), "true": -np.log(p[np.arange(2000), y])}
    for name, values in losses.items():
        half = 1.96 * values.std() / 2000**0.5
        assert found.scores[name][LOG_LOSS] == pytest.approx((values.mean() - half, values.mean() + half), abs=half / 5)
    gap = losses["true"] - losses["near"]
    half = 1.96 * gap.std() / 2000**0.5
    assert found.differences == {"near": pytest.approx((gap.mean() - half, gap.mean() + half), abs=half / 5)}
    low, high = found.scores["true"][AUC]
    assert low < roc_auc_score(y, p[:, 1]) < high
    assert CALIBRATION not in found.scores["true"]


def test_one_row_of_a_class_still_has_an_interval():
    """A third of the samples lack that row, and have no area."""
    p, y = draw(20, 2)[0], np.repeat([0, 1], [19, 1])
    assert all(np.isfinite(interval).all() for interval in bootstrap({"a": p}, y).scores["a"].values())
