"""Which columns of a table are inputs, and what is said of those that cannot be."""

import re
from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.commands import refused
from tuneloss.data import read_dataset, read_inputs
from tuneloss.errors import InvalidInput


@pytest.fixture
def frame():
    """Two inputs and a target, shuffled, so that pandas has an index to write."""
    made = pd.DataFrame({"x": np.arange(12.0), "z": np.arange(12) % 5, "kind": ["a", "b", "c"] * 4})
    return made.sample(frac=1, random_state=0)


@pytest.mark.parametrize("index", [None, "row", "kind"])
def test_the_index_in_a_parquet_file_is_no_input(tmp_path, frame, index):
    """With a name or without; with one that a column has too. A note says so, and the index can be dropped by name."""
    path = tmp_path / "t.parquet"
    frame.rename_axis(index).to_parquet(path)
    data = read_dataset(str(path), "kind")
    assert data.names == ("x", "z")
    np.testing.assert_array_equal(data.x, frame[["x", "z"]])
    name = "row" if index == "row" else "__index_level_0__"
    assert data.notes == (f"The pandas index '{name}' of t.parquet is not an input; reset_index() would make it one.",)
    dropped = read_dataset(str(path), "kind", [name])
    assert (dropped.names, dropped.notes) == (("x", "z"), ())
    assert "--target 'kind'" in refused("fit", path)


