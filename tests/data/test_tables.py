"""Which columns of a table are inputs, and what is said of those that cannot be."""

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
    np.testing.assert_array_equal(read_inputs(str(path), ["x", "z"]).x, frame[["x", "z"]])


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
    """An index that pandas wrote is left out, as other identifiers are."""
    path = tmp_path / "t.csv"
    frame.to_csv(path)
    assert read_dataset(str(path), "kind").notes == ("Left out: '' (an identifier).",)
    frame.set_index(frame["x"] / 2).rename_axis(None).to_csv(path)
    for target in (["--target", "kind"], []):
        message = refused("fit", path, *target, "--out", tmp_path / "out")
        assert "number 1 has none" in message
        assert "save the table with index=False, or leave it out: --drop ''" in message
    assert read_dataset(str(path), "kind", [""]).names == ("x", "z")
    assert "Name it: --target 'kind'" in refused("fit", path, "--drop", "", "--out", tmp_path / "out")
    np.testing.assert_array_equal(read_inputs(str(path), ["x"]).x, frame[["x"]])


def test_a_column_that_a_model_asks_for_must_be_there_once(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,x,note,note\n1,2,a,b\n")
    with pytest.raises(InvalidInput, match=r"t\.csv: .* it has 'x' twice"):
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


@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        ("größe,kind\n1,a\n", "latin-1", "its first line, b'gr\\xf6\\xdfe,kind\\n', is not"),
        ("x,kind\n1,a\n", "utf-16", "is not. Save it in that encoding"),
        (
            "x,kind\n1,klein\n2,größer\n",
            "latin-1",
            "Column 'kind' must be in UTF-8; found b'gr\\xf6\\xdfer' at row 2",
        ),
        ("x,kind\ngroß,a\nklein,b\n", "latin-1", "Column 'x' must be in UTF-8; found b'gro\\xdf' at row 1"),
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
    assert "10 labels are missing in 'kind' (empty, or one of " in message
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


@pytest.mark.parametrize("values", [[[1], [2], [3]], [float("inf"), 1.0, 2.0], ["1e999", "2", "3"]])
def test_a_column_that_can_be_nothing_can_be_left_out(tmp_path, values):
    """Who fits can leave the column out; a model needs it, and there is no --drop."""
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": pa.array(3 * values), "kind": ["a", "b", "c"] * 3}), path)
    message = refused("fit", path, "--target", "kind", "--out", tmp_path / "out")
    assert "t.parquet: Column 'x' must hold " in message
    assert message.endswith("Or leave the column out: --drop 'x'")
    with pytest.raises(
        InvalidInput, match=r"Column 'x' must hold (numbers, as in training|finite numbers); "
    ) as caught:
        read_inputs(str(path), ["x"])
    assert "drop" not in str(caught.value)


def test_all_problems_are_listed_at_once(tmp_path):
    columns = {"x": [[1]] * 6, "z": [float("inf")] * 6, "kind": ["a", "b", "c"] * 2}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    message = refused("fit", tmp_path / "t.parquet", "--target", "kind", "--out", tmp_path / "out")
    assert message.startswith("Error: t.parquet has 3 problems: - Column 'x' must hold")
    assert "- Column 'z' must hold finite numbers; found inf at row 1." in message
    assert "- Each class must have at least 3 rows" in message


def test_a_target_is_numbers_or_text(tmp_path):
    parquet.write_table(pa.table({"x": [1.0], "kind": [datetime(2020, 1, 1)]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"must hold numbers or text; 'kind' has type timestamp"):
        read_dataset(str(tmp_path / "t.parquet"), "kind")
    parquet.write_table(pa.table({"x": [1.0], "kind": [Decimal("2.00")]}), tmp_path / "t.parquet")
    assert read_dataset(str(tmp_path / "t.parquet"), "kind").y.tolist() == [2.0]


def test_a_table_without_inputs_is_told_why(tmp_path):
    columns = {"x": pa.array([None, None], pa.string()), "day": [datetime(2020, 1, 1)] * 2, "kind": ["a", "b"]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    message = refused("fit", tmp_path / "t.parquet", "--target", "kind", "--out", tmp_path / "out")
    assert "found none except 'kind'. Left out: 'x' (no values), 'day' (dates or times)." in message


def test_a_table_without_rows_is_told_so(tmp_path):
    (tmp_path / "t.csv").write_text("x,kind\n")
    assert "t.csv: It must have rows; found none" in refused("fit", tmp_path / "t.csv", "--target", "kind")


def test_dates_identifiers_and_texts_are_left_out_with_a_note(tmp_path):
    n = 60
    frame = pd.DataFrame({"size": np.arange(n) % 7 / 2, "count": range(5, 5 + n)})
    frame["customer_id"] = np.random.default_rng(0).permutation(10**6)[:n]
    frame["paid"] = np.random.default_rng(1).permutation(10**6)[:n]  # no identifier, though its name ends so
    frame["day"], frame["time"] = "2020-01-03", "3.1.2020 12:30"
    frame["remark"] = [f"text {i}" for i in range(n)]
    frame["void"] = ""
    frame.assign(kind=["a", "b"] * (n // 2)).to_csv(tmp_path / "t.csv", index=False)
    data = read_dataset(str(tmp_path / "t.csv"), "kind")
    assert (data.names, data.text_names) == (("size", "paid"), ())
    assert data.notes == (
        (
            "Left out: 'count' (an identifier), 'customer_id' (an identifier), 'day' (dates or times), "
            "'time' (dates or times), 'remark' (60 different texts in 60 rows), 'void' (no values)."
        ),
    )
    used = read_dataset(str(tmp_path / "t.csv"), "kind", ["remark"], use=["count"])
    assert used.names == ("size", "count", "paid")
    with pytest.raises(InvalidInput, match=r"Column 'day' cannot be used as it is \(dates or times\)"):
        read_dataset(str(tmp_path / "t.csv"), "kind", use=["day"])


def test_text_is_categories_and_gaps_are_missing(tmp_path):
    """In a column of numbers, marks such as "?" are gaps. Spaces around text do not matter."""
    rows = "red, 1 ,a\n blue,?,b\n,3.5,a\nred,none,b\nNA,2,a\nred ,,b\n" * 5
    (tmp_path / "t.csv").write_text("colour , size,kind\n" + rows)
    data = read_dataset(str(tmp_path / "t.csv"), "kind")
    assert (data.names, data.text_names) == (("size",), ("colour",))
    np.testing.assert_array_equal(data.x[:6, 0], [1, np.nan, 3.5, np.nan, 2, np.nan])
    assert data.text[:6, 0].tolist() == ["red", "blue", "", "red", "", "red"]
    assert data.notes == (
        "Categories, one input for each: 'colour' (2).",
        "Missing numbers, replaced by the median of the training rows: 'size' (15).",
        "Counted as missing: 'size' ('?' and 'none').",
    )


def test_numbers_with_a_few_words_are_a_problem_unless_they_are_codes(tmp_path):
    frame = pd.DataFrame({"x": [str(i) for i in range(29)] + ["many"], "kind": ["a", "b"] * 15})
    frame.to_csv(tmp_path / "t.csv", index=False)
    message = refused("fit", tmp_path / "t.csv", "--target", "kind", "--out", tmp_path / "out")
    assert "found numbers and 1 other values, the first 'many' at row 30. Correct them." in message
    frame.assign(x=["1", "2", "2a"] * 10).to_csv(tmp_path / "t.csv", index=False)
    assert read_dataset(str(tmp_path / "t.csv"), "kind").text[:3, 0].tolist() == ["1", "2", "2a"]


def test_what_categories_take_is_known_before(tmp_path):
    words = [f"word{i % 50}" for i in range(1000)]
    pd.DataFrame({"x": words, "kind": ["a", "b"] * 500}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InvalidInput, match=r"at most 0.0003 GB; they take 0.0004 GB, 50 inputs of 'x' among them"):
        read_dataset(str(tmp_path / "t.csv"), "kind", max_gb=3e-4)


def test_booleans_and_whole_numbers_are_numbers(tmp_path):
    (tmp_path / "b.csv").write_text("x,z,kind\n" + "true,1,0\nfalse,2,1\n" * 4)
    data = read_dataset(str(tmp_path / "b.csv"), "kind")
    np.testing.assert_array_equal(data.x[:2], [[1, 1], [0, 2]])
    np.testing.assert_array_equal(data.y[:2], [0, 1])
