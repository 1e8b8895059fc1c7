"""Splits by content: the same whatever the order, with equal examples on one side."""

import numpy as np
import pytest
from scipy import sparse

from tuneloss.sklearn.splits import hash_folds, k_splits, one_split


def examples(n: int = 400, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, size=(n, 6)).astype(float) + (rng.random((n, 1)) < 0.5), rng.integers(0, 3, size=n)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_a_fraction_of_each_class_validates(fraction):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 4)), rng.integers(0, 3, size=600)
    train, held = one_split(x, y, np.ones(600), fraction, seed=1)[0]
    assert sorted([*train, *held]) == list(range(600))
    for label in range(3):
        assert (y[held] == label).sum() == pytest.approx(fraction * (y == label).sum(), abs=1)


def test_equal_examples_are_on_one_side_and_order_does_not_matter():
    x, y = examples()
    x, y = np.vstack([x, x]), np.append(y, y)
    fold = hash_folds(x, y, np.ones(800), np.full(4, 0.25), seed=0)
    np.testing.assert_array_equal(fold[:400], fold[400:])
    order = np.random.default_rng(1).permutation(800)
    np.testing.assert_array_equal(hash_folds(x[order], y[order], np.ones(800), np.full(4, 0.25), 0), fold[order])
    assert len(np.unique(fold)) == 4


def test_weights_count_like_repeats_and_sparse_like_dense():
    x, y = examples()
    weight = np.random.default_rng(2).integers(1, 4, size=len(y))
    shares = np.array([0.8, 0.2])
    once = hash_folds(x, y, weight.astype(float), shares, seed=0)
    again = hash_folds(x.repeat(weight, axis=0), y.repeat(weight), np.ones(weight.sum()), shares, seed=0)
    np.testing.assert_array_equal(once.repeat(weight), again)
    np.testing.assert_array_equal(hash_folds(sparse.csr_array(x), y, weight.astype(float), shares, 0), once)


def test_the_seed_matters():
    x, y = examples()
    ones, shares = np.ones(len(y)), np.array([0.5, 0.5])
    assert (hash_folds(x, y, ones, shares, seed=0) != hash_folds(x, y, ones, shares, seed=1)).any()


def test_each_class_trains_and_empty_folds_are_left_out():
    """A class of one example is never only validated with; with three examples there are no five folds."""
    x, y = np.arange(3.0)[:, None], np.array([0, 0, 1])
    splits = k_splits(x, y, np.ones(3), 5, seed=0)
    assert len(splits) == 1
    train, held = splits[0]
    assert set(y[train]) == {0, 1}
    assert len(held) == 1
    train, _ = one_split(x, y, np.ones(3), 0.2, seed=0)[0]
    assert set(y[train]) == {0, 1}
