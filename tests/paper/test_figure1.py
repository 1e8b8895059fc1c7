"""The numbers under figure 1: what section 2 of the paper says of the three losses."""

import numpy as np
import pytest

from tuneloss.paper.figure1 import KNOTS, TRAINED, draw_figure1, error_at, fit_losses, slope_at


@pytest.fixture(scope="module")
def info():
    return fit_losses()


def value(loss, theta):
    return np.polyval(loss.coefficients, theta)


def test_the_least_squares_fit_has_a_worse_argmin_than_the_best_model(info):
    """(a) predicts error best, yet minimising it loses against what was already trained."""
    assert info.losses[0].error > info.best_error + 0.05


def test_the_least_squares_fit_predicts_error_better_than_the_others(info):
    """(a) has the smallest sum of squares over the trained models: prediction alone is not the aim."""
    squares = [np.sum((value(loss, info.trained) - info.errors) ** 2) for loss in info.losses]
    assert squares[0] == min(squares)


def test_the_distance_loss_gives_back_the_best_model(info):
    """(b) is minimised by a model that is already there."""
    assert info.losses[1].argmin == pytest.approx(info.best)
    assert info.losses[1].error == pytest.approx(info.best_error)


def test_the_learned_loss_beats_every_trained_model(info):
    """(c) leads to a new model of lower error than any in Theta_0."""
    assert info.losses[2].error < info.errors.min() - 0.05


def test_the_learned_loss_selects_the_best_model_among_those_trained(info):
    """(c) has the argmin of error over Theta_0 (Theorem 3), and is convex."""
    losses = value(info.losses[2], info.trained)
    assert info.trained[np.argmin(losses)] == info.best
    assert info.losses[2].coefficients[0] > 0


def test_the_learned_loss_follows_the_slope_of_error_at_the_best_model(info):
    """(c) slopes the same way as error at theta_0*, unlike (b), which is flat there."""
    a, b, _ = info.losses[2].coefficients
    learned, true = 2 * a * info.best + b, slope_at(np.array(info.best))
    assert 0 < learned < 2 * true


def test_the_learned_loss_depends_on_the_models_given(info):
    """Nothing is fixed beforehand: moving one trained model moves the learned loss."""
    moved = TRAINED.copy()
    moved[1] -= 0.3
    assert fit_losses(moved).losses[2].argmin != pytest.approx(info.losses[2].argmin, abs=1e-3)


def test_the_slope_is_the_derivative_of_the_error():
    """Central differences off the knots agree with `slope_at`."""
    theta = np.linspace(KNOTS[0, 0], KNOTS[-1, 0], 42)[1:-1]
    numeric = (error_at(theta + 1e-6) - error_at(theta - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope_at(theta), numeric, atol=1e-6)


def test_the_drawing_marks_the_error_at_each_argmin(info):
    """Each diamond lies on the error curve at its loss's argmin."""
    axes = draw_figure1(info).axes[0]
    marks = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "D" and len(line.get_xydata())]
    np.testing.assert_allclose(marks, [(loss.argmin, loss.error) for loss in info.losses])
