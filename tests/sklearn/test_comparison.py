"""Rows that are held out, and four models on the same rows."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from tuneloss.data import Dataset
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.comparison import MEASURES, N_STEPS, compare_models, hold_out, l2_cv


@pytest.mark.filterwarnings("ignore:scipy.optimize:DeprecationWarning")  # of an old scikit-learn with a new SciPy
def test_the_l2_path_is_l2_alone_without_a_warning():
    """It is the model with that one penalty at the strength that was chosen, which is none of the extremes."""
    x, y = load_iris(return_X_y=True)
    found = l2_cv(cv=3, tol=1e-8).fit(x, y)
    strength = float(np.ravel(found.C_)[0])
    assert 1e-4 < strength < 1e4
    alone = LogisticRegression(C=strength, tol=1e-8, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(found.predict_proba(x), alone.predict_proba(x), atol=1e-4)


@pytest.mark.parametrize("values", [(1e200, 1e308), (-1e308, 1e308), (1e153, -1e154), (0.0, 1e155)])
def test_inputs_whose_squares_are_not_numbers_are_refused_without_a_warning(values):
    y = np.repeat([0, 1], 20)
    x = np.tile(values, 20)[:, None]
    for seed in range(5):
        with pytest.raises(InvalidInput, match="finite squares; some has values that are too large"):
            hold_out(Dataset("some", ("a",), x, y), 0.25, seed)


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("counts", [(3, 97), (3, 50, 47), (50, 47, 3)])
def test_rare_classes_are_on_both_sides_whatever_the_fraction(counts, fraction):
    """Of each class at least two rows train and one tests, and all rows are used once."""
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.random.default_rng(0).normal(size=(len(y), 2))
    rows = hold_out(Dataset("some", ("a", "b"), x, y), fraction, seed=0)
    assert (np.bincount(rows.y, minlength=len(counts)) >= 2).all()
    assert (np.bincount(rows.y_test, minlength=len(counts)) >= 1).all()
    assert len(rows.y) + len(rows.y_test) == len(y)
    assert len(rows.y_test) == pytest.approx(fraction * len(y), abs=4)
    np.testing.assert_allclose(np.vstack([rows.x, rows.x_test]).std(axis=0) * rows.preparation.scale, x.std(axis=0))


def test_a_huge_value_in_a_test_row_alone_is_refused():
    """The rows to train are all alike, so that it is not scaled down."""
    x, y = np.zeros((40, 1)), np.repeat([0, 1], 20)
    for row in range(40):
        x[row] = 1e200
        with pytest.raises(InvalidInput, match="too large"):
            hold_out(Dataset("some", ("a",), x, y), 0.25, seed=0)
        x[row] = 0


def test_the_models_are_compared_without_a_word(capfd):
    """Progress goes to the callback, up to the last step; each run of the tuned model has its scores."""
    iris = load_iris()
    steps = []
    rows = hold_out(Dataset("iris", tuple("abcd"), iris.data, iris.target_names[iris.target]))
    comparison = compare_models(rows, on_progress=lambda done, note: steps.append((done, note)))
    assert [done for done, _ in steps] == [0, 1, 2, *range(3, 3 + len(comparison.run_scores)), N_STEPS["runs"]]
    assert steps[3][1].startswith("tuned: run 1, validation log loss 0.")
    assert len(comparison.run_scores) == len(comparison.tuned.history_)
    losses = [scores["test log loss"] for scores in comparison.scores.values()]
    assert max(losses[2:]) < 0.5 < losses[1]  # without a regularizer it is too sure of itself
    p = comparison.tuned.predict_proba(rows.x_test)
    expected = log_loss(rows.y_test, p), float((comparison.tuned.predict(rows.x_test) != rows.y_test).mean())
    assert [comparison.scores["tuned"][measure] for measure in MEASURES] == pytest.approx(expected)
    assert "".join(capfd.readouterr()) == ""


def test_balanced_classes_count_the_same_whatever_their_sizes():
    """A tenth of the rows is of one class: all models are trained and scored as if there were as many of it."""
    rng = np.random.default_rng(0)
    y = np.repeat(["common", "rare"], [360, 40])
    x = rng.normal(size=(400, 2)) + 1.5 * (y == "rare")[:, None]
    rows = hold_out(Dataset("some", ("a", "b"), x, y))
    plain, balanced = compare_models(rows), compare_models(rows, class_weight="balanced")
    assert (plain.is_balanced, balanced.is_balanced) == (False, True)
    majority = balanced.scores["majority class"]
    assert (majority["test log loss"], majority["test error"]) == pytest.approx((np.log(2), 0.5))
    assert balanced.classes["rare"]["recall"] > plain.classes["rare"]["recall"] + 0.1
    recall = np.mean([scores["recall"] for scores in balanced.classes.values()])
    assert balanced.scores["tuned"]["test error"] == pytest.approx(1 - recall)
    assert balanced.intervals["tuned"]["test error"][0] < 1 - recall < balanced.intervals["tuned"]["test error"][1]
    with pytest.raises(InvalidInput, match=r"`class_weight` must be \"balanced\" or None; found 'even'"):
        compare_models(rows, class_weight="even")


def test_an_online_run_counts_its_epochs_from_0():
    """Each epoch has its scores and its step of progress; there are never more than were announced."""
    iris, steps = load_iris(), []
    rows = hold_out(Dataset("iris", tuple("abcd"), iris.data, iris.target))
    options = {"strategy": "online", "cv": 2}
    comparison = compare_models(rows, on_progress=lambda done, note: steps.append((done, note)), **options)
    n = len(comparison.tuned.history_)
    assert len(comparison.run_scores) == len(comparison.tuned.steps_) == n > 5
    assert [done for done, _ in steps] == [0, 1, 2, *range(3, 3 + n), N_STEPS["online"]]
    assert 2 + n <= N_STEPS["online"]
    assert steps[3][1].startswith("tuned: epoch 0, validation log loss ")
    with pytest.raises(InvalidInput, match=r'`strategy` must be "runs" or "online"; found \'both\''):
        compare_models(rows, strategy="both")


def test_labels_are_needed():
    with pytest.raises(InvalidInput, match=r"needs labels; some has none. Name their column with `target`"):
        hold_out(Dataset("some", ("a",), np.ones((9, 1))))