def test_the_notes_of_a_reader_are_printed(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.assign(kind=range(12)).to_parquet(path)
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert message.startswith("The pandas index '__index_level_0__' of t.parquet is not an input;")
    assert message.endswith("Is it an identifier?")


def test_the_index_in_a_parquet_file_can_be_the_target_or_what_a_model_asks_for(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.set_index("kind").to_parquet(path)
    assert read_dataset(str(path), "kind").y.tolist() == frame["kind"].tolist()
    frame.set_index("z").to_parquet(path)
    np.testing.assert_array_equal(read_inputs(str(path), ["x", "z"]), frame[["x", "z"]])


@pytest.mark.parametrize("written", [b"{", b"\xff", b"[1]", b'{"index_columns": null}', b"{}"])
def test_what_is_not_pandas_metadata_says_nothing(tmp_path, written):
    table = pa.table({"x": [1.0], "kind": ["a"]}).replace_schema_metadata({"pandas": written})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert read_dataset(str(tmp_path / "t.parquet"), "kind").names == ("x",)


@pytest.mark.parametrize("wrong", [b"\xff\xfe12", b"\xed\xa0\x801"])
@pytest.mark.parametrize("right", [b"col1", b"lab1"])
def test_text_of_a_parquet_file_that_is_not_utf8_is_refused_in_words(tmp_path, right, wrong):
    """In the name of a column, and in a label."""
    path = tmp_path / "t.parquet"
    pd.DataFrame({"col1": np.arange(6.0), "kind": ["lab1", "lab2"] * 3}).to_parquet(path)
    path.write_bytes(path.read_bytes().replace(right, wrong))
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert "t.parquet must be a Parquet file with text in UTF-8; found that " in message


def test_a_column_without_a_name_is_refused_unless_it_is_dropped(tmp_path, frame):
    path = tmp_path / "t.csv"
    frame.to_csv(path)
    for target in (["--target", "kind"], []):
        message = refused("fit", path, *target, "--out", tmp_path / "out")
        assert "number 1 of t.csv has none" in message
        assert "save the table with index=False, or leave it out: --drop ''" in message
    assert read_dataset(str(path), "kind", [""]).names == ("x", "z")
    assert "Name it: --target 'kind'" in refused("fit", path, "--drop", "", "--out", tmp_path / "out")
    np.testing.assert_array_equal(read_inputs(str(path), ["x"]), frame[["x"]])


def test_a_column_that_a_model_asks_for_must_be_there_once(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,x,note,note\n1,2,a,b\n")
    with pytest.raises(InvalidInput, match=r"t\.csv has 'x' twice"):
        read_inputs(str(path), ["x"])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_labels_must_be_finite(tmp_path, bad):
    columns = {"x": np.arange(9.0), "kind": np.array([0.0, 1.0, bad] * 3)}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert f"has {bad}. Leave" in refused("fit", tmp_path / "t.parquet", "--target", "kind", "--out", tmp_path / "out")


def test_labels_that_are_too_large_to_be_told_apart_are_refused(tmp_path):
    pd.DataFrame({"x": np.arange(12.0), "kind": [1e20, 2e20] * 6}).to_csv(tmp_path / "t.csv", index=False)
    message = refused("fit", tmp_path / "t.csv", "--target", "kind", "--out", tmp_path / "out")
    assert "found 2e+20 and 1e+20. Write them as text" in message


@pytest.mark.parametrize("rows", ["1;a\n2;b\n", "1,5;a\n2,5;b\n"])
@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_separators_are_named_as_the_reason(tmp_path, rows, mark):
    path = tmp_path / "t.csv"
    path.write_text(("x;kind\n" + rows * 5).replace(";", mark))
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert "must have commas between its columns, and points in its numbers" in message
    assert repr(f"x{mark}kind") in message


@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        ("größe,kind\n1,a\n", "latin-1", "its first line, b'gr\\xf6\\xdfe,kind\\n', is not"),
        ("x,kind\n1,a\n", "utf-16", "is not. Save it in that encoding"),
        (
            "x,kind\n1,klein\n2,größer\n",
            "latin-1",
            "'kind' of t.csv must be in UTF-8; found b'gr\\xf6\\xdfer' at row 2",
        ),
        ("x,kind\ngroß,a\nklein,b\n", "latin-1", "'x' of t.csv must be in UTF-8; found b'gro\\xdf' at row 1"),
    ],
)
def test_a_file_in_another_encoding_is_told_so(tmp_path, text, encoding, said):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert "in UTF-8" in message
    assert said in message


def test_utf8_with_a_mark_at_its_beginning_is_read(tmp_path):
    (tmp_path / "t.csv").write_text("größe,kind\n1,a\n2,b\n", encoding="utf-8-sig")
    assert read_dataset(str(tmp_path / "t.csv"), "kind").names == ("größe",)


def test_texts_that_count_as_missing_are_named(tmp_path):
    """An NA that is meant as a label can be found out, and written in another way."""
    path = tmp_path / "t.csv"
    path.write_text("x,kind\n" + "1,NA\n2,EU\n3,\n" * 5)
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert "10 labels of 'kind' of t.csv are missing (empty, or one of " in message
    assert " N/A, NA, NULL, " in message
    assert "write the label in another way" in message


def test_decimals_categories_and_booleans_of_parquet_are_numbers(tmp_path):
    columns = {
        "price": pa.array([Decimal("1.50"), Decimal("2.25"), None]),
        "size": pa.array([3, 4, 3]).dictionary_encode(),
        "new": pa.array([True, False, True]),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    data = read_dataset(str(tmp_path / "t.parquet"), "kind")
    np.testing.assert_array_equal(data.x, [[1.5, 3, 1], [2.25, 4, 0], [np.nan, 3, 1]])
    assert data.y.tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1", "2", "x"], "found 'x' (string) at row 3. Turn it into numbers first (one column per category)"),
        ([None, "2", "x"], "found 'x' (string) at row 3."),
        ([None, "2", "3"], "found '2' (string) at row 2. Save them as numbers"),
        ([datetime(2020, 1, 1)] * 3, "found type timestamp[us]. Turn it into numbers first"),
        ([[1], [2], [3]], "found type list<"),
    ],
)
def test_columns_that_are_not_numbers_are_told_why(tmp_path, values, said):
    """Who fits can leave the column out; a model needs it, and there is no --drop."""
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": pa.array(values), "kind": ["a", "b", "c"]}), path)
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert f"Column 'x' of t.parquet must hold numbers; {said}" in message
    assert message.endswith(", or leave it out: --drop 'x'")
    with pytest.raises(InvalidInput, match=re.escape(said)) as caught:
        read_inputs(str(path), ["x"])
    assert "drop" not in str(caught.value)


def test_a_target_is_numbers_or_text(tmp_path):
    parquet.write_table(pa.table({"x": [1.0], "kind": [datetime(2020, 1, 1)]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"must hold numbers or text; 'kind' of t.parquet has type timestamp"):
        read_dataset(str(tmp_path / "t.parquet"), "kind")
    parquet.write_table(pa.table({"x": [1.0], "kind": [Decimal("2.00")]}), tmp_path / "t.parquet")
    assert read_dataset(str(tmp_path / "t.parquet"), "kind").y.tolist() == [2.0]


def test_a_column_of_nothing_is_missing_values(tmp_path):
    parquet.write_table(
        pa.table({"x": pa.array([None, None], pa.string()), "kind": ["a", "b"]}), tmp_path / "t.parquet"
    )
    message = refused("fit", tmp_path / "t.parquet", "--target", "kind", "--out", tmp_path / "out")
    assert "2 missing or infinite values, for example in column 'x' at row 1" in message


def test_a_table_without_rows_is_told_so(tmp_path):
    (tmp_path / "t.csv").write_text("x,kind\n")
    assert "t.csv must have rows; found none" in refused("fit", tmp_path / "t.csv", "--target", "kind")
