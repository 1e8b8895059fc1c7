"""The digits split is a partition, fresh by seed, and refuses impossible sizes."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tuneloss.paper.datasets import digits


def test_every_digit_is_in_exactly_one_part():
    """The three parts together hold each of the 1797 images once (up to the common shift, and halving)."""
    inputs, labels = load_digits(return_X_y=True)
    split = digits(3, n_train=100)
    x = np.concatenate([split.train_x, split.validation_x, split.test_x])
    y = np.concatenate([split.train_y, split.validation_y, split.test_y])
    x = 2 * x
    shift = inputs.mean(axis=0) - x.mean(axis=0)
    ours = sorted(map(tuple, np.column_stack([(x + shift).round(6), y])))
    theirs = sorted(map(tuple, np.column_stack([inputs, labels])))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_training_inputs_are_centred():
    """Every pixel has mean 0 over the training examples."""
    np.testing.assert_allclose(digits(0).train_x.mean(axis=0), 0, atol=1e-12)


def test_equal_seeds_give_equal_splits_and_others_differ():
    """A split is a function of its seed."""
    np.testing.assert_array_equal(digits(5).train_y, digits(5).train_y)
    assert (digits(5).train_y != digits(6).train_y).any()


@pytest.mark.parametrize("n_train", [0, -1, 1796, 5000])
def test_impossible_sizes_are_refused(n_train):
    """Each part needs at least one example."""
    with pytest.raises(ValueError, match=f"`n_train` must be between 1 and 1795.*found {n_train}"):
        digits(0, n_train=n_train)


@pytest.mark.parametrize("n_train", [1, 1795])
def test_extreme_sizes_work(n_train):
    """The smallest and the largest training set leave no part empty."""
    split = digits(0, n_train=n_train)
    assert min(len(split.train_y), len(split.validation_y), len(split.test_y)) >= 1
    assert np.isfinite(split.train_x).all()
