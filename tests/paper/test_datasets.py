"""Splits are partitions, fresh by seed; bad sizes and bad files are refused."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tuneloss.errors import InvalidInput
from tuneloss.paper.datasets import digits, fresh_split, load_features


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


def arrays(n=12, **others):
    """What a good features file holds; each example is known by its first feature."""
    x = np.column_stack([np.arange(n), np.ones(n)]).astype(np.float16)
    return {"features": x, "labels": np.arange(n) % 3, "split": np.repeat([0, 1, 2], n // 3)} | others


def write(path, **content):
    np.savez(path, **content)
    return path


def ids(split):
    return [sorted(part[:, 0].tolist()) for part in (split.train_x, split.validation_x, split.test_x)]


def test_a_features_file_gives_its_own_split(tmp_path):
    """Without a seed the parts are those in the file, with their labels."""
    split = load_features(write(tmp_path / "some.npz", **arrays())).split()
    assert (split.name, split.n_classes, split.params_shape) == ("some", 3, (3, 3))
    assert ids(split) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    np.testing.assert_array_equal(split.validation_y, np.arange(4, 8) % 3)


@pytest.mark.parametrize(("name", "fixed"), [("tf_flowers", False), ("oxford_iiit_pet", True), ("caltech101", True)])
def test_a_fresh_split_has_the_same_sizes_and_keeps_a_published_training_set(tmp_path, name, fixed):
    """It is a partition, a function of the seed, and labels go with their examples."""
    write(tmp_path / f"{name}.npz", **arrays())
    first, again, other = (fresh_split(name, seed, tmp_path) for seed in (1, 1, 2))
    assert ids(first) == ids(again) != ids(other)
    assert [len(part) for part in ids(first)] == [4, 4, 4]
    assert sorted(i for part in ids(first) for i in part) == list(range(12))
    assert (ids(first)[0] == [0, 1, 2, 3]) == fixed
    np.testing.assert_array_equal(first.test_y, first.test_x[:, 0].astype(int) % 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"features": np.ones((4, 2))}, "must hold features, labels, split; .* lacks labels, split"),
        (arrays(labels=np.zeros(5, int)), r"found shapes \(12, 2\), \(5,\) and \(12,\)"),
        (arrays(features=np.ones(12)), r"features \(N, D\)"),
        (arrays(features=np.ones((12, 2), int)), "float features and integer labels and split; found int64"),
        (arrays(labels=np.full(12, 0.5)), "integer labels"),
        (arrays(features=np.full((12, 2), np.nan)), "finite features; found 24 that are not"),
        (arrays(labels=np.zeros(12, int)), "at least 2 classes"),
        (arrays(split=np.zeros(12, int)), r"each of training .* found \[0\]"),
        (arrays(labels=np.array([None] * 12)), "an .npz file of plain arrays; found that .labels.npy. holds objects"),
    ],
)
def test_a_bad_features_file_is_refused(tmp_path, content, message):
    """The message names the file, what must hold and what was found."""
    with pytest.raises(InvalidInput, match=message):
        load_features(write(tmp_path / "bad.npz", **content))


def test_a_file_that_is_missing_or_no_npz_is_refused(tmp_path):
    """No traceback of zipfile or NumPy."""
    with pytest.raises(InvalidInput, match=r"found none\. Set TUNELOSS_DATA"):
        load_features(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidInput, match=r"must be an \.npz file of plain arrays"):
        load_features(tmp_path / "text.npz")


def test_without_a_folder_there_are_digits_only(monkeypatch):
    """The message says what to set."""
    monkeypatch.delenv("TUNELOSS_DATA", raising=False)
    assert fresh_split("digits", 0).name == "digits"
    with pytest.raises(InvalidInput, match="`tf_flowers` needs a folder of features files: set TUNELOSS_DATA"):
        fresh_split("tf_flowers", 0)
