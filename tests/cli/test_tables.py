"""Which columns of a table are inputs, and what is said of those that cannot be."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.commands import refused
from tuneloss.cli.sources import read
from tuneloss.errors import InvalidInput


@pytest.fixture
def frame():
    """Two inputs and a target, shuffled, so that pandas has an index to write."""
    made = pd.DataFrame({"x": np.arange(12.0), "z": np.arange(12) % 5, "kind": ["a", "b", "c"] * 4})
    return made.sample(frac=1, random_state=0)


@pytest.mark.parametrize("index", [None, "row", "kind"])
def test_the_index_in_a_parquet_file_is_no_input(tmp_path, frame, index, capsys):
    """With a name or without; with one that a column has too. It is said, and the index can be dropped by name."""
    path = tmp_path / "t.parquet"
    frame.rename_axis(index).to_parquet(path)
    data = read(str(path), "kind", [], 1.0)
    assert data.names == ("x", "z")
    np.testing.assert_array_equal(data.x, frame[["x", "z"]])
    name = "row" if index == "row" else "__index_level_0__"
    assert f"Not an input: the pandas index '{name}' of t.parquet" in capsys.readouterr().err
    assert read(str(path), "kind", [name], 1.0).names == ("x", "z")
    assert "--target kind" in refused("fit", path)


def test_the_index_in_a_parquet_file_can_be_the_target_or_what_a_model_asks_for(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.set_index("kind").to_parquet(path)
    assert read(str(path), "kind", [], 1.0).y.tolist() == frame["kind"].tolist()
    frame.set_index("z").to_parquet(path)
    np.testing.assert_array_equal(read(str(path), None, [], 1.0, only=["x", "z"]).x, frame[["x", "z"]])


def test_a_column_without_a_name_is_refused_unless_it_is_dropped(tmp_path, frame):
    path = tmp_path / "t.csv"
    frame.to_csv(path)
    for target in (["--target", "kind"], []):
        message = refused("fit", path, *target, "--out", tmp_path / "out")
        assert "number 1 of t.csv has none" in message
        assert "save the table with index=False, or leave it out: --drop ''" in message
    assert read(str(path), "kind", [""], 1.0).names == ("x", "z")
    assert "Name it: --target kind" in refused("fit", path, "--drop", "", "--out", tmp_path / "out")
    assert read(str(path), None, [], 1.0, only=["x"]).names == ("x",)


def test_a_column_that_a_model_asks_for_must_be_there_once(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,x,note,note\n1,2,a,b\n")
    with pytest.raises(InvalidInput, match=r"t\.csv has 'x' twice"):
        read(str(path), None, [], 1.0, only=["x"])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_labels_must_be_finite(tmp_path, bad):
    columns = {"x": np.arange(9.0), "kind": np.array([0.0, 1.0, bad] * 3)}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert f"has {bad}. Leave" in refused("fit", tmp_path / "t.parquet", "--target", "kind", "--out", tmp_path / "out")


def test_labels_that_are_too_large_to_be_told_apart_are_refused(tmp_path):
    pd.DataFrame({"x": np.arange(12.0), "kind": [1e20, 2e20] * 6}).to_csv(tmp_path / "t.csv", index=False)
    message = refused("fit", tmp_path / "t.csv", "--target", "kind", "--out", tmp_path / "out")
    assert "found 2e+20 and 1e+20. Write them as text" in message
