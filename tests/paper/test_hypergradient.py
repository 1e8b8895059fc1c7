"""Hypergradients of softmax regression, against finite differences on a problem that is solved to the end."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tuneloss.paper import hypergradient as room
from tuneloss.paper.datasets import Split
from tuneloss.paper.hypergradient import Curvature, hypergradient, support
from tuneloss.paper.terms import NAMES, cross_entropy, draw_masks, one_hot, training_terms

WEIGHTS = {"l1": 0.0, "l2": 0.3, "uniform": 0.05, "dropout": 0.4, "logloss": 1.0}
SPARSE = WEIGHTS | {"l1": 4.0}


def small_split():
    """Three classes, five inputs, of which two matter."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(110, 5))
    truth = np.zeros((5, 3))
    truth[:2] = rng.normal(size=(2, 3))
    y = (x @ truth + rng.gumbel(size=(110, 3))).argmax(axis=1)
    return Split("small", 3, x[:60], y[:60], x[60:90], y[60:90], x[90:], y[90:])


SPLIT = small_split()
MASKS = draw_masks(SPLIT, np.random.default_rng(1), draws=2)


def loss(params, weights):
    """The loss of params and its gradient, both without L1."""
    values, jacobian = training_terms(params, SPLIT, MASKS)
    smooth = np.array([0.0 if name == "l1" else weights[name] for name in NAMES])
    return values @ smooth, (jacobian @ smooth).reshape(params.shape)


def trained(weights):
    """The minimum of the loss: params are differences of two parts that are at least 0, so that L1 is linear."""
    shape, n = SPLIT.params_shape, np.prod(SPLIT.params_shape)
    l1 = np.full(shape, weights["l1"])
    l1[-1] = 0.0

    def split_loss(parts):
        value, gradient = loss((parts[:n] - parts[n:]).reshape(shape), weights)
        slopes = [(l1 + gradient).ravel(), (l1 - gradient).ravel()]
        return value + l1.ravel() @ (parts[:n] + parts[n:]), np.concatenate(slopes)

    options = {"maxiter": 20000, "maxfun": 100000, "ftol": 1e-16, "gtol": 1e-9}
    bounds = [(0, None)] * (2 * n)
    parts = minimize(split_loss, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return (parts[:n] - parts[n:]).reshape(shape)


def validation_loss(weights):
    targets = one_hot(SPLIT.validation_y, SPLIT.n_classes)
    return cross_entropy(trained(weights), SPLIT.validation_x, targets)[0]


def test_products_and_the_diagonal_are_those_of_the_hessian():
    """Against central differences of the gradient, in every direction."""
    params = np.random.default_rng(2).normal(size=SPLIT.params_shape)
    curvature = Curvature(params, SPLIT, MASKS, SPARSE)
    for i, direction in enumerate(np.eye(params.size).reshape(-1, *params.shape)):
        step = 1e-5 * direction
        expected = (loss(params + step, SPARSE)[1] - loss(params - step, SPARSE)[1]) / 2e-5
        np.testing.assert_allclose(curvature.product(direction), expected, atol=1e-4)
        assert curvature.diagonal().flat[i] == pytest.approx(expected.flat[i], rel=1e-4)


@pytest.mark.parametrize("weights", [WEIGHTS, SPARSE], ids=["smooth", "with L1"])
def test_it_agrees_with_models_that_are_trained_again(weights, monkeypatch):
    """Against central differences of the validation log loss, for each weight above 0."""
    monkeypatch.setattr(room, "TOLERANCE", 1e-5)
    derivative = dict(zip(NAMES, hypergradient(trained(weights), SPLIT, MASKS, weights), strict=True))
    for name in (name for name in NAMES if weights[name] > 0):
        up, down = (validation_loss(weights | {name: factor * weights[name]}) for factor in (1.01, 0.99))
        assert derivative[name] == pytest.approx((up - down) / (0.02 * weights[name]), rel=0.02, abs=1e-3)


def test_the_support_is_that_of_the_minimum_also_near_it():
    """AdaGrad leaves small numbers where the minimum has zeros. The bias is always kept."""
    params = trained(SPARSE)
    kept = np.abs(params) > 1e-6
    kept[-1] = True
    assert 0 < kept[:-1].mean() < 1
    near = params + 1e-3 * np.random.default_rng(3).normal(size=params.shape)
    for at in (params, near):
        values = np.array([SPARSE[name] for name in NAMES])
        slopes = (training_terms(at, SPLIT, MASKS)[1] @ values).reshape(at.shape)
        diagonal = Curvature(at, SPLIT, MASKS, SPARSE).diagonal()
        np.testing.assert_array_equal(support(at, slopes, SPARSE["l1"], diagonal), kept)
