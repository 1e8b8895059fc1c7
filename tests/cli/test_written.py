"""What `tuneloss fit` writes, and what it leaves alone."""

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.cli.commands import refused
from tuneloss import Box, LossTuner, Observation
from tuneloss.cli import app


def fit(out):
    return CliRunner().invoke(app, ["fit", "iris", "--out", str(out), "--json"])


def journal_of_a_tuner(path):
    LossTuner(Box.from_dict({"a": (0.1, 1)}), journal=path).tell({"a": 0.5}, Observation(1.0, {"a": 1.0}))


@pytest.mark.parametrize("name", ["runs.jsonl", "model.npz", "report.html"])
def test_a_file_of_someone_else_is_left_alone(tmp_path, name):
    """The command ends before any work, names the file, and the folder is as before."""
    path = tmp_path / name
    if name == "runs.jsonl":
        journal_of_a_tuner(path)
    elif name == "model.npz":
        np.savez(path, params=np.arange(3))
    else:
        path.write_text("<p>mine</p>")
    before = path.read_bytes()
    message = refused("fit", "no_such_data.csv", "--out", tmp_path)  # the data is not even looked at
    assert f"found {path}, which is something else. Choose another folder: --out" in message
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == before


def test_a_folder_in_the_way_of_a_file_is_refused(tmp_path):
    (tmp_path / "report.html").mkdir()
    assert "report.html, which is something else" in refused("fit", "iris", "--out", tmp_path)


def test_files_of_an_earlier_fit_are_replaced(tmp_path):
    """Also where a kill left half a record beside the journal."""
    for _ in range(2):
        done = fit(tmp_path)
        assert done.exit_code == 0, done.output
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.npz", "report.html", "runs.jsonl"]
        last = (tmp_path / "runs.jsonl").read_bytes().splitlines(keepends=True)[-1]
        (tmp_path / "runs.jsonl.next").write_bytes(last)
