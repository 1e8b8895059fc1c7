"""`tuneloss paper ...`: reproduce the paper's tables and figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tuneloss.cli.console import console, note, progress, show
from tuneloss.cli.guards import make_folder, stoppable, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tuneloss.paper.experiment import Experiment, Table
    from tuneloss.paper.results import Record

    AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)

paper = typer.Typer(help="Tables and figures of the paper.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="Folder for figures.")]
Folder = Annotated[
    Path, typer.Option("--results", help="Folder of records (JSON lines). Runs that it holds are not repeated.")
]
Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        "--datasets",
        help="Name of a features file in TUNELOSS_DATA, or digits. Repeat the option for more.",
    ),
]
Repeats = Annotated[int | None, typer.Option(min=1, help="Independent repeats, each with its own split.")]
Runs = Annotated[int | None, typer.Option(min=1, help="Training runs per tuner and repeat.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Parts to run at once; a part is one tuner in one repeat.", show_default="one per CPU"),
]
Tuners = Annotated[
    list[str] | None,
    typer.Option("--tuner", "--tuners", help="Only this tuner: NAME or NAME:RUNS. Repeat the option for more."),
]
TunerNames = Annotated[
    list[str] | None, typer.Option("--tuner", "--tuners", help="Only this tuner. Repeat the option for more.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A small run on the embedded digits: two minutes at most.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print tables as Markdown.")]


@paper.command()
def figure1(out: Out = Path("tuneloss-paper"), quick: Quick = False) -> None:
    """Figure 1: three quadratic losses for a one-dimensional model. No data is needed, and it is always quick."""
    from tuneloss.paper.figure1 import Figure1

    make_folder(out)
    show_experiment(Figure1(), [], out=out)


@paper.command()
def table1(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Folder = Path("results"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
    tuners: TunerNames = None,
) -> None:
    """Table 1: every tuner after 10 training runs. A killed command resumes."""
    from tuneloss.paper.table1 import Table1

    names = choose_datasets(datasets, quick)
    experiment = make_experiment(Table1, quick, datasets=names, repeats=repeats, runs=runs, tuners=tuners)
    show_experiment(experiment, run(experiment, results, jobs, quick), markdown=markdown)
    warn_of_differences(names)


@paper.command()
def ablation(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Folder = Path("results"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
    variants: Annotated[
        list[str] | None, typer.Option("--variant", "--variants", help="Only this change. Repeat the option for more.")
    ] = None,
) -> None:
    """Which choices matter: each row changes one choice of TuneLoss in Table 1. A killed command resumes."""
    from tuneloss.paper.ablation import Ablation

    names = choose_datasets(datasets, quick, small=True)
    experiment = make_experiment(Ablation, quick, datasets=names, repeats=repeats, runs=runs, variants=variants)
    show_experiment(experiment, run(experiment, results, jobs, quick), markdown=markdown)


@paper.command()
def table2(datasets: Datasets = None, quick: Quick = False) -> None:
    """Table 2: sizes of the training, validation and test sets, beside the paper's."""
    from tuneloss.paper.table2 import Table2

    names = choose_datasets(datasets, quick)
    show_experiment(Table2(names), [])
    warn_of_differences(names)


@paper.command()
def figure2(
    datasets: Datasets = None,
    repeats: Repeats = None,
    runs: Runs = None,
    results: Folder = Path("results"),
    out: Out = Path("tuneloss-paper"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
    tuners: Tuners = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Show all four sets, as far as they are recorded, and run nothing.")
    ] = False,
) -> None:
    """Figure 2: test log loss and error by the number of training runs. A killed command resumes.

    By default, each tuner has 100 runs. In the first 20 repeats on the small sets, random search has 500. Use --tuner
    NAME:RUNS for another number.
    """
    from tuneloss.paper.datasets import LARGE, SMALL
    from tuneloss.paper.figure2 import Figure2

    names = datasets or [*SMALL, *LARGE] if recorded else choose_datasets(datasets, quick, small=True)
    experiment = make_experiment(Figure2, quick, datasets=names, repeats=repeats, runs=runs, tuners=tuners)
    make_folder(out)
    records = read(experiment, results, quick) if recorded else run(experiment, results, jobs, quick)
    show_experiment(experiment, records, markdown=markdown, out=out)
    warn_of_differences(names)


