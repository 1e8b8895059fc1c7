"""Where data comes from: an embedded set by its name, or a file that is not too large."""

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
    np.testing.assert_array_equal(read_inputs(str(tmp_path / "t.csv"), ["b", "a"]), [[2, 1], [4, 3]])
    with pytest.raises(InvalidInput, match="that the model was trained with; it has no 'c' and 1 others"):
        read_inputs(str(tmp_path / "t.csv"), ["c", "a", "d"])


def test_an_embedded_set_has_names_inputs_and_text_labels():
    wine = load_wine()
    dataset = read_dataset("wine")
    assert dataset.names == tuple(wine.feature_names)
    np.testing.assert_array_equal(dataset.x, wine.data)
    assert sorted(set(dataset.y)) == ["class_0", "class_1", "class_2"]
    np.testing.assert_array_equal(read_inputs("wine", ["hue", "alcohol"]), wine.data[:, [10, 0]])
    with pytest.raises(InvalidInput, match="has a fixed target and fixed inputs; found 'hue'"):
        read_dataset("wine", drop=["hue"])


def test_a_file_goes_before_the_embedded_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wine").write_text("x,kind\n1,a\n")
    assert read_dataset("wine", "kind").names == ("x",)
