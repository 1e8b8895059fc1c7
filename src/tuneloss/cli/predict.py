"""`tuneloss predict`: what a saved model says to a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from tuneloss.cli.console import console, put
from tuneloss.cli.data import check_inputs
from tuneloss.cli.shown import keep_apart, stoppable, writing
from tuneloss.cli.sources import DataArgument, MaxGb, read
from tuneloss.errors import InvalidInput
from tuneloss.files import write_whole
from tuneloss.types import Array

if TYPE_CHECKING:
    from tuneloss.sklearn.model_file import SavedModel


def predict(
    model: Annotated[Path, typer.Argument(help="model.npz of `tuneloss fit`.")],
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; standard output if not given.")] = None,
    max_gb: MaxGb = 1.0,
) -> None:
    """Print the most probable class of each row, and the probabilities of all classes, as CSV.

    The columns that the model was trained with must be there, in any order; others are not looked at.
    """
    with stoppable():
        from tuneloss.sklearn.model_file import load_model

        if out is not None:
            keep_apart(out, model, Path(data))
        known = load_model(model)
        given = _inputs(known, data, max_gb)
        lines = _csv_lines(known, _probabilities(known, given))
        if out is None:
            put(lines)
            return
        with writing("--out"):
            write_whole(out, "".join(lines).encode())
        console.print(f"{len(given)} rows: {out}", soft_wrap=True)


def _inputs(known: SavedModel, source: str, max_gb: float) -> Array:
    """The rows of the data, in the order of the model's columns."""
    given = read(source, None, [], max_gb, only=known.names)
    missing = [name for name in known.names if name not in given.names]
    if missing:
        raise InvalidInput(
            f"{given.title} must have the columns that the model was trained with; it has no {missing[0]!r}"
            f"{f' and {len(missing) - 1} others' if len(missing) > 1 else ''}."
        )
    check_inputs(given)
    return given.x[:, [given.names.index(name) for name in known.names]]


def _probabilities(known: SavedModel, x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        found = known.probabilities(x)
    bad = ~np.isfinite(found).all(axis=1)
    if bad.any():
        raise InvalidInput(f"Inputs must give numbers; row {int(np.argmax(bad)) + 1} has values that are too large.")
    return found


def _csv_lines(known: SavedModel, probabilities: Array) -> Iterator[str]:
    def line(cells: Sequence[object]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerow(cells)
        return buffer.getvalue()

    yield line(["predicted", *(f"p({label})" for label in known.classes)])
    for row in probabilities:
        yield line([known.classes[int(row.argmax())], *(f"{p:.6g}" for p in row)])