@paper.command()
def figure3(
    datasets: Datasets = None,
    repeats: Repeats = None,
    epochs: Annotated[int | None, typer.Option(min=2, help="Epochs per run.", show_default="1000")] = None,
    results: Folder = Path("results"),
    out: Out = Path("tuneloss-paper"),
    jobs: Jobs = None,
    quick: Quick = False,
    markdown: Markdown = False,
) -> None:
    """Figure 3: a regularizer learned inside one training run. A killed command resumes. The torch extra is needed."""
    from tuneloss.paper.figure3 import Figure3

    make_folder(out)
    names = choose_datasets(datasets, quick, small=True)
    experiment = make_experiment(Figure3, quick, datasets=names, repeats=repeats, epochs=epochs)
    show_experiment(experiment, run(experiment, results, jobs, quick), markdown=markdown, out=out)
    warn_of_differences(names)


def choose_datasets(names: list[str] | None, quick: bool, *, small: bool = False) -> list[str]:
    """Return the names of the data sets, each once.

    By default, these are the paper's four, or with `small` the smaller two of them. A quick command, and a command
    without features files, runs on digits by default.
    """
    from tuneloss.paper.datasets import DIGITS, LARGE, SMALL

    if names:
        return list(dict.fromkeys(names))
    if quick:
        return [DIGITS]
    if not os.environ.get("TUNELOSS_DATA"):
        console.print("TUNELOSS_DATA is not set: running on the embedded digits instead of the paper's data sets.")
        return [DIGITS]
    return [*SMALL] if small else [*SMALL, *LARGE]


def make_experiment(kind: type[AnyExperiment], quick: bool, **options: Any) -> AnyExperiment:
    """Build an experiment from the options that are not None. Other fields keep their quick or usual values."""
    chosen = {name: value for name, value in options.items() if value is not None}
    with stoppable():
        return kind(**((kind.QUICK if quick else {}) | chosen))


def run(experiment: Experiment, folder: Path, jobs: int | None, quick: bool) -> list[Record]:
    """Run the units whose records the folder lacks, with a progress bar, and return all records."""
    from tuneloss.paper.experiment import Results, run_experiment

    units, results, ran = experiment.units(), Results(folder, quick), []
    with stoppable(f"what was done is in {folder}"), progress(experiment.NAME, len(units)) as advance:

        def on_unit(done: int, unit: object) -> None:
            ran.extend([] if unit is None else [unit])
            advance(done, str(unit or ""))

        records = run_experiment(experiment, results, jobs=jobs or os.cpu_count() or 1, on_unit=on_unit)
    if not ran:
        paths = " and ".join(map(str, results.paths(units)))
        note(f"All records are in {paths}, so nothing was run. To run all of it again: --results OTHER_FOLDER")
    return records


def read(experiment: Experiment, folder: Path, quick: bool) -> list[Record]:
    """Return the records that the folder has."""
    from tuneloss.paper.experiment import Results, recorded

    with stoppable():
        return recorded(experiment, Results(folder, quick))


def show_experiment(
    experiment: Experiment, records: list[Record], *, markdown: bool = False, out: Path | None = None
) -> None:
    """Print the tables of an experiment, and save its figure, if it has one, as PNG and SVG."""
    with stoppable():
        for table in experiment.tables(records):
            print_table(table, markdown=markdown)
    figure = experiment.figure(records)
    if figure is not None and out is not None:
        save_figure(figure, out, experiment.NAME)


def print_table(table: Table, *, markdown: bool = False) -> None:
    """Print a table between its title and its note. A marked row is bold."""
    if table.title:
        console.print(table.title)
    show(table.header, table.rows, markdown=markdown, marked=table.marked)
    if table.note:
        console.print(table.note, soft_wrap=True)


def save_figure(figure: Figure, out: Path, name: str) -> None:
    """Write a figure as PNG and SVG, and print the paths."""
    from tuneloss.report.pictures import save

    for suffix in ("png", "svg"):
        with stoppable(), writing("A figure"):
            console.print(f"Figure: {save(figure, out / f'{name}.{suffix}')}", soft_wrap=True)


def warn_of_differences(datasets: list[str]) -> None:
    """Warn that numbers on the paper's data sets differ from the paper's, and say why."""
    from tuneloss.paper.table1 import PAPER

    if set(datasets) & set(PAPER):
        text = (
            "The paper's numbers are for features of Inception-v3: compare tuners with each other, not with the paper."
        )
        if "nct_crc_he_3class" in datasets:
            text += " nct_crc_he_3class replaces its colorectal_histology."
        note(text)
