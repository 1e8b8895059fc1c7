"""`tuneloss demo`: a loss tuned between runs and inside one run, on embedded data, with a report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneloss.cli.console import console, progress
from tuneloss.cli.guards import make_folder, stoppable, writing
from tuneloss.cli.paper import print_table

if TYPE_CHECKING:
    from tuneloss.paper.demo import Demo, Half
    from tuneloss.paper.results import Record


def demo(
    runs: Annotated[int, typer.Option(min=1, help="Training runs per method.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Independent repeats, each with its own data split.")] = 20,
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
    """Tune a loss between runs and inside one run, compare with random search and a plain run, write a report."""
    from tuneloss.paper.demo import HALVES, Demo
    from tuneloss.paper.demo_page import write_page
    from tuneloss.paper.demo_runs import N_TRAIN
    from tuneloss.paper.experiment import run_units

    make_folder(out)
    experiment = Demo(runs=runs, repeats=repeats, seed=seed, epochs=epochs, pixel_unit=pixel_unit)
    console.print(
        f"Softmax regression on {N_TRAIN} handwritten digits. The loss is log loss + weights times L1, L2, label "
        "smoothing (uniform) and dropout. Which weights?"
    )
    with stoppable():
        for number, half in enumerate(HALVES, start=1):
            console.print()
            console.print(f"{number}. {half.title}. {half.about}")
            show_live(experiment, half)
        console.print()
        console.print(f"The same in {repeats} repeats, each with its own digits and first weights:")
        units = experiment.units()
        with progress("training", len(units)) as advance:
            records = run_units(
                units,
                jobs=min(jobs or os.cpu_count() or 1, len(units)),
                on_unit=lambda done, unit: advance(done, str(unit or "")),
            )
    for table in experiment.tables(records):
        print_table(table)
    for sentence in experiment.verdict(records):
        console.print(sentence)
    console.print()
    with stoppable(), writing("--out"):
        console.print(f"Report: {write_page(experiment, records, out)}", soft_wrap=True)


def show_live(experiment: Demo, half: Half) -> None:
    """Run the first repeat of a half, and print a row for each run or for some epochs."""
    from tuneloss.paper.demo import FREE, shown_steps, weight_texts

    shown = shown_steps(experiment.runs if half.step == "run" else experiment.epochs, half)
    print_row((half.step, *FREE, *half.labels))
    best: list[Record | None] = [None, None]
    for pair in experiment.watch(half):
        best = [better(old, new) for old, new in zip(best, pair, strict=True)]
        step = pair[0]["run"] + 1
        if step in shown:
            print_row((str(step), *weight_texts(pair[0]), *(f"{b['test_loss']:.4f}" if b else "failed" for b in best)))
    console.print("The last two columns are the test log loss of the model of least validation log loss so far.")


def better(old: Record | None, new: Record) -> Record | None:
    """Return the record of lower validation log loss; None if neither has one."""
    if new["validation_loss"] is None or (old is not None and old["validation_loss"] <= new["validation_loss"]):
        return old
    return new


def print_row(cells: tuple[str, ...]) -> None:
    """Print one row of a table that grows line by line."""
    narrow, wide = cells[1:-2], cells[-2:]
    console.print(f"{cells[0]:>6}" + "".join(f"{c:>9}" for c in narrow) + "".join(f"{c:>15}" for c in wide))
