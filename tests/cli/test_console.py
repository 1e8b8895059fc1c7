"""What commands print is text: names of others neither steer the terminal nor end a command."""

import os
import subprocess
import sys

import pytest
from rich.table import Table
from typer.testing import CliRunner

from tests.cli.commands import refused
from tuneloss import Box, LossTuner, Observation
from tuneloss.cli import app
from tuneloss.cli.console import PlainConsole, progress

RED = "\x1b[31m"


def report(folder, name):
    """What `tuneloss report` prints of a journal in a folder of this name."""
    (folder / name).mkdir(parents=True)
    tuner = LossTuner(Box.from_dict({"a": (0.1, 1)}), journal=folder / name / "runs.jsonl")
    tuner.tell({"a": 0.5}, Observation(1.0, {"a": 1.0}))
    done = CliRunner().invoke(app, ["report", str(folder / name / "runs.jsonl")])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", ["runs[v2]", "runs[", "x[/b]", "[bold]x[/bold]", ":car:", "a$b"])
def test_a_path_is_printed_as_it_is(tmp_path, name):
    """Also one that looks like markup, or like a closing tag of it."""
    assert report(tmp_path, name) == f"Report: {tmp_path / name / 'runs.html'}\n"


def test_what_would_steer_the_terminal_is_shown_by_its_code(tmp_path):
    """In paths that are printed, in errors that name a class, and in what typer says of options."""
    assert r"/\x1b[31m/runs.html" in report(tmp_path, RED)
    (tmp_path / "one.csv").write_text("x,kind\n" + f"1,{RED}\x07\u202e\n" * 9)
    message = refused("fit", tmp_path / "one.csv", "--target", "kind")
    assert r"found only \x1b[31m\x07\u202e in 9 rows" in message
    (tmp_path / "taken").write_text("")
    steer = f"\u202e{RED}"
    for call in ([f"--{steer}"], ["report", "a", f"extra{steer}"], ["demo", "--out", f"{tmp_path}/taken/{steer}"]):
        message = refused(*call, code=2)
        assert not {"\x1b", "\u202e"} & set(message)
        assert r"\x1b[31m" in message.replace(" ", "")  # it may be broken into lines


def test_cells_and_titles_of_tables_are_text_too(capsys):
    table = Table("[bold]a", title=":car:")
    table.add_row(f"{RED}[/")
    PlainConsole().print(table)
    printed = capsys.readouterr().out
    for text in ("[bold]a", ":car:", r"\x1b[31m[/"):
        assert text in printed
    assert "\x1b" not in printed


def test_an_error_is_one_line():
    """Also where it quotes a name of two."""
    done = CliRunner().invoke(app, ["report", "no\nsuch.jsonl"])
    assert done.exit_code == 1
    assert done.stderr.startswith(r"Error: The journal no\nsuch.jsonl must be a file")
    assert len(done.stderr.splitlines()) == 1


def test_a_progress_bar_takes_names_with_brackets(capsys):
    with progress("fitting", 2) as advance:
        advance(1, f"{RED}[/ of run[v2]")
    assert r"\x1b[31m[/ of run[v2]" in capsys.readouterr().err


def test_letters_that_the_terminal_does_not_have_are_shown_by_their_codes():
    program = "from tuneloss.cli.console import console; console.print('学習 ± \\ud800')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert done.stdout.decode("ascii").strip() == r"\u5b66\u7fd2 \xb1 \ud800", done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_behind_standard_output_is_said_in_words(tmp_path):
    """By commands that print tables, and by those that print data."""
    (tmp_path / "box.toml").write_text("a = [0.1, 1]\n")
    for call in (["paper", "table2", "--quick"], ["learn", "-", "--box", "box.toml"], ["--version"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tuneloss", *call],
                stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            )  # fmt: skip
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("Error: Standard output must take all that is printed; found that [Errno 28]")
        assert len(done.stderr.splitlines()) == 1
