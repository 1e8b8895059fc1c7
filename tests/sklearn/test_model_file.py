"""A model that was saved is read as it was; what someone else wrote under that name is refused in words."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from tuneloss.data import Dataset
from tuneloss.data.dataset import MAX_INPUTS
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.model_file import load_model, write_model
from tuneloss.sklearn.preparation import Preparation
from tuneloss.sklearn.saved_model import SavedModel

PREPARATION = Preparation(  # 2 numbers, 1 gap, 3 categories of "c" and its others, 1 category of "d"
    ("a", "b"),
    np.array([5.0, 6.0]),
    (1,),
    ("c", "d"),
    (("", "学", "y"), ("u",)),
    (True, False),
    np.zeros(8),
    np.ones(8),
)
GOOD = SavedModel(
    PREPARATION,
    np.arange(24.0).reshape(3, 8) / 9,
    np.zeros(3),
    np.array(["x", "学習", "z"]),
    {"title": "\ud800"},
)
FRAME = {"a": [1.0, np.nan], "b": [np.nan, 2.0], "c": ["y", None], "d": ["unknown", "u"]}


@pytest.fixture
def parts(tmp_path):
    """Those of a good file."""
    with np.load(write_model(GOOD, tmp_path / "good.npz")) as file:
        return dict(file)


def test_a_model_is_read_as_it_was_saved(tmp_path):
    found = load_model(write_model(GOOD, tmp_path / "model.npz"))
    assert (found.names, found.about, found.classes.tolist()) == (GOOD.names, GOOD.about, GOOD.classes.tolist())
    frame = pd.DataFrame(FRAME)
    np.testing.assert_array_equal(found.predict_proba(frame), GOOD.predict_proba(frame))
    assert found.predict(frame).tolist() == ["z", "z"]
    assert found.preparation.input_names == GOOD.preparation.input_names


def test_columns_become_inputs_by_hand():
    """Gaps are filled and marked. Each category has an input, and an unknown one counts as "other", if there is one."""
    logits = GOOD.coef @ np.array([[1, 6, 1, 0, 0, 1, 0, 0], [5, 2, 0, 1, 0, 0, 0, 1.0]]).T
    expected = np.exp(logits) / np.exp(logits).sum(axis=0)
    np.testing.assert_allclose(GOOD.predict_proba(pd.DataFrame(FRAME)), expected.T)
    names = ["a", "b", "b=missing", "c=missing", "c=学", "c=y", "c=other", "d=u"]
    assert GOOD.preparation.input_names == names


def test_a_file_of_the_first_version_is_read():
    """It was written by `tuneloss fit iris.csv --target kind` before there were categories."""
    model = load_model(str(Path(__file__).parent / "files" / "model_version_1.npz"))
    x, y = load_iris(return_X_y=True)
    assert (model.predict(x) == np.array(["setosa", "versicolor", "virginica"])[y]).mean() > 0.95


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((2, 2)), r"2 columns of numbers and 2 of categories; found an array of shape \(2, 2\)"),
        ([["a"]], "X must be an array of numbers; found that could not convert string"),
        (pd.DataFrame({"a": [1]}), "it has no b, c, d"),
        (pd.DataFrame(FRAME | {"a": ["x", "y"]}), r"The columns \['a', 'b'\] must hold numbers"),
        (Dataset("some", ("b", "a"), np.zeros((1, 2))), r"takes the columns \['a', 'b', 'c', 'd'\], in this order"),
    ],
)
def test_other_columns_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said):
        GOOD.predict_proba(given)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": np.array(np.inf)}, "a version that is not a whole number, inf"),
        ({"version": np.array(np.nan)}, "a version that is not a whole number, nan"),
        ({"version": np.array([1, 1])}, r"a version that is not a whole number, \[1 1\]"),
        ({"version": np.array("1")}, "a version that is not a whole number, 1"),
        ({"version": np.array(3)}, "must have format version 1 or 2; found 3. Another version of tuneloss wrote it"),
        ({"mean": np.array(["1"] * 8)}, "numbers of another type"),
        ({"mean": np.array([1j, 2])}, "numbers of another type"),
        ({"mean": np.array([np.inf, 0])}, "numbers that are not finite"),
        ({"mean": np.array([np.longdouble("1e4000"), 0])}, "numbers that are not finite"),
        ({"scale": np.array([1.0] * 7 + [0.0])}, "a scale that is not above 0"),
        ({"scale": np.array([1.0] * 7 + [-1.0])}, "a scale that is not above 0"),
        ({"classes": np.array([1.0, np.nan, 2.0])}, "classes that are not finite"),
        ({"classes": np.array([1j, 2, 3])}, "classes of type complex128"),
        ({"classes": np.array(["a", "\ud800", "b"])}, "'classes.npy' holds 0xd800, which is not a character"),
        ({"names": np.array(["a", "\udfff"])}, "'names.npy' holds 0xdfff, which is not a character"),
        ({"names": np.array([1, 2])}, "names of type int64"),
        ({"gaps": np.array([2])}, "gaps that are not whole numbers from 0 to 1"),
        ({"gaps": np.array([0.5])}, "gaps that are not whole numbers"),
        ({"n_categories": np.array([3])}, "columns whose shapes do not fit together"),
        ({"n_categories": np.array([3, 3])}, "columns whose shapes do not fit together"),
        ({"has_other": np.array([1, 0])}, "marks of other categories of type int64"),
        ({"fill": np.zeros(3)}, "columns whose shapes do not fit together"),
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
    with pytest.raises(InvalidInput, match="1000001 names of type <U1 and shape"):
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
    preparation = Preparation.of_numbers(tuple(map(str, range(d))), np.zeros(d), np.ones(d))
    large = SavedModel(preparation, np.zeros((n, d)), np.zeros(n), np.arange(n), {})
    assert load_model(write_model(large, tmp_path / "large.npz")).coef.shape == (n, d)
