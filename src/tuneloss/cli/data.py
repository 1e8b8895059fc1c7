"""Data for `tuneloss fit` and `tuneloss predict`, and what must hold of it before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.types import Array

MOST_INPUTS = 10**6  # as in a saved model (sklearn/saved.py)
FEWEST = 3  # rows of a class: one each to train, to validate and to test
LARGEST = 2.0**53  # up to which a float tells each whole number from the next


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs (N, D) with their names, and labels (N,) if there are any."""

    title: str
    names: tuple[str, ...]
    x: Array
    y: NDArray[Any] | None


def check_inputs(data: Data, advice: str = "") -> None:
    """Raise unless there are inputs, all finite; the advice says what else can be done about one that is not."""
    if data.x.size == 0:
        raise InvalidInput(f"{data.title} must have rows and input columns; found shape {data.x.shape}.")
    if data.x.shape[1] > MOST_INPUTS:
        raise InvalidInput(f"{data.title} must have at most {MOST_INPUTS:,} inputs; found {data.x.shape[1]:,}.")
    bad = ~np.isfinite(data.x)
    if bad.any():
        worst = int(np.argmax(bad.sum(axis=0)))
        row = int(np.argmax(bad[:, worst])) + 1
        raise InvalidInput(
            f"All inputs must be finite numbers; {data.title} has {int(bad.sum())} missing or infinite values, the "
            f"first in column {data.names[worst]!r} at row {row}. Fill them in{advice}."
        )


def check_labels(y: NDArray[Any], title: str) -> None:
    """Raise unless they are classes, each with enough rows."""
    classes, counts = np.unique(y, return_counts=True)
    if len(y) < 2 * FEWEST:
        raise InvalidInput(f"{title} must have at least {2 * FEWEST} rows; found {len(y)}.")
    if len(classes) < 2:
        raise InvalidInput(f"The target must have at least 2 classes; found one, {classes[0]!s}, in {len(y)} rows.")
    if y.dtype.kind == "f" and (y != np.round(y)).any():
        raise InvalidInput(
            f"The target must hold classes; found {len(classes)} different numbers such as {classes[0]:g} and "
            f"{classes[1]:g}. tuneloss fit is for classification: put them into classes first."
        )
    if y.dtype.kind == "f" and (np.abs(y) > LARGEST).any():
        raise InvalidInput(
            f"Labels that are numbers must be whole and at most {LARGEST:g} in size; found {classes[-1]:g} and "
            f"{classes[0]:g}. Write them as text."
        )
    if len(classes) > len(y) / 2:
        raise InvalidInput(
            f"The target must hold classes; found {len(classes)} different values in {len(y)} rows. An identifier?"
        )
    if counts.min() < FEWEST:
        few = [f"{c!s} ({n})" for c, n in zip(classes, counts, strict=True) if n < FEWEST]
        raise InvalidInput(
            f"Each class must have at least {FEWEST} rows, to train, to validate and to test; found fewer for "
            f"{', '.join(few[:5])}{' and others' if len(few) > 5 else ''}. Join them with others, or leave them out."
        )
