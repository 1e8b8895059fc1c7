"""The five terms: gradients by finite differences, limit cases, and the dropout term's mean."""

import dataclasses

import numpy as np
import pytest
from sklearn.metrics import log_loss

from tuneloss.paper.datasets import Split
from tuneloss.paper.terms import (
    NAMES,
    cross_entropy,
    draw_masks,
    l1,
    l2,
    observe,
    observe_error,
    one_hot,
    training_terms,
)


def small_split(rng, n=7, d=4, classes=3) -> Split:
    x, y = rng.normal(size=(3, n, d)), rng.integers(classes, size=(3, n))
    return Split("small", classes, x[0], y[0], x[1], y[1], x[2], y[2])


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def problem(rng):
    split = small_split(rng)
    return rng.normal(size=split.params_shape), split, draw_masks(split, rng, draws=3)


def finite_differences(function, params, step=1e-6):
    """Central differences of a vector-valued function of params: (params.size, values)."""
    rows = []
    for i in np.ndindex(params.shape):
        shift = np.zeros_like(params)
        shift[i] = step
        rows.append((function(params + shift) - function(params - shift)) / (2 * step))
    return np.array(rows)


def test_jacobian_is_the_derivative_of_the_features(problem):
    """Each of the five columns agrees with central differences of its term."""
    params, split, masks = problem
    _, jacobian = training_terms(params, split, masks)
    numeric = finite_differences(lambda p: training_terms(p, split, masks)[0], params)
    np.testing.assert_allclose(jacobian, numeric, atol=1e-6)


def test_observation_holds_the_gradient_of_validation_log_loss(problem):
    """The gram of an observation is that of [jacobian, gradient], the gradient by central differences."""
    params, split, masks = problem
    observed = observe(params, split, masks)
    features, jacobian = training_terms(params, split, masks)
    targets = one_hot(split.validation_y, split.n_classes)
    gradient = finite_differences(lambda p: np.array([cross_entropy(p, split.validation_x, targets)[0]]), params)
    joint = np.column_stack([jacobian, gradient])
    np.testing.assert_allclose(observed.gram, joint.T @ joint, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(observed.features, features)


def test_error_is_the_sum_of_validation_log_losses(problem):
    """The error is scikit-learn's mean log loss times the number of validation examples."""
    params, split, masks = problem
    logits = split.validation_x @ params[:-1] + params[-1]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    mean = log_loss(split.validation_y, p, labels=range(split.n_classes))
    assert observe(params, split, masks).error == pytest.approx(mean * len(split.validation_y))
    assert observe_error(params, split).error == pytest.approx(mean * len(split.validation_y))


def test_the_bias_is_not_penalised(rng):
    """L1 and L2 and their gradients do not see the last row."""
    params = rng.normal(size=(5, 3))
    moved = params.copy()
    moved[-1] += 9
    for penalty in (l1, l2):
        assert penalty(params)[0] == penalty(moved)[0]
        assert (penalty(moved)[1][-1] == 0).all()


def test_terms_of_the_zero_model(problem):
    """At params = 0 both penalties are 0 and each of the other terms is N log C."""
    params, split, masks = problem
    features, _ = training_terms(np.zeros_like(params), split, masks)
    n_log_c = len(split.train_y) * np.log(split.n_classes)
    np.testing.assert_allclose(dict(zip(NAMES, features, strict=True))["l1"], 0)
    np.testing.assert_allclose(features, [0, 0, n_log_c, n_log_c, n_log_c])


def test_masks_that_keep_everything_give_the_log_loss_of_doubled_inputs(problem):
    """Without dropping, the dropout term is the log loss on inputs divided by the probability to be kept."""
    params, split, masks = problem
    features, jacobian = training_terms(params, split, np.ones_like(masks))
    doubled = dataclasses.replace(split, train_x=2 * split.train_x)
    expected, slopes = training_terms(params, doubled, masks)
    assert features[3] == pytest.approx(expected[4])
    np.testing.assert_allclose(jacobian[:, 3], slopes[:, 4])


def test_the_dropout_term_is_unbiased_over_masks(rng):
    """With many draws it approaches the mean over all 2^D equally likely masks of one example."""
    split = small_split(rng, n=1, d=3)
    params = rng.normal(size=split.params_shape)
    all_masks = np.array(list(np.ndindex(2, 2, 2)), dtype=bool)[:, None, :]
    exact = training_terms(params, split, all_masks)[0][3]
    drawn = training_terms(params, split, draw_masks(split, rng, draws=4000))[0][3]
    assert drawn == pytest.approx(exact, rel=0.05)


def test_examples_enter_as_sums(problem):
    """Repeating every training example doubles the terms on examples and leaves the penalties."""
    params, split, masks = problem
    doubled = dataclasses.replace(split, train_x=np.tile(split.train_x, (2, 1)), train_y=np.tile(split.train_y, 2))
    once = training_terms(params, split, masks)[0]
    twice = training_terms(params, doubled, np.tile(masks, (1, 2, 1)))[0]
    np.testing.assert_allclose(twice, once * [1, 1, 2, 2, 2])


def test_params_of_the_wrong_shape_are_refused(problem):
    """The message gives the shape wanted and the shape found."""
    params, split, masks = problem
    with pytest.raises(ValueError, match=r"`params` must have shape.*\(5, 3\).*found \(4, 3\)"):
        training_terms(params[:-1], split, masks)


def test_no_draws_are_refused(rng):
    """A mean over no masks is not defined."""
    with pytest.raises(ValueError, match=r"`draws` must be at least 1.*found 0"):
        draw_masks(small_split(rng), rng, draws=0)
