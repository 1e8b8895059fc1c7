"""A data set for classification, and the rules it must keep before any work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        The names of the D inputs that are numbers.
    x : (N, D) array
        These inputs; missing ones are NaN.
    y : (N,) array, optional
        The labels: numbers or text. None if only inputs were read.
    notes : tuple of str
        Remarks of the reader, such as columns that it left out.
    text_names : tuple of str
        The names of the E inputs that are categories.
    text : (N, E) array of str, optional
        These inputs; missing ones are "". None if there are none.
    kept : mapping of str to sequence of str
        The cells of columns that were asked for as they are, such as identifiers.
    """

    title: str
    names: tuple[str, ...]
    x: Array
    y: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    text_names: tuple[str, ...] = ()
    text: NDArray[Any] | None = None
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def texts(self) -> NDArray[Any]:
        """Return the categories, (N, E); (N, 0) if there are none."""
        return np.zeros((len(self.x), 0), dtype=object) if self.text is None else self.text


def refuse(title: str, problems: Sequence[str]) -> None:
    """Raise `InvalidInput` with all problems, if there are any. A list of several has one line per problem."""
    if len(problems) == 1:
        raise InvalidInput(f"{title}: {problems[0]}")
    if problems:
        raise InvalidInput(f"{title} has {len(problems)} problems:" + "".join(f"\n- {problem}" for problem in problems))


def check_dataset(dataset: Dataset) -> NDArray[Any]:
    """Check that a classifier can be fitted to the data and tested on a part of it.

    Returns
    -------
    (N,) array
        The labels.

    Raises
    ------
    InvalidInput
        If an input is infinite, or if the labels are not classes of at least 3 rows each. All problems are listed.
    """
    if dataset.y is None:
        raise InvalidInput(f"A classifier needs labels; {dataset.title} has none. Name their column with `target`.")
    refuse(dataset.title, [*input_problems(dataset), *label_problems(dataset.y)])
    return dataset.y


def input_problems(dataset: Dataset) -> list[str]:
    """Say what is wrong with the inputs: there are none, too many, or infinite ones."""
    x, width = dataset.x, dataset.x.shape[1] + len(dataset.text_names)
    if len(x) == 0 or width == 0:
        return [f"It must have rows and input columns; found shape {(len(x), width)}."]
    if width > MAX_INPUTS:
        return [f"It must have at most {MAX_INPUTS:,} inputs; found {width:,}."]
    bad = np.isinf(x)
    if not bad.any():
        return []
    column = int(np.argmax(bad.sum(axis=0)))
    row = int(np.argmax(bad[:, column])) + 1
    return [
        (
            f"All inputs must be finite numbers; it has {int(bad.sum())} infinite values, for example in column "
            f"{dataset.names[column]!r} at row {row}. Correct them, or leave out the column or those rows."
        )
    ]


def label_problems(y: NDArray[Any]) -> list[str]:
    """Say what is wrong with the labels: they must be classes, each with enough rows."""
    classes, counts = np.unique(y, return_counts=True)
    if len(y) < 2 * MIN_CLASS_ROWS:
        return [f"It must have at least {2 * MIN_CLASS_ROWS} rows; found {len(y)}."]
    if len(classes) < 2:
        return [f"The target must have at least 2 classes; found only {classes[0]!s} in {len(y)} rows."]
    problems = _float_label_problems(y, classes) if y.dtype.kind == "f" else []
    if problems:
        return problems
    if len(classes) > len(y) / 2:
        return [
            (
                f"The target must hold classes; found {len(classes)} different values in {len(y)} rows. Is it an "
                "identifier?"
            )
        ]
    if counts.min() < MIN_CLASS_ROWS:
        rare = [f"{c!s} ({n})" for c, n in zip(classes, counts, strict=True) if n < MIN_CLASS_ROWS]
        more = " and others" if len(rare) > MAX_LISTED else ""
        return [
            (
                f"Each class must have at least {MIN_CLASS_ROWS} rows, to train, to validate and to test; found fewer "
                f"for {', '.join(rare[:MAX_LISTED])}{more}. Merge them with other classes, or leave them out."
            )
        ]
    return []


def _float_label_problems(y: NDArray[Any], classes: NDArray[Any]) -> list[str]:
    if (y != np.round(y)).any():
        return [
            (
                f"The target must hold classes; found {len(classes)} different numbers such as {classes[0]:g} and "
                f"{classes[1]:g}. This is for classification, not regression: group the numbers into classes first."
            )
        ]
    if (np.abs(y) > MAX_FLOAT_LABEL).any():
        return [
            (
                f"Labels that are numbers must be whole and at most {MAX_FLOAT_LABEL:g} in size; found {classes[-1]:g} "
                f"and {classes[0]:g}. Write them as text."
            )
        ]
    return []
