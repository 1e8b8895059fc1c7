"""A data set for classification, and the rules it must keep before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.types import Array

MAX_INPUTS = 10**6  # columns; a saved model takes no more (sklearn/model_file.py)
MIN_CLASS_ROWS = 3  # rows per class: one to train, one to validate, one to test
MAX_FLOAT_LABEL = 2.0**53  # up to this size, float64 represents every whole number
MAX_LISTED = 5  # classes that an error message lists


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs with their names, and labels.

    Parameters
    ----------
    title : str
        The name of the source, for messages and reports.
    names : tuple of str
        The names of the D inputs.
    x : (N, D) array
        The inputs.
    y : (N,) array, optional
        The labels: numbers or text. None if only inputs were read.
    notes : tuple of str
        Remarks of the reader, such as columns that it left out.
    """

    title: str
    names: tuple[str, ...]
    x: Array
    y: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()


def check_dataset(dataset: Dataset) -> NDArray[Any]:
    """Check that a classifier can be fitted to the data and tested on a part of it.

    Returns
    -------
    (N,) array
        The labels.

    Raises
    ------
    InvalidInput
        If an input is missing or not finite, or if the labels are not classes of at least 3 rows each.
    """
    check_inputs(dataset, ", or leave out the column or those rows")
    if dataset.y is None:
        raise InvalidInput(f"A classifier needs labels; {dataset.title} has none. Name their column with `target`.")
    _check_labels(dataset.y, dataset.title)
    return dataset.y


def check_inputs(dataset: Dataset, advice: str = "") -> None:
    """Raise unless there are inputs and all are finite. The advice ends the message about missing values."""
    x, title = dataset.x, dataset.title
    if x.size == 0:
        raise InvalidInput(f"{title} must have rows and input columns; found shape {x.shape}.")
    if x.shape[1] > MAX_INPUTS:
        raise InvalidInput(f"{title} must have at most {MAX_INPUTS:,} inputs; found {x.shape[1]:,}.")
    bad = ~np.isfinite(x)
    if bad.any():
        column = int(np.argmax(bad.sum(axis=0)))
        row = int(np.argmax(bad[:, column])) + 1
        raise InvalidInput(
            f"All inputs must be finite numbers; {title} has {int(bad.sum())} missing or infinite values, for example "
            f"in column {dataset.names[column]!r} at row {row}. Fill them in{advice}."
        )


def _check_labels(y: NDArray[Any], title: str) -> None:
    """Raise unless the labels are classes, each with enough rows."""
    classes, counts = np.unique(y, return_counts=True)
    if len(y) < 2 * MIN_CLASS_ROWS:
        raise InvalidInput(f"{title} must have at least {2 * MIN_CLASS_ROWS} rows; found {len(y)}.")
    if len(classes) < 2:
        raise InvalidInput(f"The target must have at least 2 classes; found only {classes[0]!s} in {len(y)} rows.")
    if y.dtype.kind == "f":
        _check_float_labels(y, classes)
    if len(classes) > len(y) / 2:
        raise InvalidInput(
            f"The target must hold classes; found {len(classes)} different values in {len(y)} rows. Is it an "
            "identifier?"
        )
    if counts.min() < MIN_CLASS_ROWS:
        rare = [f"{c!s} ({n})" for c, n in zip(classes, counts, strict=True) if n < MIN_CLASS_ROWS]
        more = " and others" if len(rare) > MAX_LISTED else ""
        raise InvalidInput(
            f"Each class must have at least {MIN_CLASS_ROWS} rows, to train, to validate and to test; found fewer for "
            f"{', '.join(rare[:MAX_LISTED])}{more}. Merge them with other classes, or leave them out."
        )


def _check_float_labels(y: NDArray[Any], classes: NDArray[Any]) -> None:
    if (y != np.round(y)).any():
        raise InvalidInput(
            f"The target must hold classes; found {len(classes)} different numbers such as {classes[0]:g} and "
            f"{classes[1]:g}. This is for classification, not regression: group the numbers into classes first."
        )
    if (np.abs(y) > MAX_FLOAT_LABEL).any():
        raise InvalidInput(
            f"Labels that are numbers must be whole and at most {MAX_FLOAT_LABEL:g} in size; found {classes[-1]:g} and "
            f"{classes[0]:g}. Write them as text."
        )
