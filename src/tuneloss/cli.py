"""The command line: `tuneloss demo`, `tuneloss paper figure1`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(f"The command line needs {missing.name}: pip install 'tuneloss[cli]'") from None

if TYPE_CHECKING:
    from rich.table import Table

    from tuneloss.report.records import Comparison, RunRecord

app = typer.Typer(
    help="Learn the weights of a training loss from a few trained models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
paper = typer.Typer(help="Figures and tables of the paper.", no_args_is_help=True)
app.add_typer(paper, name="paper")
console = Console()


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"tuneloss {version('tuneloss')}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Learn the weights of a training loss from a few trained models."""


@app.command()
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
    from tuneloss.core.progress import progress_bar
    from tuneloss.paper.demo import METHODS, run_demo
    from tuneloss.report.comparison import write_report

    _make_folder(out)
    done = itertools.count(1)
    jobs = min(jobs or os.cpu_count() or 1, repeats)
    with _stoppable(), progress_bar("training", runs * repeats * len(METHODS)) as advance:
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
    console.print(f"Report: {write_report(comparison, out)}", highlight=False, soft_wrap=True)


@paper.command()
def figure1(
    out: Annotated[Path, typer.Option(help="Folder for figure1.png and figure1.svg.")] = Path("tuneloss-paper"),
) -> None:
    """Figure 1: three quadratic losses for a one-dimensional model."""
    from tuneloss.paper.figure1 import draw_figure1, figure1_info
    from tuneloss.report.figures import save

    _make_folder(out)
    info = figure1_info()
    table = _table("loss", "argmin", "error there")
    for loss in info.losses:
        table.add_row(loss.name, f"{loss.argmin:.3f}", f"{loss.error:.3f}")
    table.add_row("best trained model", f"{info.best:.3f}", f"{info.best_error:.3f}")
    console.print(table)
    for suffix in ("png", "svg"):
        path = save(draw_figure1(info), out / f"figure1.{suffix}")
        console.print(f"Figure: {path}", highlight=False, soft_wrap=True)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C ends the work with a word instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("Stopped; nothing was written.")
        raise typer.Exit(130) from None


def _progress_note(record: RunRecord) -> str:
    return f"{record.method}: validation log loss {record.validation_loss:.3f}"


def _print_runs(comparison: Comparison) -> None:
    from tuneloss.report.comparison import free_names, run_row
    from tuneloss.report.info import MEASURES, best_run

    method = comparison.methods[0]
    runs, names = comparison.of(method, 1), free_names(comparison)
    table = _table("run", *names, *MEASURES.values())
    table.title = method if comparison.n_repeats == 1 else f"{method}, repeat 1 of {comparison.n_repeats}"
    for record in runs:
        table.add_row(*run_row(record, names), style="bold" if record is best_run(runs) else None)
    console.print(table)


def _print_summary(comparison: Comparison) -> None:
    from tuneloss.report.info import MEASURES, final_info

    if comparison.n_repeats > 1:
        note = f"mean ± 95% interval over {comparison.n_repeats} repeats"
    else:
        note = "one repeat; take --repeats 20 for intervals"
    table = _table(f"after {comparison.n_runs} runs", *MEASURES.values())
    for name, row in final_info(comparison).items():
        table.add_row(name, *(row[measure].shown(measure) for measure in MEASURES))
    console.print(table)
    console.print(f"The model of best validation log loss; {note}.", soft_wrap=True)


def _table(first: str, *rest: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    table.add_column(first, justify="left")
    for name in rest:
        table.add_column(name, justify="right")
    return table


def _make_folder(path: Path) -> None:
    """Make the folder before any work is done, so that a bad path costs nothing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise typer.BadParameter(f"must be a folder that can be written: {reason}", param_hint="--out") from None


if __name__ == "__main__":
    app()
