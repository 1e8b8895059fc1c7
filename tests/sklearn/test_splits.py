"""Splits by inputs: the same whatever the order; equal inputs on one side, or spread evenly if many share them."""

import numpy as np
import pytest
from scipy import sparse

from tuneloss.sklearn.splits import fold_parts, k_splits, one_split


def examples(n: int = 400, seed: int = 0):
    """Inputs of which some are equal, and labels that differ among equal ones."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, size=(n, 6)).astype(float), rng.integers(0, 3, size=n)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_a_fraction_of_each_class_validates(fraction):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 4)), rng.integers(0, 3, size=600)
    train, held = one_split(x, y, np.ones(600), fraction, seed=1)[0]
    np.testing.assert_array_equal(train + held, 1)
    assert set(held) == {0.0, 1.0}
    for label in range(3):
        assert held[y == label].sum() == pytest.approx(fraction * (y == label).sum(), abs=1)


def test_equal_inputs_are_on_one_side_and_order_does_not_matter():
    x, y = examples()
    x, y = np.vstack([x, x]), np.append(y, (y + 1) % 3)
    parts = fold_parts(x, y, np.ones(800), np.full(4, 0.25), seed=0)
    np.testing.assert_array_equal(parts[:, :400], parts[:, 400:])
    order = np.random.default_rng(1).permutation(800)
    shuffled = fold_parts(x[order], y[order], np.ones(800), np.full(4, 0.25), 0)
    np.testing.assert_array_equal(shuffled, parts[:, order])
    assert (parts.sum(axis=1) > 100).all()


def test_inputs_that_many_share_are_spread_over_all_folds():
    """Each label of them in equal parts: so training and validation have the same mixture."""
    x = np.repeat([[0.0], [1.0]], 50, axis=0)
    y = np.tile([0, 0, 0, 1], 25)
    for train, held in k_splits(x, y, np.ones(100), 5, seed=0):
        np.testing.assert_allclose(train, 0.8)
        np.testing.assert_allclose(held, 0.2)


def test_weights_count_like_repeats_and_sparse_like_dense():
    x, y = examples()
    weight = np.random.default_rng(2).integers(1, 4, size=len(y))
    shares = np.array([0.8, 0.2])
    once = fold_parts(x, y, weight.astype(float), shares, seed=0)
    again = fold_parts(x.repeat(weight, axis=0), y.repeat(weight), np.ones(weight.sum()), shares, seed=0)
    np.testing.assert_array_equal(once.repeat(weight, axis=1), again)
    np.testing.assert_array_equal(fold_parts(sparse.csr_array(x), y, weight.astype(float), shares, 0), once)


def test_the_seed_matters():
    x, y = examples()
    ones, shares = np.ones(len(y)), np.array([0.5, 0.5])
    assert (fold_parts(x, y, ones, shares, seed=0) != fold_parts(x, y, ones, shares, seed=1)).any()


def test_each_class_trains_and_empty_folds_are_left_out():
    """A class of one example is never only validated with."""
    x, y = np.arange(30.0)[:, None], np.array([0] * 29 + [1])
    splits = k_splits(x, y, np.ones(30), 5, seed=0)
    assert len(splits) == 4
    assert all(train[29] == 1 and held[29] == 0 for train, held in splits)
