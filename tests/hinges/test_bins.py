"""Hinges by bins, against the dense Jacobian and the definition."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuneloss.hinges import (
    bin_sums,
    bins_of,
    gram_with,
    hinge_gram,
    hinge_matrix,
    hinge_names,
    hinge_products,
    values_at,
)

NUMBERS = st.floats(-1e3, 1e3)


def hinge_values_of(x, knots):
    """Values (n, 2p) of all hinges at all entries, as their definition says."""
    distance = x.reshape(-1, 1) - knots
    return np.maximum(np.hstack([distance, -distance]), 0)


def jacobian_of(x, knots):
    """Gradients (n, 2p) of all hinges at all entries, as their definition says."""
    x = x.reshape(-1, 1)
    return np.hstack([(x > knots) * 1.0, (x < knots) * -1.0])


@given(x=st.lists(NUMBERS, max_size=30), knots=st.sets(NUMBERS, min_size=1, max_size=8))
def test_bins_are_between_and_at_knots(x, knots):
    ordered = sorted(knots)
    expected = [sum(a < v for a in ordered) + sum(a <= v for a in ordered) for v in x + ordered]
    assert bins_of(np.array(x + ordered), np.array(ordered)).tolist() == expected


def test_values_gram_and_products_come_from_bins():
    """Exactly where they are counts; entries that equal a knot have slope 0 there."""
    rng, p = np.random.default_rng(0), 12
    knots = np.sort(rng.normal(size=p))
    x, columns = np.append(rng.normal(size=5000), knots), rng.normal(size=(5012, 3))
    bins, jacobian = bins_of(x, knots), jacobian_of(x, knots)
    np.testing.assert_array_equal(hinge_matrix(p).T[bins], jacobian)
    counts = np.bincount(bins, minlength=2 * p + 1).astype(float)
    np.testing.assert_array_equal(hinge_gram(counts), jacobian.T @ jacobian)
    sums = np.stack([bin_sums(bins, column, p) for column in columns.T], axis=1)
    np.testing.assert_allclose(hinge_products(sums), jacobian.T @ columns, atol=1e-9)
    np.testing.assert_allclose(values_at(x, knots), hinge_values_of(x, knots).sum(axis=0))


def test_the_gram_with_other_columns_is_that_of_the_jacobian_in_the_metric():
    rng = np.random.default_rng(0)
    knots = np.array([-1.0, 0.0, 0.5])
    x = rng.normal(size=(4, 6))
    x[0, :3] = knots
    metric, columns = rng.random(x.shape), rng.normal(size=(2, *x.shape))
    jacobian = np.hstack([jacobian_of(x, knots), columns.reshape(2, -1).T])
    np.testing.assert_allclose(gram_with(columns, x, knots, metric), (jacobian.T * metric.ravel()) @ jacobian)


def test_names_are_in_the_order_of_the_rows():
    assert hinge_names(3) == ["right0", "right1", "right2", "left0", "left1", "left2"]
    signs = np.sign(hinge_matrix(3).sum(axis=1))
    assert signs.tolist() == [1, 1, 1, -1, -1, -1]


def test_hinges_and_the_estimator_need_no_numba():
    """Only the look-up does, which torch and the paper's trainer use."""
    program = "import sys; sys.modules['numba'] = None; import tuneloss.hinges, tuneloss.sklearn, tuneloss.report"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
