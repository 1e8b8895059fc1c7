"""`tuneloss demo`: TuneLoss against random search on embedded data, with a report."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneloss.cli.console import console, progress, table
from tuneloss.cli.guards import make_folder, stoppable, writing

if TYPE_CHECKING:
    from tuneloss.report.records import Comparison, RunRecord


def demo(
    runs: Annotated[int, typer.Option(min=1, help="Training runs of each method.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Independent repeats, each with its own data split.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training examples in a run.")] = 100,
    pixel_unit: Annotated[float, typer.Option(min=0.01, max=1000, help="Pixels, 0 to 16, are divided by this.")] = 2.0,
    out: Annotated[Path, typer.Option(help="Folder for report.html and demo.png.")] = Path("tuneloss-demo"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Repeats run at once.", show_default="one a CPU")] = None,
) -> None:
    """Tune a real loss between runs, against random search, and write an HTML report."""
    from tuneloss.paper.demo import METHODS, run_demo
    from tuneloss.report.comparison import write_report

    make_folder(out)
    done = itertools.count(1)
    jobs = min(jobs or os.cpu_count() or 1, repeats)
    with stoppable(), progress("training", runs * repeats * len(METHODS)) as advance:
        advance(0, f"{jobs} repeats at once, shown as they end" if jobs > 1 else "")
        comparison = run_demo(
            n_runs=runs,
            n_repeats=repeats,
            seed=seed,
            epochs=epochs,
            pixel_unit=pixel_unit,
            jobs=jobs,
            on_run=lambda record: advance(next(done), _progress_note(record)),
        )
    _print_runs(comparison)
    _print_summary(comparison)
    with stoppable(), writing("--out"):
        console.print(f"Report: {write_report(comparison, out)}", soft_wrap=True)


def _progress_note(record: RunRecord) -> str:
    return f"{record.method}: validation log loss {record.validation_loss:.3f}"


def _print_runs(comparison: Comparison) -> None:
    from tuneloss.report.comparison import free_names, run_row
    from tuneloss.report.info import MEASURES, best_run

    method = comparison.methods[0]
    runs, names = comparison.of(method, 1), free_names(comparison)
    shown = table("run", *names, *MEASURES.values())
    shown.title = method if comparison.n_repeats == 1 else f"{method}, repeat 1 of {comparison.n_repeats}"
    for record in runs:
        shown.add_row(*run_row(record, names), style="bold" if record is best_run(runs) else None)
    console.print(shown)


def _print_summary(comparison: Comparison) -> None:
    from tuneloss.report.info import MEASURES, final_info

    if comparison.n_repeats > 1:
        note = f"mean ± 95% interval over {comparison.n_repeats} repeats"
    else:
        note = "one repeat; take --repeats 20 for intervals"
    shown = table(f"after {comparison.n_runs} runs", *MEASURES.values())
    for name, row in final_info(comparison).items():
        shown.add_row(name, *(row[measure].shown(measure) for measure in MEASURES))
    console.print(shown)
    console.print(f"The model of best validation log loss; {note}.", soft_wrap=True)
