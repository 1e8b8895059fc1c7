"""The page on Hugging Face: its programs run, and its table names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tests.test_docs import DOCS, run

PAGE = (DOCS / "transformers.md").read_text(encoding="utf-8")


def test_the_programs_run(tmp_path, monkeypatch):
    """The trainer has tuned the loss, and the loop with Accelerate has left a state to load."""
    monkeypatch.chdir(tmp_path)
    names, printed = run("transformers.md")
    assert "'l2':" in printed
    assert len(names["trainer"].tuner.history) == 3
    assert len(names["tuner"].history) == 3
    assert (tmp_path / "state" / "custom_checkpoint_0.pkl").exists()


def test_the_first_program_has_at_most_25_lines():
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert len(program.splitlines()) <= 25


def test_the_table_of_what_was_seen_names_tests_that_exist():
    folder = Path(__file__).parent / "integrations"
    tests = "".join((folder / name).read_text("utf-8") for name in ("test_transformers.py", "test_accelerate.py"))
    rows = PAGE.split("## What was seen to work")[1].count("\n| ") - 1
    named = re.findall(r"\| `(test_\w+)` \|$", PAGE, re.MULTILINE)
    assert len(named) == rows == 14
    assert all(f"def {name}(" in tests for name in named)
