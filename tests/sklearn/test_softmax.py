"""The terms of softmax regression, against finite differences, other code, and each other."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from tests.sklearn.problems import NO_WEIGHTS, make_problem, some_params
from tuneloss.paper import terms as paper
from tuneloss.sklearn.softmax import (
    NAMES,
    Hessian,
    make_data,
    mixed_targets,
    predicted,
    smooth_loss,
    smooth_value,
    terms,
)


def with_dropout(data):
    return data.with_dropout(some_params(data, seed=5))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradients_are_slopes(n_classes, intercept):
    """Of every term, by central differences."""
    data = with_dropout(make_problem(n_classes, intercept=intercept))
    params, direction = some_params(data), some_params(data, seed=1)
    above, below = (terms(data, params + h * direction)[0] for h in (1e-6, -1e-6))
    _, slopes = terms(data, params)
    for name, up, down, slope in zip(NAMES, above, below, slopes, strict=True):
        assert (up - down) / 2e-6 == pytest.approx(np.vdot(slope, direction), rel=1e-6), name


def test_terms_are_those_of_the_papers_code():
    """L1, L2, uniform labels and log loss, where inputs are not centred and examples count 1."""
    data = make_problem()
    data = make_data(data.x, data.y, np.ones(len(data.y)), 3)
    params = some_params(data)
    theirs = np.vstack([params[:, :-1].T, params[:, -1] - params[:, :-1] @ data.mean])
    hot = paper.one_hot(data.y, 3)
    values = dict(zip(NAMES, terms(data, params)[0], strict=True))
    assert values["l1"] == pytest.approx(paper.l1(theirs)[0])
    assert values["l2"] == pytest.approx(paper.l2(theirs)[0])
    assert values["uniform"] == pytest.approx(paper.cross_entropy(theirs, data.x, np.full_like(hot, 1 / 3))[0])
    assert values["logloss"] == pytest.approx(paper.cross_entropy(theirs, data.x, hot)[0])


def test_two_classes_are_a_softmax_of_two():
    """One row of params against two, of which the first is 0."""
    data = make_problem(2)
    params = some_params(data)
    both = np.vstack([np.zeros_like(params), params])
    logits = (data.x - data.mean) @ both[:, :-1].T + both[:, -1]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(predicted(data, params)), expected)


def test_dropout_is_what_small_noise_adds_to_the_log_loss():
    """For two classes: with inputs times 1 + noise of variance v, v small, the mean log loss rises by v * dropout."""
    data = make_problem(2, n=10, d=3, intercept=False)
    params = 0.3 * some_params(data)
    term = terms(data.with_dropout(params), params)[0][NAMES.index("dropout")]
    rng = np.random.default_rng(0)
    size = 1e-2
    plain = terms(data, params)[0][-1]
    noise = rng.normal(size=(20_000, *data.x.shape)) * size
    logits = (data.x * (1 + noise)) @ params[0, :-1]
    logits = np.concatenate([logits, (data.x * (1 - noise)) @ params[0, :-1]])  # pairs: the first order cancels
    losses = np.logaddexp(0, logits) - logits * data.y
    assert (losses @ data.sample_weight).mean() - plain == pytest.approx(size**2 * term, rel=0.02)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_hessian_is_the_slope_of_the_gradient(n_classes):
    data = with_dropout(make_problem(n_classes))
    weights = NO_WEIGHTS | {"l2": 0.3, "uniform": 0.2, "dropout": 0.4}
    targets = mixed_targets(data, weights)
    params, direction = some_params(data), some_params(data, seed=1)
    up, down = (smooth_loss(data, weights, targets, params + h * direction)[1] for h in (1e-5, -1e-5))
    free = np.ones(params.shape, dtype=bool)
    found = Hessian(data, weights, params, free)(np.stack([direction, 2 * direction]))
    np.testing.assert_allclose(found[0], (up - down) / 2e-5, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], 2 * found[0])
    free[0, 0] = False
    held = Hessian(data, weights, params, free)(direction[None])[0]
    np.testing.assert_allclose(held[~free], 0)


def test_the_loss_is_the_weighted_sum_of_its_terms():
    data = with_dropout(make_problem())
    weights = {"l1": 0.0, "l2": 0.3, "uniform": 0.2, "dropout": 0.4, "logloss": 1.0}
    targets, params = mixed_targets(data, weights), some_params(data)
    values, slopes = terms(data, params)
    loss, gradient = smooth_loss(data, weights, targets, params)
    assert loss == pytest.approx(sum(weights[n] * v for n, v in zip(NAMES, values, strict=True)))
    assert loss == pytest.approx(smooth_value(data, weights, targets, params))
    np.testing.assert_allclose(gradient, sum(weights[n] * s for n, s in zip(NAMES, slopes, strict=True)))


def test_sparse_inputs_give_the_same():
    data = with_dropout(make_problem())
    thin = make_data(sparse.csr_array(data.x), data.y, data.sample_weight, 3)
    thin = thin.with_dropout(some_params(data, seed=5))
    params = some_params(data)
    for ours, theirs in zip(terms(data, params)[1], terms(thin, params)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    np.testing.assert_allclose(data.second, thin.second)


def test_an_example_of_weight_two_is_that_example_twice():
    data = make_problem()
    twice = make_data(np.repeat(data.x, 2, axis=0), np.repeat(data.y, 2), np.repeat(data.sample_weight / 2, 2), 3)
    params = some_params(data)
    np.testing.assert_allclose(terms(data, params)[0], terms(twice, params)[0])
    assert dataclasses.replace(twice).total == pytest.approx(data.total)
