"""Proximal gradient steps: the same minimum as another solver; and a run that learns as it goes."""

import numpy as np
import pytest

from tests.sklearn.problems import NO_WEIGHTS, make_problem
from tests.sklearn.test_search import TERMS, each, folds
from tuneloss.hinges import PiecewiseLinear, bins_of
from tuneloss.sklearn.fitting import fit
from tuneloss.sklearn.fold_fits import SearchOptions, best_of
from tuneloss.sklearn.online import Loss, online_search, proximal_steps, repeated
from tuneloss.sklearn.softmax import conditioner, mixed_targets, smooth_loss


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_knot_at_zero_is_l1(n_classes):
    data = make_problem(n_classes)
    weights = NO_WEIGHTS | {"l2": 0.5}
    exact = fit(data, weights | {"l1": 3.0}, data.zeros(), tol=1e-8, max_iter=9000)
    absolute = PiecewiseLinear(np.zeros(1), np.full(1, 3.0), np.full(1, 3.0))
    found, _ = proximal_steps(data, Loss(weights, absolute), data.zeros(), 3000)
    np.testing.assert_allclose(found[:, :-1], exact.params[:, :-1], atol=1e-4)
    assert ((found == 0) == (exact.params == 0)).all()


def test_each_loss_of_a_run_is_what_its_weights_say():
    """Weights >= 0, and a convex regularizer; validation error falls from its start."""
    found = online_search(folds(), SearchOptions(TERMS, 15, 1e-5, 1000), each)
    runs, losses = found.runs, found.losses
    assert len(runs) == len(losses)
    assert best_of(runs).error < runs[0].error
    for loss in losses:
        assert all(weight >= 0 for weight in loss.weights.values())
        assert (np.diff(loss.regularizer.slopes) >= 0).all()


def test_terms_that_were_not_asked_for_stay_away():
    found = online_search(folds(), SearchOptions(("l2",), 15, 1e-5, 1000), each)
    for loss in found.losses:
        assert loss.weights["uniform"] == loss.weights["dropout"] == 0
        assert not loss.regularizer.right.any()


def test_the_same_run_on_the_same_data_gives_the_same_model():
    fold, options = folds()[0], SearchOptions(TERMS, 15, 1e-5, 1000)
    found = online_search([fold], options, each)
    runs, losses = found.runs, found.losses
    for epoch in (0, 1, len(runs) - 1):
        again = repeated(fold.data, losses[: epoch + 1], fold.data.zeros(), options)
        np.testing.assert_array_equal(again.params, runs[epoch].fits[0].params)
    assert again.weights == losses[-1].weights


def test_each_step_sets_the_weights_of_the_next_epoch():
    """One record per epoch, from 0: what it was trained with is what the step before said. The last learns nothing."""
    seen = []
    options = SearchOptions(TERMS, 15, 1e-5, 1000, lambda run, folds: seen.append(run.mean_error))
    found = online_search(folds(), options, each)
    steps, p = found.steps, len(found.losses[0].regularizer.knots)
    assert [record.step for record in steps] == list(range(len(found.runs)))
    assert seen == pytest.approx([record.error for record in steps])
    assert [run.mean_error for run in found.runs] == pytest.approx(seen)
    for record, after, loss in zip(steps, steps[1:], found.losses[1:], strict=False):
        assert after.weights == pytest.approx(record.learned_step().next_weights(record.weights))
        hinges = [after.weights[name] for name in found.box.names[: 2 * p]]
        np.testing.assert_array_equal(hinges, np.append(loss.regularizer.right, loss.regularizer.left))
        found.box.as_array(after.weights)
    assert steps[0].kept == 0
    assert steps[0].cosine_after > steps[0].cosine_before
    assert steps[-1].learned is None


def test_an_observation_has_the_value_and_the_gradient_of_the_loss():
    """Of the whole loss of an epoch: the sum of weighted terms, and its squared gradient in the metric of the steps."""
    fold = folds()[0]
    found = online_search([fold], SearchOptions(TERMS, 15, 1e-5, 1000), each)
    run, loss, weights = found.runs[2], found.losses[2], np.array(list(found.steps[2].weights.values()))
    data = fold.data.with_dropout(found.runs[0].fits[0].params)
    params = run.fits[0].params
    value, gradient = smooth_loss(data, loss.weights, mixed_targets(data, loss.weights), params)
    value += loss.regularizer(params[:, :-1]).sum()
    bins = bins_of(params[:, :-1], loss.regularizer.knots).reshape(gradient[:, :-1].shape)
    gradient[:, :-1] += loss.regularizer.bin_slopes[bins]
    observation = run.observations[0]
    assert weights @ observation.features == pytest.approx(value)
    squares = gradient**2 / conditioner(data, loss.weights)
    assert weights @ observation.gram[:-1, :-1] @ weights == pytest.approx(squares.sum())
    assert found.steps[2].error == pytest.approx(observation.error / fold.targets.sum())  # a mean
