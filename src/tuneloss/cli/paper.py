"""`tuneloss paper ...`: the paper's tables and figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneloss.cli.shown import console, make_folder, stoppable, table
from tuneloss.core.progress import progress_bar

paper = typer.Typer(help="Figures and tables of the paper.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="Folder for figures.")]
Results = Annotated[Path, typer.Option(help="Folder of results (JSON lines): what is there is not run again.")]
Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", "--datasets", help="Features file in TUNELOSS_DATA, or digits; again for more."),
]
Repeats = Annotated[int | None, typer.Option(min=1, help="Independent repeats, each with its own split.")]
Runs = Annotated[int | None, typer.Option(min=1, help="Training runs of each tuner.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Repeats run at once.", show_default="one a CPU")]
Quick = Annotated[bool, typer.Option("--quick", help="Small, on the embedded digits: two minutes at most.")]


def chosen_datasets(given: list[str] | None, quick: bool) -> list[str]:
    """Those named; else digits if quick or if there are no features files, and the paper's four if there are."""
    from tuneloss.paper.datasets import DIGITS
    from tuneloss.paper.table1 import LARGE, SMALL

    if given:
        return given
    if quick or not os.environ.get("TUNELOSS_DATA"):
        if not quick:
            console.print("TUNELOSS_DATA is not set: running on the embedded digits instead of the paper's data sets.")
        return [DIGITS]
    return [*SMALL, *LARGE]


def results_file(folder: Path, experiment: str, quick: bool) -> Path:
    """Where the records of an experiment are; quick ones apart from the others."""
    return folder / (f"{experiment}-quick.jsonl" if quick else f"{experiment}.jsonl")


def cores() -> int:
    """How many processes to run."""
    return os.cpu_count() or 1


@contextmanager
def units_bar(what: str, total: int) -> Iterator[Callable[[int, Any], None]]:
    """A progress bar of units of work, with the time left."""
    with progress_bar(what, total) as advance:
        advance(0, "")
        yield lambda done, unit: advance(done, f"{unit.dataset}, {unit.tuner}, repeat {unit.repeat}")


@paper.command()
def figure1(out: Out = Path("tuneloss-paper")) -> None:
    """Figure 1: three quadratic losses for a one-dimensional model."""
    from tuneloss.paper.figure1 import draw_figure1, figure1_info
    from tuneloss.report.figures import save

    make_folder(out)
    info = figure1_info()
    shown = table("loss", "argmin", "error there")
    for loss in info.losses:
        shown.add_row(loss.name, f"{loss.argmin:.3f}", f"{loss.error:.3f}")
    shown.add_row("best trained model", f"{info.best:.3f}", f"{info.best_error:.3f}")
    console.print(shown)
    for suffix in ("png", "svg"):
        path = save(draw_figure1(info), out / f"figure1.{suffix}")
        console.print(f"Figure: {path}", highlight=False, soft_wrap=True)


@paper.command()
def table1(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Results = Path("results"),
    jobs: Jobs = None,
    quick: Quick = False,
) -> None:
    """Table 1: every tuner after 10 training runs. Resumable: a killed command goes on where it was."""
    from tuneloss.paper.experiments import run_units
    from tuneloss.paper.table1 import EXPERIMENT, HEADER, RUNS, table1_cells, table1_info, table1_units

    names = chosen_datasets(datasets, quick)
    units = table1_units(names, repeats or (2 if quick else None), runs or (6 if quick else RUNS))
    with stoppable(f"what was done is in {results}"), units_bar("training", len(units)) as advance:
        records = run_units(results_file(results, EXPERIMENT, quick), units, jobs=jobs or cores(), on_unit=advance)
    shown = table(*HEADER)
    for cells in table1_cells(table1_info(records)):
        shown.add_row(*cells)
    console.print(shown)
