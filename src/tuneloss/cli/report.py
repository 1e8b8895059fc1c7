"""`tuneloss report`: write a page about a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuneloss.cli.console import console
from tuneloss.cli.guards import check_apart, stoppable, writing
from tuneloss.errors import InvalidInput


def report(
    run: Annotated[
        Path, typer.Argument(help="Journal of a LossTuner, an OnlineTuner or `tuneloss fit`: a .jsonl file.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Page to write, or a folder for it; without it, next to the journal.")
    ] = None,
) -> None:
    """Write one HTML page about the runs of a journal: what was learned, how, why, and what to do next.

    The journal is that of `LossTuner(box, journal="runs.jsonl")`, that of `OnlineTuner.write_journal("run.jsonl")`, or
    the runs.jsonl of `tuneloss fit`. Nothing else is needed, and the journal is not changed.
    """
    with stoppable():
        from tuneloss.report.runs_info import read_runs
        from tuneloss.report.runs_page import write_runs_report

        _check_file(run)
        info = read_runs(run)
        page_name = run.with_suffix(".html").name
        out = run.with_name(page_name) if out is None else out / page_name if out.is_dir() else out
        check_apart(out, run)
        with writing("--out"):
            page = write_runs_report(info, out)
        console.print(f"Report: {page}", soft_wrap=True)


def _check_file(run: Path) -> None:
    """Raise if RUN is a folder. The message names the journal in the folder, if there is one."""
    if run.is_dir():
        journal = run / "runs.jsonl"
        advice = f"Name the journal in it: {journal}" if journal.is_file() else "Name a file."
        raise InvalidInput(f"RUN must be a journal, a .jsonl file; found the folder {run}. {advice}")
