"""`tuneloss paper ...`: the paper's tables and figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneloss.cli.console import console, note, progress, show
from tuneloss.cli.guards import make_folder, stoppable, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tuneloss.paper.experiments import Unit
    from tuneloss.paper.results import Record

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
Tuners = Annotated[
    list[str] | None,
    typer.Option("--tuner", "--tuners", help="Only this one, NAME or NAME:RUNS; again for more."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small, on the embedded digits: two minutes at most.")]

Markdown = Annotated[bool, typer.Option("--markdown", help="Print tables as Markdown.")]


def chosen_datasets(given: list[str] | None, quick: bool, *, small: bool = False) -> list[str]:
    """Those named; else digits if quick or without features files; else the paper's four, or the small two of them."""
    from tuneloss.paper.datasets import DIGITS
    from tuneloss.paper.table1 import LARGE, SMALL

    if given:
        return list(dict.fromkeys(given))
    if quick or not os.environ.get("TUNELOSS_DATA"):
        if not quick:
            console.print("TUNELOSS_DATA is not set: running on the embedded digits instead of the paper's data sets.")
        return [DIGITS]
    return [*SMALL] if small else [*SMALL, *LARGE]


def results_file(folder: Path, experiment: str, datasets: Iterable[str], quick: bool) -> Path:
    """Where the records of an experiment are; quick ones, and those of digits alone, apart from the others."""
    from tuneloss.paper.datasets import DIGITS

    apart = "-quick" if quick else "-digits" if set(datasets) == {DIGITS} else ""
    return folder / f"{experiment}{apart}.jsonl"


def cores() -> int:
    """How many processes to run."""
    return os.cpu_count() or 1


def save_both(figure: Figure, out: Path, name: str) -> None:
    """Write a figure as PNG and SVG, and say where."""
    from tuneloss.report.pictures import save

    for suffix in ("png", "svg"):
        with stoppable(), writing("A figure"):
            console.print(f"Figure: {save(figure, out / f'{name}.{suffix}')}", soft_wrap=True)


def run_all(experiment: str, units: Sequence[Unit], results: Path, jobs: int | None, quick: bool) -> list[Record]:
    """Run what is not in the experiment's file yet, with a progress bar; the records of all units."""
    from tuneloss.paper.experiments import run_units

    path = results_file(results, experiment, (unit.dataset for unit in units), quick)
    with stoppable(f"what was done is in {results}"), progress(experiment, len(units)) as advance:
        counted = Counted(lambda done, unit: advance(done, str(unit or "")))
        records = run_units(path, units, jobs=jobs or cores(), on_unit=counted)
    if not counted.ran:
        say_all_there(path)
    return records


@dataclass
class Counted:
    """Shows progress, and knows whether anything was run: it is called with None before that."""

    show: Callable[[int, Any], object]
    ran: int = 0

    def __call__(self, done: int, what: Any) -> None:
        self.ran += what is not None
        self.show(done, what)


def say_all_there(path: Path) -> None:
    note(f"All of it is in {path}, so nothing was run. To run it anew: --results FOLDER")


def say_what_differs(datasets: Sequence[str]) -> None:
    """What is to be known when numbers stand beside the paper's."""
    from tuneloss.paper.table1 import PAPER

    if set(datasets) & set(PAPER):
        text = "The paper's numbers are on Inception-v3's features: compare tuners with each other, not with the paper."
        if "nct_crc_he_3class" in datasets:
            text += " nct_crc_he_3class is a substitute for its colorectal_histology."
        note(text)


@paper.command()
def figure1(out: Out = Path("tuneloss-paper"), quick: Quick = False) -> None:
    """Figure 1: three quadratic losses for a one-dimensional model. No data: always quick."""
    from tuneloss.paper.figure1 import draw_figure1, figure1_info

    make_folder(out)
    info = figure1_info()
    rows = [[loss.name, f"{loss.argmin:.3f}", f"{loss.error:.3f}"] for loss in info.losses]
    show(
        ["loss", "argmin", "error there"], [*rows, ["best trained model", f"{info.best:.3f}", f"{info.best_error:.3f}"]]
    )
    save_both(draw_figure1(info), out, "figure1")


