"""`tuneloss predict`: predict the classes of a table's rows with a saved model."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneloss.cli.console import console, note, put
from tuneloss.cli.fit import DataArgument, MaxGb
from tuneloss.cli.guards import check_apart, stoppable, writing
from tuneloss.data import read_inputs
from tuneloss.files import write_whole
from tuneloss.types import Array

if TYPE_CHECKING:
    from tuneloss.sklearn.saved_model import SavedModel


def predict(
    model: Annotated[Path, typer.Argument(help="The model.npz of `tuneloss fit`.")],
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; without it, standard output.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help='A column to copy to the output, such as an identifier. Repeat for more; "all" for all.'),
    ] = None,
    max_gb: MaxGb = 1.0,
) -> None:
    """Print the most probable class of each row, and the probabilities of all classes, as CSV.

    The data must have the columns that the model was trained with, in any order. Other columns are ignored. Missing
    numbers are replaced by the median of the training rows, and a category that the model does not know counts as
    "other".
    """
    with stoppable():
        from tuneloss.sklearn.model_file import load_model

        if out is not None:
            check_apart(out, model, Path(data))
        saved = load_model(model)
        inputs = read_inputs(data, saved.names, saved.text_names, keep=keep or [], max_gb=max_gb)
        for remark in inputs.notes:
            note(remark)
        lines = _csv_lines(saved, inputs.kept, saved.predict_proba(inputs))
        if out is None:
            put(lines)
            return
        with writing("--out"):
            write_whole(out, "".join(lines).encode())
        console.print(f"{len(inputs.x)} rows: {out}", soft_wrap=True)


def _csv_lines(saved: SavedModel, kept: Mapping[str, Sequence[str]], probabilities: Array) -> Iterator[str]:
    """Yield the lines of the CSV file: a header, then one line per row, which begins with the columns to keep."""
    yield _csv_line([*kept, "predicted", *(f"p({label})" for label in saved.classes)])
    for i, row in enumerate(probabilities):
        cells = [column[i] for column in kept.values()]
        yield _csv_line([*cells, saved.classes[int(row.argmax())], *(f"{p:.6g}" for p in row)])


def _csv_line(cells: Sequence[object]) -> str:
    """Return cells as one line of CSV."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()
