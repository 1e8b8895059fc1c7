"""The observation of a fit: in the Hessian's metric, it holds the derivative of the error by the weights."""

import math

import numpy as np
import pytest

from tests.sklearn.problems import NO_WEIGHTS, make_problem, some_params
from tuneloss.sklearn.fitting import fit
from tuneloss.sklearn.observe import inverse_products, observe
from tuneloss.sklearn.softmax import NAMES, Hessian, conditioner, cross_entropy, make_data, terms

WEIGHTS = NO_WEIGHTS | {"l1": 0.2, "l2": 0.5, "uniform": 0.1, "dropout": 0.2}


def setting(seed: int = 0):
    """Training data, and validation inputs and targets of the same problem."""
    both = make_problem(n=160, seed=seed)
    data = make_data(both.x[:60], both.y[:60], both.sample_weight[:60], 3)
    return data.with_dropout(some_params(data, seed=5)), both.x[60:], both.targets()[60:]


def dense(hessian: Hessian, shape: tuple[int, int]) -> np.ndarray:
    n = int(np.prod(shape))
    return hessian(np.eye(n).reshape(n, *shape)).reshape(n, n)


def test_inverse_products_are_exact_in_the_whole_space_and_never_too_large():
    data, _, _ = setting()
    params = some_params(data)
    hessian = Hessian(data, WEIGHTS, params, np.ones(params.shape, dtype=bool))
    columns = np.stack([some_params(data, seed=i) for i in range(3)])
    columns[:, :, -1] -= columns[:, :, -1].mean(axis=1, keepdims=True)  # the same for all classes changes nothing
    flat = columns.reshape(3, -1)
    exact = flat @ np.linalg.pinv(dense(hessian, params.shape)) @ flat.T
    diagonal = conditioner(data, WEIGHTS)
    before = np.zeros((3, 3))
    for steps in (1, 2, 4, 40):
        found = inverse_products(hessian, columns, diagonal, steps)
        assert np.linalg.eigvalsh(found - before)[0] > -1e-8  # each step only adds
        before = found
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-8)


def test_the_gram_is_that_of_the_terms():
    """With enough steps, J' H^-1 J; the log loss's row comes from the others, since J w = 0."""
    data, x, targets = setting()
    weights = WEIGHTS | {"l1": 0.0}
    fitted = fit(data, weights, data.zeros(), tol=1e-8, max_iter=5000)
    found = observe(data, fitted, x, targets)
    _, slopes = terms(data, fitted.params)
    _, gradient = cross_entropy(data, fitted.params, targets, x)
    M = np.stack([*slopes, gradient]).reshape(6, -1)
    hessian = Hessian(data, weights, fitted.params, np.ones(fitted.params.shape, dtype=bool))
    exact = M @ np.linalg.pinv(dense(hessian, fitted.params.shape)) @ M.T
    np.testing.assert_allclose(found.gram, exact, rtol=2e-2, atol=2e-2 * np.abs(exact).max())


@pytest.mark.parametrize("name", ["l2", "uniform", "dropout"])
def test_the_gram_holds_the_derivative_of_the_validation_error_by_the_weights(name):
    """d error / d weight = -(gradient of the term)' H^-1 (gradient of the error), against a difference of two fits."""
    data, x, targets = setting()
    weights = WEIGHTS | {"l1": 0.0}
    ends = []
    for h in (1e-3, -1e-3):
        moved = weights | {name: weights[name] + h}
        ends.append(cross_entropy(data, fit(data, moved, data.zeros(), tol=1e-9, max_iter=9000).params, targets, x)[0])
    fitted = fit(data, weights, data.zeros(), tol=1e-9, max_iter=9000)
    gram = observe(data, fitted, x, targets).gram
    assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(-gram[NAMES.index(name), -1], rel=0.02, abs=1e-3)


def test_the_best_weight_of_a_grid_is_where_learn_loss_stands_still():
    """There the gradients of the term and of the error are orthogonal in this metric, and not in the plain one."""
    data, x, targets = setting()
    fits = [fit(data, NO_WEIGHTS | {"l2": v}, data.zeros(), tol=1e-8, max_iter=5000) for v in np.geomspace(1, 30, 120)]
    best = min(fits, key=lambda one: cross_entropy(data, one.params, targets, x)[0])
    assert best is not fits[0]
    assert best is not fits[-1]

    def cosine(gram):
        return gram[1, -1] / math.sqrt(gram[1, 1] * gram[-1, -1])

    _, slopes = terms(data, best.params)
    plain = np.stack([*slopes, cross_entropy(data, best.params, targets, x)[1]]).reshape(6, -1)
    assert abs(cosine(observe(data, best, x, targets).gram)) < 0.02
    assert abs(cosine(plain @ plain.T)) > 0.1
    ends = [cosine(observe(data, one, x, targets).gram) for one in (fits[0], fits[-1])]
    assert ends[0] > 0.1  # less than the best: the error falls as the weight rises
    assert ends[1] < -0.1


def test_params_that_l1_holds_at_zero_do_not_count():
    data, x, targets = setting()
    fitted = fit(data, WEIGHTS | {"l1": 8.0}, data.zeros(), tol=1e-8, max_iter=5000)
    assert 0 < (fitted.params[:, :-1] == 0).mean() < 1
    gram = observe(data, fitted, x, targets).gram
    ends = []
    for h in (1e-3, -1e-3):
        moved = fitted.weights | {"l1": 8.0 + h}
        ends.append(cross_entropy(data, fit(data, moved, fitted.params, tol=1e-9, max_iter=9000).params, targets, x)[0])
    assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(-gram[0, -1], rel=0.05, abs=1e-3)