@paper.command()
def table1(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Results = Path("results"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
) -> None:
    """Table 1: every tuner after 10 training runs. Resumable: a killed command goes on where it was."""
    from tuneloss.paper import table1 as paper_table

    names = chosen_datasets(datasets, quick)
    units = paper_table.table1_units(
        names, repeats or (2 if quick else None), runs or (6 if quick else paper_table.RUNS)
    )
    rows = paper_table.table1_info(run_all(paper_table.EXPERIMENT, units, results, jobs, quick))
    console.print("Models chosen by validation log loss:")
    show(paper_table.HEADER, paper_table.table1_cells(rows), markdown=markdown)
    console.print("Models chosen by validation error, as in the paper:")
    show(paper_table.ERROR_HEADER, paper_table.error_cells(rows), markdown=markdown)
    say_what_differs(names)


@paper.command()
def ablation(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Results = Path("results"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
    variants: Annotated[
        list[str] | None, typer.Option("--variant", "--variants", help="Only this change; again for more.")
    ] = None,
) -> None:
    """Which choices matter: one at a time is changed from TuneLoss in Table 1. Resumable."""
    from tuneloss.paper.ablation import EXPERIMENT, REPEATS, RUNS, VARIANTS, ablation_rows, ablation_units
    from tuneloss.paper.table1 import EXPERIMENT as TABLE1

    names = chosen_datasets(datasets, quick, small=True)
    with stoppable():
        units = ablation_units(
            names, repeats or (1 if quick else REPEATS), runs or (3 if quick else RUNS), variants or list(VARIANTS)
        )
    records = []
    for experiment in (TABLE1, EXPERIMENT):
        own = [unit for unit in units if unit.experiment == experiment]
        records += run_all(experiment, own, results, jobs, quick)
    show(*ablation_rows(records), markdown=markdown)


@paper.command()
def table2(datasets: Datasets = None, quick: Quick = False) -> None:
    """Table 2: sizes of the training, validation and test sets, beside the paper's."""
    from tuneloss.paper.datasets import fresh_split
    from tuneloss.paper.table2 import PAPER_SIZES

    with stoppable():
        rows = []
        for name in chosen_datasets(datasets, quick):
            split = fresh_split(name, 0)
            sizes = [len(part) for part in (split.train_y, split.validation_y, split.test_y)]
            said = " / ".join(map(str, PAPER_SIZES[name])) if name in PAPER_SIZES else ""
            rows.append([name, str(split.params_shape[0] - 1), str(split.n_classes), *map(str, sizes), said])
    show(["data", "inputs", "classes", "training", "validation", "test", "paper's sizes"], rows)
    say_what_differs([row[0] for row in rows])


@paper.command()
def figure2(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Results = Path("results"),
    out: Out = Path("tuneloss-paper"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
    tuners: Tuners = None,
) -> None:
    """Figure 2: test log loss and error by the number of training runs. Resumable.

    100 runs of each tuner at most, 500 of random search, 50 of GP-EI-MCMC, which has at most 5 repeats; another number
    by --tuner NAME:RUNS.
    """
    from tuneloss.paper.figure2 import EXPERIMENT, draw_figure2, early_rows, figure2_info, figure2_units
    from tuneloss.paper.tuners import LABELS, TUNERS

    names = chosen_datasets(datasets, quick, small=True)
    with stoppable():
        units = figure2_units(
            names, repeats or (2 if quick else None), runs or (8 if quick else None), tuners or list(TUNERS)
        )
    make_folder(out)
    records = run_all(EXPERIMENT, units, results, jobs, quick)
    curves = figure2_info(records)
    at = [n for n in (1, 2, 3, 5, 10, 20, 50, 100, 500) if n <= max(len(curve.mean) for curve in curves)]
    rows = [
        [c.dataset, LABELS[c.tuner], *(f"{c.mean[n - 1]:.4f}" if n <= len(c.mean) else "" for n in at)]
        for c in curves
        if c.measure == "test_loss"
    ]
    show(["data", "tuner", *(f"after {n}" for n in at)], rows, markdown=markdown)
    console.print("Test log loss of the model of least validation log loss so far, mean over repeats.")
    header, early = early_rows(records)
    if early:
        show(header, early, markdown=markdown)
        console.print("Below 0: TuneLoss is better. Repeat by repeat, mean and 95% interval.")
    say_what_differs(names)
    save_both(draw_figure2(curves), out, "figure2")


@paper.command()
def figure3(
    datasets: Datasets = None,
    repeats: Repeats = None,
    epochs: Annotated[int | None, typer.Option(min=2, help="Epochs of a run.", show_default="1000")] = None,
    results: Results = Path("results"),
    out: Out = Path("tuneloss-paper"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
) -> None:
    """Figure 3: a regularizer learned inside one training run. Resumable. Needs the torch extra."""
    from tuneloss.paper.figure3 import EPOCHS, EXPERIMENT, ONLINE, REPEATS, figure3_records
    from tuneloss.paper.figure3_shown import draw_figure3, figure3_rows
    from tuneloss.paper.results import read_records
    from tuneloss.paper.table1 import EXPERIMENT as TABLE1

    make_folder(out)
    names = chosen_datasets(datasets, quick, small=True)
    n_repeats, n_epochs = repeats or (1 if quick else REPEATS), epochs or (40 if quick else EPOCHS)
    path = results_file(results, EXPERIMENT, names, quick)
    total = len(names) * n_repeats * len(ONLINE)
    with stoppable(f"what was done is in {results}"):
        table1_records = read_records(results_file(results, TABLE1, names, quick))
        with progress("training", total) as advance:
            counted = Counted(lambda done, key: advance(done, "{}, {}, repeat {}".format(*key) if key else ""))
            records = figure3_records(path, names, n_repeats, n_epochs, jobs=jobs or cores(), on_run=counted)
    if not counted.ran:
        say_all_there(path)
    show(*figure3_rows(records, table1_records), markdown=markdown)
    say_what_differs(names)
    save_both(draw_figure3(records), out, "figure3")
