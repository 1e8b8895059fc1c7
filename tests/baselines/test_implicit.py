"""The implicit derivative, against models that are trained again with other weights."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from tuneloss.baselines.implicit import implicit_derivative
from tuneloss.errors import InvalidInput, SolverError

RNG = np.random.default_rng(0)
X, VALIDATION_X = RNG.normal(size=(40, 6)), RNG.normal(size=(30, 6))
TRUTH = RNG.normal(size=6)
Y, VALIDATION_Y = (np.where(x @ TRUTH + RNG.logistic(size=len(x)) > 0, 1.0, -1.0) for x in (X, VALIDATION_X))
GROUPS = np.repeat(np.eye(2), 3, axis=1)  # the first weight is on params 0 to 2, the second on the others


def log_loss(params, x, y):
    """The sum of the logistic loss, and its gradient."""
    margins = y * (x @ params)
    return np.logaddexp(0, -margins).sum(), -x.T @ (y * expit(-margins))


def trained(weights):
    """The params that minimise the logistic loss with an L2 penalty per group."""

    def loss(params):
        value, gradient = log_loss(params, X, Y)
        return value + weights @ GROUPS @ params**2, gradient + 2 * weights @ GROUPS * params

    return minimize(loss, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-9}).x


@pytest.mark.parametrize("weights", [[0.1, 3.0], [1.0, 1.0], [20.0, 0.5]])
def test_it_agrees_with_models_that_are_trained_again(weights):
    """Against central differences of the validation error."""
    weights = np.array(weights)
    params = trained(weights)
    p = expit(X @ params)
    jacobian = (2 * GROUPS * params).T
    derivative = implicit_derivative(
        lambda v: X.T @ (p * (1 - p) * (X @ v)) + 2 * weights @ GROUPS * v,
        log_loss(params, VALIDATION_X, VALIDATION_Y)[1],
        jacobian,
        tolerance=1e-10,
    )
    steps = 1e-3 * np.diag(weights)
    errors = [[log_loss(trained(weights + s * h), VALIDATION_X, VALIDATION_Y)[0] for s in (1, -1)] for h in steps]
    slopes = [(up - down) / (2 * h.sum()) for (up, down), h in zip(errors, steps, strict=True)]
    np.testing.assert_allclose(derivative, slopes, rtol=1e-4)


def test_a_singular_hessian_will_do_if_the_gradient_is_in_its_range():
    hessian = np.diag([2.0, 0.0])
    derivative = implicit_derivative(lambda v: hessian @ v, np.array([4.0, 0.0]), np.array([[1.0], [5.0]]))
    np.testing.assert_allclose(derivative, [-2.0])


def test_what_cannot_be_solved_is_an_error():
    hessian = np.diag(np.logspace(0, 8, 50))
    with pytest.raises(SolverError, match=r"left a residual of .* after at most 3 products; a fraction of 0.001"):
        implicit_derivative(lambda v: hessian @ v, np.ones(50), np.ones((50, 1)), most_products=3)
    with pytest.raises(InvalidInput, match=r"`gradient` must have shape \(n,\) and `jacobian` \(n, k\); found"):
        implicit_derivative(lambda v: v, np.ones(3), np.ones((2, 1)))
