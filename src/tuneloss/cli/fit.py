"""`tuneloss fit`: train a tuned classifier on a table."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tuneloss.cli.console import note, progress, put
from tuneloss.cli.guards import make_folder, stoppable
from tuneloss.data import read_dataset
from tuneloss.data.reading import EMBEDDED


class Strategy(StrEnum):
    """Values of --strategy."""

    runs = "runs"
    online = "online"


class ClassWeight(StrEnum):
    """Values of --class-weight."""

    balanced = "balanced"


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
    strategy: Annotated[
        Strategy,
        typer.Option(
            help='How the weights are learned: "runs" fits several models, one after another; "online" tunes one model '
            "as it trains, and learns a penalty of each coefficient in place of L1."
        ),
    ] = Strategy.runs,
    terms: Annotated[
        str,
        typer.Option(
            help='Regularizers that may get a weight, with commas between them; "l2" is among them. With --strategy '
            'online, "l1" stands for the learned penalty.'
        ),
    ] = "l1,l2,uniform,dropout",
    cv: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Number of folds that validate the weights. Without it, 20% of the training rows validate if these "
            "are at least 500, and 5 folds are used otherwise.",
        ),
    ] = None,
    class_weight: Annotated[
        ClassWeight | None,
        typer.Option(
            help='With "balanced", every class counts the same in training and in all scores, however many rows it has.'
        ),
    ] = None,
    max_gb: MaxGb = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a classifier and learn the weights of its regularizers (L1, L2, label smoothing, dropout).

    With --strategy online, a penalty of each coefficient is learned in place of L1; the report draws it.

    A fraction of the rows is held out to test. The command prints a comparison of the tuned model with three others:
    the majority class, one without a regularizer, and one with the best of ten L2 weights in 5-fold cross-validation.
    It says which is better, with 95% bootstrap intervals. Recall and precision of each class and the largest
    coefficients of the tuned model follow.

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
        from tuneloss.cli.fit_result import print_result, result_as_json
        from tuneloss.sklearn.coefficients import largest_coefficients
        from tuneloss.sklearn.comparison import N_STEPS, compare_models, hold_out
        from tuneloss.sklearn.fit_files import check_replaceable, write_fit

        check_replaceable(out)
        dataset = read_dataset(data, target, drop or [], max_gb, use=use or [])
        for remark in dataset.notes:
            note(remark)
        rows = hold_out(dataset, test_fraction, seed)
        make_folder(out)
        with progress("fitting", N_STEPS[strategy.value]) as advance:
            names = [name.strip() for name in terms.split(",")]
            comparison = compare_models(
                rows, seed, advance, terms=names, cv=cv, class_weight=class_weight, strategy=strategy.value
            )
        paths = write_fit(out, dataset, rows, comparison)
        tuned = comparison.tuned
        coefficients = largest_coefficients(tuned.coef_, rows.preparation.input_names, tuned.classes_)
    if as_json:
        put([json.dumps(result_as_json(comparison, coefficients, paths), allow_nan=False) + "\n"])
    else:
        print_result(comparison, coefficients, paths)
