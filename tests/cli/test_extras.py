"""Commands and extras: most commands need `[cli]` alone, and the others name the extra that they need."""

import os
import subprocess
import sys

import pytest

NOT_IN_CLI = ["numba", "optuna", "torch", "pandas"]  # libraries that `[cli]` does not bring
PROGRAM = """
import sys

class Blocked:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked)
from tuneloss.cli import app
app()
"""
LINE = '{"error": 3.0, "features": {"l2": 1.0, "fit": 1.0}}\n'


def tuneloss(*arguments, cwd, blocked=NOT_IN_CLI, stdin=None):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(blocked=blocked), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )


def test_fit_predict_learn_and_report_need_the_cli_extra_alone(tmp_path):
    (tmp_path / "box.toml").write_text("l2 = [0.1, 10]\nfit = 1.0\n")
    for call, stdin in (
        (["fit", "iris"], None),
        (["predict", "tuneloss-fit/model.npz", "iris"], None),
        (["report", "tuneloss-fit/runs.jsonl"], None),
        (["learn", "-", "--box", "box.toml"], LINE),
        (["--version"], None),
        (["demo", "--help"], None),
        (["paper", "table1", "--help"], None),
    ):
        done = tuneloss(*call, cwd=tmp_path, stdin=stdin)
        assert done.returncode == 0, (call, done.stderr)


def test_the_demo_needs_neither_arrow_nor_optuna_nor_torch(tmp_path):
    pytest.importorskip("numba")
    call = ("demo", "--runs", 1, "--repeats", 1, "--epochs", 1)
    done = tuneloss(*call, cwd=tmp_path, blocked=["pyarrow", "optuna", "torch", "pandas"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tuneloss-demo" / "report.html").exists()


@pytest.mark.parametrize("call", [["demo"], ["paper", "table1", "--quick"], ["paper", "table2"]])
def test_demo_and_paper_name_the_extra_that_is_missing(tmp_path, call):
    done = tuneloss(*call, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: This command needs numba, which is not installed. Run: pip install 'tuneloss[cli,paper]'"
    ]
    assert list(tmp_path.iterdir()) == []


def test_figure3_names_the_torch_extra(tmp_path):
    pytest.importorskip("numba")
    done = tuneloss("paper", "figure3", "--quick", cwd=tmp_path, blocked=["torch"])
    assert done.returncode == 1
    assert "needs torch, which is not installed. Run: pip install 'tuneloss[cli,paper,torch]'" in done.stderr
