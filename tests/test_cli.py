"""The command line, run as a user runs it: in a process of its own."""

import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest


def tuneloss(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "tuneloss", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, tuneloss("demo", "--runs", 3, "--out", "report", cwd=folder)


def test_demo_ends_well(demo):
    """Exit code 0, and nothing on stderr but what is meant for people."""
    _, done = demo
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_demo_prints_a_row_for_each_run(demo):
    """Runs 1, 2, 3, each with four weights, two losses and an error rate."""
    _, done = demo
    rows = re.findall(r"^ +([123])( +[\d.e-]+){6} +[\d.]+%", done.stdout, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3"]


def test_demo_compares_with_random_search(demo):
    """The summary has a row for each method and their difference."""
    _, done = demo
    for name in ("TuneLoss", "random search", "difference"):
        assert re.search(rf"^ +{name} +-?[\d.]+", done.stdout, flags=re.MULTILINE), done.stdout


def test_demo_writes_its_report_where_it_says(demo):
    """The path that is printed is that of the page."""
    folder, done = demo
    path = re.search(r"Report: (.+)", done.stdout).group(1).strip()
    assert (folder / path).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "report" / "demo.png").exists()


@pytest.mark.parametrize(
    ("command", "options", "shown"),
    [
        ("table1", ["--repeats", 1, "--runs", 2], "GP-EI-MCMC"),
        ("ablation", ["--runs", 2], "100 epochs"),
        ("figure2", ["--repeats", 1, "--runs", 2], "figure2.svg"),
        ("figure3", ["--epochs", 3], "figure3.svg"),
    ],
)
def test_a_quick_experiment_runs_on_digits_and_does_not_run_again(tmp_path, command, options, shown):
    """The second call finds its records, adds none and prints the same."""
    out = [] if command in ("table1", "ablation") else ["--out", tmp_path / "out"]
    call = ["paper", command, "--quick", *options, "--results", tmp_path, *out]
    first = tuneloss(*call)
    assert first.returncode == 0, first.stderr
    assert "digits" in first.stdout
    assert shown in " ".join(first.stdout.replace("\n", "").split())
    records = (tmp_path / f"{command}-quick.jsonl").read_text()
    assert tuneloss(*call).stdout == first.stdout
    assert (tmp_path / f"{command}-quick.jsonl").read_text() == records


def test_table2_gives_the_sizes_of_a_split():
    done = tuneloss("paper", "table2", "--dataset", "digits")
    assert re.search(r"digits +64 +10 +100 +848 +849", done.stdout), done.stdout


def test_a_data_set_that_is_not_there_is_an_error_in_words(tmp_path):
    """Exit code 1, no traceback, and what to set."""
    done = tuneloss("paper", "table1", "--dataset", "no_such", "--results", tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "TUNELOSS_DATA" in done.stderr


def test_figure1_prints_numbers_and_writes_both_pictures(tmp_path):
    """A row for each loss, then a PNG and an SVG."""
    done = tuneloss("paper", "figure1", "--out", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert re.search(r"learned loss +-?[\d.]+ +[\d.]+", done.stdout)
    assert (tmp_path / "figures" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figures" / "figure1.svg").read_text(encoding="utf-8")


def test_version():
    """It is the installed package's."""
    assert tuneloss("--version").stdout.strip() == f"tuneloss {version('tuneloss')}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "--runs", 0),
        ("demo", "--runs", "many"),
        ("demo", "--repeats", 0),
        ("demo", "--seed", -1),
        ("demo", "--jobs", 0),
        ("demo", "--nonsense"),
        ("nonsense",),
        ("paper", "figure7"),
    ],
)
def test_bad_options_are_named_without_a_traceback(arguments):
    """Exit code 2, the culprit in the message."""
    done = tuneloss(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    culprit = next((a for a in arguments[1:] if str(a).startswith("--")), arguments[-1])
    assert culprit in done.stderr


def test_an_output_path_that_is_a_file_is_refused_before_any_work(tmp_path):
    """Exit code 2 at once, rather than after all the training."""
    (tmp_path / "taken").write_text("")
    done = tuneloss("demo", "--out", tmp_path / "taken")
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr
