"""A model that was saved is read as it was; what someone else wrote under that name is refused in words."""

import numpy as np
import pytest

from tuneloss.data.dataset import MAX_INPUTS
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.model_file import SavedModel, load_model

GOOD = SavedModel(
    ("a", "b"), np.zeros(2), np.ones(2), np.eye(3, 2), np.zeros(3), np.array(["x", "学習", "z"]), {"title": "\ud800"}
)


@pytest.fixture
def parts(tmp_path):
    """Those of a good file."""
    with np.load(GOOD.save(tmp_path / "good.npz")) as file:
        return dict(file)


def test_a_model_is_read_as_it_was_saved(tmp_path):
    found = load_model(GOOD.save(tmp_path / "model.npz"))
    assert (found.names, found.about, found.classes.tolist()) == (GOOD.names, GOOD.about, GOOD.classes.tolist())
    np.testing.assert_array_equal(found.probabilities(np.ones((1, 2))), GOOD.probabilities(np.ones((1, 2))))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": np.array(np.inf)}, "a version that is not a whole number, inf"),
        ({"version": np.array(np.nan)}, "a version that is not a whole number, nan"),
        ({"version": np.array([1, 1])}, r"a version that is not a whole number, \[1 1\]"),
        ({"version": np.array("1")}, "a version that is not a whole number, 1"),
        ({"version": np.array(2)}, "must have format version 1; found 2. Another version of tuneloss wrote it"),
        ({"mean": np.array(["1", "2"])}, "numbers of another type"),
        ({"mean": np.array([1j, 2])}, "numbers of another type"),
        ({"mean": np.array([np.inf, 0])}, "numbers that are not finite"),
        ({"mean": np.array([np.longdouble("1e4000"), 0])}, "numbers that are not finite"),
        ({"scale": np.array([1.0, 0.0])}, "a scale that is not above 0"),
        ({"scale": np.array([1.0, -1.0])}, "a scale that is not above 0"),
        ({"classes": np.array([1.0, np.nan, 2.0])}, "classes that are not finite"),
        ({"classes": np.array([1j, 2, 3])}, "classes of type complex128"),
        ({"classes": np.array(["a", "\ud800", "b"])}, "'classes.npy' holds 0xd800, which is not a character"),
        ({"names": np.array(["a", "\udfff"])}, "'names.npy' holds 0xdfff, which is not a character"),
        ({"names": np.array([1, 2])}, "names of type int64"),
        ({"coef": np.zeros((3, 3))}, "arrays whose shapes do not fit together"),
        ({"about": np.array("[1]")}, "a description that is a list"),
        ({"about": np.array("{")}, "must be a model that"),
        ({"about": np.array("[" * 100_000)}, "must be a model that"),
        ({"about": np.array("1" * 5000)}, "must be a model that"),
        ({"about": np.array(" " * 2**21)}, "a description of 8,388,608 bytes"),
        ({"about": np.array(["{}"])}, "arrays whose shapes do not fit together"),
    ],
)
def test_a_part_that_does_not_fit_is_named(tmp_path, parts, changed, said):
    np.savez(tmp_path / "changed.npz", **(parts | changed))
    with pytest.raises(InvalidInput, match=said):
        load_model(tmp_path / "changed.npz")


@pytest.mark.parametrize("name", ["version", "names", "mean", "coef", "classes", "about"])
def test_a_part_that_is_missing_is_named(tmp_path, parts, name):
    del parts[name]
    np.savez(tmp_path / "less.npz", **parts)
    with pytest.raises(InvalidInput, match=rf"found something else \('{name}'\)"):
        load_model(tmp_path / "less.npz")


def test_more_names_than_a_table_has_columns_are_refused(tmp_path, parts):
    """Though their file is small, since it is compressed."""
    d = MAX_INPUTS + 1
    wide = {"names": np.full(d, "a"), "mean": np.zeros(d), "scale": np.ones(d), "coef": np.zeros((3, d))}
    np.savez_compressed(tmp_path / "wide.npz", **(parts | wide))
    with pytest.raises(InvalidInput, match="1000001 names of type <U1"):
        load_model(tmp_path / "wide.npz")


def test_a_compressed_model_may_be_small_and_no_larger(tmp_path, parts):
    np.savez_compressed(tmp_path / "small.npz", **parts)
    assert load_model(tmp_path / "small.npz").names == GOOD.names
    np.savez_compressed(tmp_path / "bomb.npz", **(parts | {"coef": np.zeros((3, 3 * 10**6))}))
    assert (tmp_path / "bomb.npz").stat().st_size < 200_000
    with pytest.raises(InvalidInput, match=r"its arrays take 72,00.,... bytes, more than 67,108,864"):
        load_model(tmp_path / "bomb.npz")


def test_a_large_model_as_we_save_it_is_read(tmp_path):
    """It is not compressed, so that it expands to no more than its file has."""
    n, d = 3000, 3000
    large = SavedModel(
        tuple(map(str, range(d))), np.zeros(d), np.ones(d), np.zeros((n, d)), np.zeros(n), np.arange(n), {}
    )
    assert load_model(large.save(tmp_path / "large.npz")).coef.shape == (n, d)
