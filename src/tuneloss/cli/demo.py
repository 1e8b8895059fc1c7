"""`tuneloss demo`: a comparison of TuneLoss with random search on embedded data, with a report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuneloss.cli.console import console, progress
from tuneloss.cli.guards import make_folder, stoppable, writing
from tuneloss.cli.paper import print_table


def demo(
    runs: Annotated[int, typer.Option(min=1, help="Training runs per method.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Independent repeats, each with its own data split.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training examples per run.")] = 100,
    pixel_unit: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Pixels, from 0 to 16, are divided by this.")
    ] = 2.0,
    out: Annotated[Path, typer.Option(help="Folder for report.html and demo.png.")] = Path("tuneloss-demo"),
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Parts to run at once; a part is one method in one repeat.", show_default="one per CPU"
        ),
    ] = None,
) -> None:
    """Tune a loss between training runs, compare the result with random search, and write an HTML report."""
    from tuneloss.paper.demo import Demo
    from tuneloss.paper.demo_page import write_page
    from tuneloss.paper.experiment import run_units

    make_folder(out)
    experiment = Demo(runs=runs, repeats=repeats, seed=seed, epochs=epochs, pixel_unit=pixel_unit)
    units = experiment.units()
    with stoppable(), progress("training", runs * len(units)) as advance:
        records = run_units(
            units,
            jobs=min(jobs or os.cpu_count() or 1, len(units)),
            on_unit=lambda done, unit: advance(runs * done, str(unit or "")),
        )
    for table in experiment.tables(records):
        print_table(table)
    with stoppable(), writing("--out"):
        console.print(f"Report: {write_page(experiment, records, out)}", soft_wrap=True)
