"""A command that meets a full disk says so in one line, and leaves the files that were there as they were.

A limit on the size of files stands for the full disk: the system refuses to write more.
"""

import os
import signal
import subprocess
import sys

import pytest

from tests.test_cli import tuneloss
from tuneloss import Box, LossTuner, Observation

resource = pytest.importorskip("resource", reason="needs limits on what a process may write")
BYTES = 3000  # less than any page, figure, model or table of predictions here


def on_a_full_disk(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "tuneloss", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES)),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a fitted model and a journal, after all was compiled that is to be compiled."""
    made = tmp_path_factory.mktemp("full")
    done = tuneloss("fit", "iris", "--out", "fit", cwd=made)
    assert done.returncode == 0, done.stderr
    done = tuneloss(
        "demo", "--runs", "1", "--repeats", "1", "--epochs", "1", "--out", "first", cwd=made
    )  # numba keeps what it compiles
    assert done.returncode == 0, done.stderr
    tuner = LossTuner(Box.from_dict({"a": (0.1, 1)}), journal=made / "runs.jsonl")
    tuner.tell({"a": 0.5}, Observation(1.0, {"a": 1.0}))
    return made


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (["predict", "fit/model.npz", "iris", "--out", "predicted.csv"], ["predicted.csv"]),
        (["report", "runs.jsonl"], ["runs.html"]),
        (["fit", "iris", "--out", "fit"], ["fit/model.npz", "fit/runs.jsonl", "fit/report.html"]),
        (["demo", "--runs", 1, "--repeats", 1, "--epochs", 1, "--out", "demo"], ["demo/demo.png", "demo/report.html"]),
        (["paper", "figure1", "--out", "paper"], ["paper/figure1.png", "paper/figure1.svg"]),
    ],
)
def test_old_files_stay_as_they_were(folder, call, names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        if not name.startswith("fit/"):
            (folder / name).write_text("old")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = on_a_full_disk(*call, cwd=folder)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert "written: [Errno 27] File too large" in errors[0]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_drafts_of_a_killed_fit_are_removed_by_the_next(tmp_path):
    """A kill while the files are written leaves a folder; and the folder is no longer there after another fit."""
    program = (
        "import tuneloss.report.runs_page as page, signal\n"
        "page.write_runs_report = lambda *_: (print('ready', flush=True), signal.pause())\n"
        "from tuneloss.cli import app; app(['fit', 'iris', '--out', 'out', '--json'])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as killed:
        assert killed.stdout.readline() == "ready\n"
        killed.send_signal(signal.SIGKILL)
    (left,) = os.listdir(tmp_path / "out")
    assert left.startswith(".")
    assert tuneloss("fit", "iris", "--out", "out", "--json", cwd=tmp_path).returncode == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["model.npz", "report.html", "runs.jsonl"]
