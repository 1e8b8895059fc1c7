"""`tuneloss fit`: train a tuned classifier on a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneloss.cli.console import console, note, progress, put, show
from tuneloss.cli.guards import make_folder, stoppable
from tuneloss.data import read_dataset
from tuneloss.data.reading import EMBEDDED

if TYPE_CHECKING:
    from tuneloss.sklearn.comparison import ModelComparison

DataArgument = Annotated[
    str,
    typer.Argument(
        help=f"CSV, Parquet or npz file; - for CSV on standard input; or an embedded data set: {', '.join(EMBEDDED)}."
    ),
]
MaxGb = Annotated[float, typer.Option(min=0.001, help="Largest data to read, in GB, on disk and expanded.")]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="A column to leave out. Repeat the option for more; '' stands for a column without a name."),
]
Use = Annotated[
    list[str] | None,
    typer.Option(help="A column of whole numbers to use although it looks like an identifier. Repeat for more."),
]


def fit(
    data: DataArgument,
    target: Annotated[str, typer.Option(help="Column to predict; for an npz file, the array of labels.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for model.npz, runs.jsonl and report.html.")] = Path("tuneloss-fit"),
    drop: Drop = None,
    use: Use = None,
    test_fraction: Annotated[
        float, typer.Option(min=0.05, max=0.9, help="Fraction of the rows held out to test.")
    ] = 0.25,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the splits.")] = 0,
    max_gb: MaxGb = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a classifier and learn the weights of its regularizers (L1, L2, uniform labels, dropout).

    A fraction of the rows is held out to test. The command prints a comparison of the
    tuned model with two others: one without a regularizer, and one with the best of ten L2 weights in 5-fold
    cross-validation.

    It writes three files: model.npz holds the model, in NumPy's format without pickle (see `tuneloss predict`);
    runs.jsonl holds its search; report.html is a report. Files of these names are replaced if an earlier
    `tuneloss fit` wrote them. If something else wrote them, the command refuses to start.

    All columns of a table except the target are inputs. Text is taken as categories: each one becomes an input, and
    rare ones share the input "other". Missing numbers are replaced by the median, and a further input tells where they
    were. Dates, identifiers, text that differs in most rows, and the index that pandas writes into a Parquet file are
    left out, and a note names them. All inputs are standardised.

    A CSV file may have commas, semicolons, tabs or | between its columns, and it may be compressed by gzip. An npz file
    has inputs in `features` or `X`, and labels in `labels` or `y`.
    """
    with stoppable():
        from tuneloss.sklearn.comparison import N_STEPS, compare_models, hold_out
        from tuneloss.sklearn.fit_files import check_replaceable, write_fit

        check_replaceable(out)
        dataset = read_dataset(data, target, drop or [], max_gb, use=use or [])
        for remark in dataset.notes:
            note(remark)
        rows = hold_out(dataset, test_fraction, seed)
        make_folder(out)
        with progress("fitting", N_STEPS) as advance:
            comparison = compare_models(rows, seed, advance)
        paths = write_fit(out, dataset, rows, comparison)
    if as_json:
        result = {"models": comparison.scores, "weights": comparison.tuned.loss_weights_}
        put([json.dumps(result | {name: str(path) for name, path in paths.items()}, allow_nan=False) + "\n"])
    else:
        _print_result(comparison, paths)


def _print_result(comparison: ModelComparison, paths: dict[str, Path]) -> None:
    """Print the comparison, the learned weights, and the paths of the files."""
    header = ("model", "test log loss", "test error", "seconds")
    rows = [
        [name, f"{s['test log loss']:.4f}", f"{100 * s['test error']:.1f}%", f"{s['seconds']:.1f}"]
        for name, s in comparison.scores.items()
    ]
    show(header, rows)
    weights = comparison.tuned.loss_weights_
    learned = ", ".join(f"{name} {value:.3g}" for name, value in weights.items() if name != "logloss")
    console.print(f"Learned weights: {learned}.", soft_wrap=True)
    console.print(f"Model: {paths['model']}", soft_wrap=True)
    console.print(f"Report: {paths['report']}", soft_wrap=True)
