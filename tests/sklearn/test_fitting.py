"""Fits: stationary points, as an independent solver finds them."""

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from tests.sklearn.problems import NO_WEIGHTS, make_problem, some_params
from tuneloss.errors import RunFailed
from tuneloss.sklearn.fitting import fit
from tuneloss.sklearn.softmax import cross_entropy, make_data, mixed_targets, smooth_loss


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_l2_is_scikit_learns(n_classes, intercept):
    """C = 1 / (2 l2)."""
    data = make_problem(n_classes, intercept=intercept)
    found = fit(data, NO_WEIGHTS | {"l2": 0.7}, data.zeros(), tol=1e-7, max_iter=2000)
    theirs = LogisticRegression(C=1 / 1.4, fit_intercept=intercept, tol=1e-8, max_iter=5000)
    theirs.fit(data.x, data.y, sample_weight=data.sample_weight)
    np.testing.assert_allclose(found.params[:, :-1], theirs.coef_, atol=1e-4)
    level = found.params[:, -1] - found.params[:, :-1] @ data.mean
    level = level if n_classes == 2 else level - level.mean()
    expected = theirs.intercept_ if n_classes == 2 else theirs.intercept_ - theirs.intercept_.mean()
    np.testing.assert_allclose(level, expected, atol=1e-4)


def test_all_terms_together_are_as_cvxpy_finds_them():
    data = make_problem().with_dropout(some_params(make_problem(), seed=5))
    weights = {"l1": 2.0, "l2": 0.5, "uniform": 0.1, "dropout": 0.05, "logloss": 1.0}
    found = fit(data, weights, some_params(data), tol=1e-7, max_iter=5000)
    w, b = cp.Variable((3, data.x.shape[1])), cp.Variable(3)
    z = (data.x - data.mean) @ w.T + cp.reshape(b, (1, 3), order="C")
    s = data.sample_weight
    cross = s @ cp.log_sum_exp(z, axis=1) * (1 + weights["uniform"]) - cp.sum(
        cp.multiply(mixed_targets(data, weights), z)
    )
    quadratic = weights["l2"] * cp.sum_squares(w) + 0.5 * weights["dropout"] * cp.sum(
        cp.multiply(data.curvature, cp.square(w))
    )
    problem = cp.Problem(cp.Minimize(cross + quadratic + weights["l1"] * cp.sum(cp.abs(w))))
    problem.solve(solver="CLARABEL")
    ours = smooth_loss(data, weights, mixed_targets(data, weights), found.params)[0]
    ours += weights["l1"] * np.abs(found.params[:, :-1]).sum()
    assert ours == pytest.approx(problem.value, rel=1e-7)
    np.testing.assert_allclose(found.params[:, :-1], w.value, atol=1e-3)
    assert (found.params[:, :-1] == 0).any()


def test_a_fit_does_not_depend_on_the_unit_of_an_input():
    """Without penalties: an input a million times as large gets a coefficient a million times as small."""
    data = make_problem()
    unit = np.ones(data.x.shape[1])
    unit[2] = 1e6
    scaled = make_data(data.x * unit, data.y, data.sample_weight, 3)
    plain, other = (fit(d, NO_WEIGHTS, d.zeros(), tol=1e-6, max_iter=5000) for d in (data, scaled))
    assert other.converged
    assert abs(plain.n_iter - other.n_iter) <= 5
    np.testing.assert_allclose(np.ptp(other.params[:, 2] * 1e6), np.ptp(plain.params[:, 2]), rtol=1e-3)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_l1_fits_are_optimal_also_with_more_inputs_than_examples(n_classes, share, is_sparse):
    """KKT: the slope is -l1 * sign where a coefficient is not 0, and at most l1 where it is; from any start."""
    data = make_problem(n_classes, n=40, d=90)
    if is_sparse:
        x = sparse.csr_matrix(np.where(np.abs(data.x) > 1, data.x, 0.0))
        data = make_data(x, data.y, data.sample_weight, n_classes)
    l1 = share * np.abs(cross_entropy(data, data.zeros(), data.targets())[1][:, :-1]).max()
    weights = NO_WEIGHTS | {"l1": l1}
    values = []
    for start in (data.zeros(), some_params(data)):
        found = fit(data, weights, start, tol=1e-7, max_iter=20000)
        value, gradient = smooth_loss(data, weights, mixed_targets(data, weights), found.params)
        w, slope = found.params[:, :-1], gradient[:, :-1]
        assert (w == 0).any()
        assert (w != 0).any()
        assert (np.abs(slope) <= l1 * 1.001 + 1e-3).all()
        np.testing.assert_allclose(slope[w != 0], -l1 * np.sign(w[w != 0]), rtol=1e-3, atol=1e-3)
        values.append(value + l1 * np.abs(w).sum())
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_a_start_at_the_minimum_needs_no_steps():
    data = make_problem()
    weights = NO_WEIGHTS | {"l1": 1.0, "l2": 0.5}
    first = fit(data, weights, data.zeros(), tol=1e-5, max_iter=5000)
    again = fit(data, weights, first.params, tol=1e-5, max_iter=5000)
    assert again.n_iter <= 2 < first.n_iter


def test_a_fit_that_leaves_the_numbers_is_a_failed_run():
    data = make_problem()
    with pytest.raises(RunFailed, match="gave numbers that are not finite"), np.errstate(all="ignore"):
        fit(data, NO_WEIGHTS | {"l2": np.nan}, data.zeros(), tol=1e-5, max_iter=10)
