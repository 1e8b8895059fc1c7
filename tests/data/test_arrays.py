"""What is read from npz and Parquet files, and that it takes no more memory than is allowed."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from tests.cli.commands import refused
from tuneloss.data import read_dataset
from tuneloss.data.arrays import read_npz
from tuneloss.errors import InvalidInput


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_a_small_file_that_expands_to_a_large_one_is_refused(tmp_path, suffix):
    """Unless that is allowed."""
    path = tmp_path / f"zeros.{suffix}"
    if suffix == "npz":
        np.savez_compressed(path, X=np.zeros((10**6, 2)), y=np.zeros(10**6))
    else:
        pd.DataFrame({"a": np.zeros(10**6), "b": np.zeros(10**6), "y": np.zeros(10**6)}).to_parquet(path)
    assert path.stat().st_size < 10**6
    message = refused("fit", path, "--target", "y", "--max-gb", 0.01)
    assert ("take 24,000," if suffix == "npz" else "takes 0.024 GB expanded") in message
    assert "Take a part of its rows, or raise --max-gb." in message
    assert read_dataset(str(path), "y", max_gb=0.1).x.shape == (10**6, 2)


def test_labels_that_cannot_be_written_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((6, 1)), y=np.array(["a", "\ud800"] * 3))
    assert "'y.npy' holds 0xd800, which is not a character" in refused("fit", tmp_path / "a.npz")


def test_a_member_that_is_no_array_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((6, 1)), y=np.arange(6) % 2)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as file:
        file.writestr("readme.txt", "hello")
    assert "the name of a member, 'readme.txt', is not that of an array" in refused("fit", tmp_path / "a.npz")


@pytest.mark.parametrize("shape", [(0, 10**5), (10**5, 0), (1, 10**6 + 1)])
def test_inputs_without_end_get_no_names(tmp_path, shape):
    with io.BytesIO() as buffer:
        np.savez_compressed(buffer, X=np.zeros(shape, dtype=bool))
        (tmp_path / "a.npz").write_bytes(buffer.getvalue())
    if shape[0] == 0:
        assert read_npz(tmp_path / "a.npz", None, [], 1.0).x.shape == shape
    else:
        with pytest.raises(InvalidInput, match=r"must have 1 to 1,000,000 inputs; found shape"):
            read_npz(tmp_path / "a.npz", None, [], 1.0)
