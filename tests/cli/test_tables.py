"""Which columns of a table are inputs, and what is said of those that cannot be."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.commands import refused
from tuneloss.cli.sources import read


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
