"""`tuneloss fit`: a tuned classifier from a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tuneloss.cli.compare import MEASURES, compare, hold_out
from tuneloss.cli.console import console, put
from tuneloss.cli.data import check_inputs, check_labels
from tuneloss.cli.shown import make_folder, show, stoppable
from tuneloss.cli.sources import DataArgument, MaxGb, read
from tuneloss.cli.written import check_replaceable, write
from tuneloss.errors import InvalidInput

Drop = Annotated[
    list[str] | None, typer.Option(help="A column to leave out; again for more. '' is one without a name.")
]


def fit(
    data: DataArgument,
    target: Annotated[str, typer.Option(help="Column to predict; in an npz file, the array of labels.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for model.npz, runs.jsonl and report.html.")] = Path("tuneloss-fit"),
    drop: Drop = None,
    test_fraction: Annotated[float, typer.Option(min=0.05, max=0.9, help="Part of the rows that only tests.")] = 0.25,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the splits.")] = 0,
    max_gb: MaxGb = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")] = False,
) -> None:
    """Train a classifier whose regularizers (L1, L2, uniform labels, dropout) get learned weights.

    A part of the rows is held out to test; inputs are standardised. The table compares the tuned model with one without
    a regularizer and with a path of ten L2 fits in 5-fold cross-validation. The model is saved as model.npz (NumPy's
    format, read without pickle; see `tuneloss predict`), the runs as runs.jsonl, and the report as report.html. Files
    of these names are replaced if an earlier `tuneloss fit` wrote them; in a folder with others it refuses to start.

    All columns of a table but the target are inputs; the index that pandas writes into a Parquet file is not. An npz
    file has inputs in `features` or `X`, and labels in `labels` or `y`.
    """
    with stoppable():
        check_replaceable(out)
        given = read(data, target, drop or [], max_gb)
        if given.y is None:
            raise InvalidInput("`tuneloss fit` needs labels; found none. Name them: --target")
        check_inputs(given, ", or leave the column or those rows out")
        check_labels(given.y, given.title)
        rows = hold_out(given, test_fraction, seed)
        make_folder(out)
        found = compare(rows, seed)
        paths = write(out, given, rows, found)
    weights = found.tuned.loss_weights_
    if as_json:
        result = {"models": found.results, "weights": weights, **{what: str(path) for what, path in paths.items()}}
        put([json.dumps(result, allow_nan=False) + "\n"])
        return
    show(("model", *MEASURES, "seconds"), [[name, *_cells(values)] for name, values in found.results.items()])
    learned = ", ".join(f"{name} {value:.3g}" for name, value in weights.items() if name != "logloss")
    console.print(f"Learned weights: {learned}.", soft_wrap=True)
    console.print(f"Model: {paths['model']}", soft_wrap=True)
    console.print(f"Report: {paths['report']}", soft_wrap=True)


def _cells(values: dict[str, float]) -> list[str]:
    return [f"{values['test log loss']:.4f}", f"{100 * values['test error']:.1f}%", f"{values['seconds']:.1f}"]
