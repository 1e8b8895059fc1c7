"""Proximal gradient steps: the same minimum as another solver; and a run that learns as it goes."""

import numpy as np
import pytest

from tests.sklearn.problems import NO_WEIGHTS, make_problem
from tests.sklearn.test_search import TERMS, each, folds
from tuneloss.hinges import PiecewiseLinear
from tuneloss.sklearn.fitting import fit
from tuneloss.sklearn.fold_fits import SearchOptions, best_of
from tuneloss.sklearn.online import Loss, online_search, proximal_steps, repeated


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
    runs, losses = online_search(folds(), SearchOptions(TERMS, 15, 1e-5, 1000), each)
    assert len(runs) == len(losses)
    assert best_of(runs).error < runs[0].error
    for loss in losses:
        assert all(weight >= 0 for weight in loss.weights.values())
        assert (np.diff(loss.regularizer.slopes) >= 0).all()


def test_terms_that_were_not_asked_for_stay_away():
    _, losses = online_search(folds(), SearchOptions(("l2",), 15, 1e-5, 1000), each)
    for loss in losses:
        assert loss.weights["uniform"] == loss.weights["dropout"] == 0
        assert not loss.regularizer.right.any()


def test_the_same_run_on_the_same_data_gives_the_same_model():
    fold, options = folds()[0], SearchOptions(TERMS, 15, 1e-5, 1000)
    runs, losses = online_search([fold], options, each)
    for epoch in (0, 1, len(runs) - 1):
        again = repeated(fold.data, losses[: epoch + 1], fold.data.zeros(), options)
        np.testing.assert_array_equal(again.params, runs[epoch].fits[0].params)
    assert again.weights == losses[-1].weights
