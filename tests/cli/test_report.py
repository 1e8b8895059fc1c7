"""`tuneloss report` of what is no journal, and of journals with names and numbers that nobody expects."""

import re
import warnings

import pytest
from typer.testing import CliRunner

from tests.cli.commands import refused
from tuneloss import Box, Observation
from tuneloss.cli import app
from tuneloss.report.words import score_column
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.run import Run


def journal(path, runs, name="l2", **header):
    """Runs of a box with two terms, one of which has this name."""
    box = Box.from_dict({name: (0.1, 10.0), "fit": 1.0})
    written = Journal(path, {"box": box.state_dict(), **header})
    for run in runs:
        written.append(run.to_dict() if isinstance(run, Run) else run)
    return path


def run(error=1.0, name="l2", number=0, **other):
    return Run(number, {name: 1.0, "fit": 1.0}, Observation(error, [1.0 + number, 2.0]), **other)


def page_of(path):
    """The page, made without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = CliRunner().invoke(app, ["report", str(path)])
    assert done.exit_code == 0, done.exception or done.output
    return path.with_suffix(".html").read_text(encoding="utf-8")


def test_a_folder_is_no_journal_and_the_one_in_it_is_named(tmp_path):
    message = refused("report", tmp_path)
    assert message == f"Error: RUN must be a journal, a .jsonl file; found the folder {tmp_path}. Name a file."
    journal(tmp_path / "runs.jsonl", [run()])
    assert f"found the folder {tmp_path}. Name the journal in it: {tmp_path / 'runs.jsonl'}" in refused(
        "report", tmp_path
    )


def test_a_page_may_go_to_a_folder_under_the_name_of_its_journal(tmp_path):
    (tmp_path / "pages").mkdir()
    path = journal(tmp_path / "a.jsonl", [run()])
    done = CliRunner().invoke(app, ["report", str(path), "--out", str(tmp_path / "pages")])
    assert done.exit_code == 0, done.output
    assert [page.name for page in (tmp_path / "pages").iterdir()] == ["a.html"]


@pytest.mark.parametrize("text", ["\ud800", "\x1b[31m", "\x00", "\u202e", "\uffff"])
def test_text_that_cannot_be_written_is_shown_by_its_code(tmp_path, text):
    """As title, note, name of a term, of a model to compare with, of a number of a run, and as why it failed."""
    header = {"title": text, "note": text, "reference": {text: {text: 1.0}}}
    runs = [run(name=text, info={text: 1.0}), Run(1, {text: 1.0, "fit": 1.0}, None, failed=text)]
    page = page_of(journal(tmp_path / "a.jsonl", runs, name=text, **header))
    code = text.encode("unicode_escape").decode()
    assert f"<title>{code}</title>" in page
    assert f"failed: {code}" in page
    assert page.count(code) > 10
    assert text not in page


@pytest.mark.parametrize("errors", [(1e-300, 1e150), (1e150, 1e-300), (5e-324, 1.0), (-1e150, 1e150)])
def test_extreme_errors_make_a_page_that_says_what_is_not_drawn(tmp_path, errors):
    runs = [run(error, number=i) for i, error in enumerate(errors)]
    page = page_of(journal(tmp_path / "a.jsonl", runs, chosen=1))
    assert "Not drawn: some numbers are beyond 1e+100, or too close to 0." in page
    assert all(f"<td>{text}</td>" in page for text in score_column(errors))
    assert "nan%" not in page
    assert "inf%" not in page


@pytest.mark.parametrize("values", [(1e308, -1e308), (1.7e308, 1e308), (-1e308, 0.0), (1e150, 1.0)])
def test_extreme_numbers_of_runs_make_a_page_too(tmp_path, values):
    runs = [run(1.0 + i, number=i, info={"test": value}) for i, value in enumerate(values)]
    page = page_of(journal(tmp_path / "a.jsonl", runs))
    assert "Not drawn: some numbers are beyond 1e+100" in page
    assert f"<td>{score_column(values)[0]}</td>" in page


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e308])
def test_an_extreme_scale_of_a_search_makes_a_page_too(tmp_path, scale):
    search = {"weights": {"l2": 1e300, "fit": 1.0}, "scale": scale, "note": ""}
    page_of(journal(tmp_path / "a.jsonl", [run(), run(2.0, number=1)], search=search))


def test_extreme_knots_make_a_page_too(tmp_path):
    names = ["r/right0", "r/right1", "r/left0", "r/left1"]
    box = Box.from_dict({**dict.fromkeys(names, (0.0, 1e100)), "fit": 1.0})
    written = Journal(tmp_path / "a.jsonl", {"box": box.state_dict(), "knots": {"r": [-1e308, 1e308]}})
    for i in range(2):
        o = Observation(1.0 + i, [1.0, 2.0, 3.0, 4.0, 5.0])
        written.append(Run(i, {**dict.fromkeys(names, 1e100), "fit": 1.0}, o).to_dict())
    page_of(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("header", "changed", "said"),
    [
        ({"title": 0, "reference": {"a": {"b": 10**400}}}, {}, "int too large to convert to float"),
        ({}, {"weights": {"l2": 10**400, "fit": 1.0}}, "int too large to convert to float"),
        ({}, {"weights": {"other": 1.0, "fit": 1.0}}, "Line 2 of .* it has none for 'l2'"),
        ({}, {"observation": {"error": 1.0, "features": [1.0]}}, "Line 2 of .* each of the box's 2 terms; it has 1"),
    ],
)
def test_runs_that_do_not_fit_the_box_are_refused_in_words(tmp_path, header, changed, said):
    path = journal(tmp_path / "a.jsonl", [run().to_dict() | changed], **header)
    assert re.search(said, refused("report", path))


@pytest.mark.parametrize("depth", [10, 400, 950, 970])
@pytest.mark.parametrize("field", ["title", "note", "reference", "knots", "search", "chosen"])
def test_fields_that_are_nested_without_end_are_shown_or_refused_in_words(tmp_path, field, depth):
    nested = []
    for _ in range(depth):
        nested = [nested]
    try:
        path = journal(tmp_path / "a.jsonl", [run()], **{field: nested})
    except (RecursionError, ValueError):  # too deep even to be written
        return
    done = CliRunner().invoke(app, ["report", str(path)])
    assert done.exit_code == 0 or done.stderr.startswith("Error: ")
    assert done.exception is None or isinstance(done.exception, SystemExit)
