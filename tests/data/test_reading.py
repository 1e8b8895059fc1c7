"""Where data comes from: an embedded set by its name, or a file that is not too large."""

import gzip
import io
import sys

import numpy as np
import pytest
from sklearn.datasets import load_wine

from tests.cli.commands import refused
from tuneloss.data import read_dataset, read_inputs
from tuneloss.errors import InvalidInput


def test_a_large_file_is_refused_by_its_size_alone(tmp_path):
    """2 GB that take no room on the disk are not read. Python and the command line name the limit in their own way."""
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(2 * 10**9)
    rule = "The data must have at most 1 GB, since all of it is held in memory; "
    with pytest.raises(InvalidInput, match=rule + r".* has 2 GB\. Take a part of its rows, or raise `max_gb`\.$"):
        read_dataset(str(tmp_path / "large.csv"), "kind")
    message = refused("fit", tmp_path / "large.csv", "--target", "kind")
    assert message.startswith(f"Error: {rule}")
    assert message.endswith("or raise --max-gb.")


def test_inputs_come_in_the_order_in_which_they_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("a,note,b\n1,x,2\n3,y,4\n")
    np.testing.assert_array_equal(read_inputs(str(tmp_path / "t.csv"), ["b", "a"]).x, [[2, 1], [4, 3]])
    assert read_inputs(str(tmp_path / "t.csv"), ["b"], ["note", "a"]).text.tolist() == [["x", "1"], ["y", "3"]]
    with pytest.raises(InvalidInput, match="that the model was trained with; it has no 'c' and 1 others"):
        read_inputs(str(tmp_path / "t.csv"), ["c", "a", "d"])


def test_an_embedded_set_has_names_inputs_and_text_labels():
    wine = load_wine()
    dataset = read_dataset("wine")
    assert dataset.names == tuple(wine.feature_names)
    np.testing.assert_array_equal(dataset.x, wine.data)
    assert sorted(set(dataset.y)) == ["class_0", "class_1", "class_2"]
    np.testing.assert_array_equal(read_inputs("wine", ["hue", "alcohol"]).x, wine.data[:, [10, 0]])
    with pytest.raises(InvalidInput, match="has a fixed target and fixed inputs; found 'hue'"):
        read_dataset("wine", drop=["hue"])


def test_a_file_goes_before_the_embedded_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wine").write_text("x,kind\n1,a\n")
    assert read_dataset("wine", "kind").names == ("x",)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("is_zipped", [False, True])
def test_other_separators_decimal_commas_and_gzip_are_read(tmp_path, mark, is_zipped):
    text = ("x;z;kind\n" + "1,5;1.5;a, b\n2;;c\n-0,25;3;d\n" * 4).replace(";", mark)
    content = gzip.compress(text.encode()) if is_zipped else text.encode()
    (tmp_path / "t.csv").write_bytes(content)
    data = read_dataset(str(tmp_path / "t.csv"), "kind")
    np.testing.assert_array_equal(data.x[:3], [[1.5, 1.5], [2, np.nan], [-0.25, 3]])
    assert data.y[:3].tolist() == ["a, b", "c", "d"]
    np.testing.assert_array_equal(read_inputs(str(tmp_path / "t.csv"), ["z", "x"]).x, data.x[:, ::-1])


def test_a_comma_in_a_number_is_no_point_where_commas_separate(tmp_path):
    """It may separate thousands. Nobody knows, so the column is named as a problem."""
    rows = "".join(f'"{i},000",a\n{i},b\n' if i == 30 else f"{i},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("x,kind\n" + rows)
    with pytest.raises(InvalidInput, match=r"found numbers and 1 other values, the first '30,000' at row 31"):
        read_dataset(str(tmp_path / "t.csv"), "kind")


def test_rows_with_another_number_of_cells_are_listed_with_all_other_problems(tmp_path):
    """Rows are counted from 1 below the names. A problem of a value counts the rows that are left."""
    rows = [f"{i},{i % 7},{'ab'[i % 2]}" for i in range(60)]
    rows[3], rows[10], rows[20] = "3", "10,3,a,x", "inf,6,a"
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["x,z,kind", *rows]))
    found = r"has 2 problems:\n- Each row must have 3 cells, .*; found 1 in row 4, 4 in row 11\..*\n- .*inf at row 19\."
    with pytest.raises(InvalidInput, match=found):
        read_dataset(str(path), "kind")
    with pytest.raises(InvalidInput, match=r"has 2 problems:\n- Each row must have 3 .*\n- It has no column 'color'"):
        read_dataset(str(path), "color")
    with pytest.raises(InvalidInput, match=r"t.csv: Each row must have 3 cells"):
        read_inputs(str(path), ["z"])
    path.write_text("\n".join(["x,z,kind", *["1,2"] * 30]))
    with pytest.raises(InvalidInput, match=r"2 in row 10, and others in 20 more rows"):
        read_inputs(str(path), ["z"])


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_is_read(monkeypatch, compress):
    content = compress(b"x,kind\n1,a\n3,b\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    data = read_dataset("-", "kind")
    assert (data.title, data.x.tolist(), data.y.tolist()) == ("standard input", [[1], [3]], ["a", "b"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(InvalidInput, match=r"at most 1e-09 GB, .* standard input has more"):
        read_dataset("-", "kind", max_gb=1e-9)


def test_gzip_that_expands_without_end_or_is_cut_is_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"x,kind\n" + b"1,a\n" * 10**6))
    assert path.stat().st_size < 10**5
    with pytest.raises(InvalidInput, match=r"at most 0.001 GB, .*; t.csv.gz has more, expanded"):
        read_dataset(str(path), "kind", max_gb=0.001)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidInput, match=r"t.csv.gz must be a whole gzip file; found that"):
        read_dataset(str(path), "kind")


def test_cells_are_kept_as_they_are_written(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,note\n007,1.50,NA\n008,2,\n")
    data = read_inputs(str(tmp_path / "t.csv"), ["x"], keep=["note", "id"])
    assert data.kept == {"note": ["NA", ""], "id": ["007", "008"]}
    assert list(read_inputs(str(tmp_path / "t.csv"), ["x"], keep=["all"]).kept) == ["id", "x", "note"]
    with pytest.raises(InvalidInput, match=r"t.csv: It has no column 'row'; it has 'id', 'x', 'note'\."):
        read_inputs(str(tmp_path / "t.csv"), ["x"], keep=["row"])
    kept = read_inputs("wine", ["hue"], keep=["alcohol"]).kept["alcohol"]
    assert [float(cell) for cell in kept] == load_wine().data[:, 0].tolist()
    with pytest.raises(InvalidInput, match=r"wine: It has no column 'row'"):
        read_inputs("wine", ["hue"], keep=["row"])
