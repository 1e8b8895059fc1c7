"""A linear classifier as one file: NumPy's npz, read without pickle and within bounds, so that no file can do harm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.files import replacing
from tuneloss.npz import read_arrays
from tuneloss.sklearn.softmax import all_classes, log_probabilities
from tuneloss.types import Array

VERSION = 1
SMALL = 2**26  # bytes that a compressed model may expand to; we write none, and another may expand to its own size
MOST_INPUTS = 10**6  # columns of a table that a model is fitted to: each has a name
LONGEST_ABOUT = 2**22  # bytes of text about a model


@dataclass(frozen=True, eq=False)
class SavedModel:
    """softmax(coef @ ((x - mean) / scale) + intercept), with the names of inputs and classes.

    coef: (C, D), or (1, D) for two classes. about: anything to remember, as JSON.
    """

    names: tuple[str, ...]
    mean: Array
    scale: Array
    coef: Array
    intercept: Array
    classes: NDArray[Any]
    about: dict[str, Any]

    def probabilities(self, x: Array) -> Array:
        """Compute the probabilities (N, C) of inputs (N, D); raise `InvalidInput` if inputs are too large for that."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = ((x - self.mean) / self.scale) @ self.coef.T + self.intercept
            probabilities = np.exp(log_probabilities(all_classes(z)))
        bad = ~np.isfinite(probabilities).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad)) + 1
            raise InvalidInput(f"Inputs must give finite probabilities; row {row} has values that are too large.")
        return np.asarray(probabilities)

    def save(self, path: Path) -> Path:
        """Write the file."""
        with replacing(path) as draft, draft.open("wb") as file:
            np.savez(
                file,
                version=np.array(VERSION),
                names=np.array(self.names, dtype=np.str_),
                mean=self.mean,
                scale=self.scale,
                coef=self.coef,
                intercept=self.intercept,
                classes=self.classes,
                about=np.array(json.dumps(self.about)),
            )
        return path


def load_model(path: Path) -> SavedModel:
    """Read a file that `save` wrote.

    A file from elsewhere can do no harm: nothing in it is run, and reading it takes no more memory than a few times its
    size, or than `SMALL` if it is compressed.
    """
    what = "a model that `tuneloss fit` saved"
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(f"`{path}` must be {what}; found that {reason}.") from None
    parts = read_arrays(path, what, max(size, SMALL))
    try:
        _check_version(path, parts["version"])
        return _model(parts)
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise InvalidInput(f"`{path}` must be {what}; found something else ({reason}).") from None


def _check_version(path: Path, version: NDArray[Any]) -> None:
    if version.shape != () or version.dtype.kind not in "iu":
        raise ValueError(f"a version that is no whole number, {version!s:.80}")
    if version != VERSION:
        raise InvalidInput(f"`{path}` must have format version {VERSION}; found {version}. Another tuneloss wrote it.")


def _model(parts: Mapping[str, NDArray[Any]]) -> SavedModel:
    """The model, or ValueError where its parts do not fit together."""
    names, classes, about = parts["names"], parts["classes"], parts["about"]
    numbers = [parts[name] for name in ("mean", "scale", "coef", "intercept")]
    d, n = names.size, classes.size
    rows = 1 if n == 2 else n
    shapes = [part.shape for part in (names, *numbers, classes, about)]
    if shapes != [(d,), (d,), (d,), (rows, d), (rows,), (n,), ()] or n < 2:
        raise ValueError(f"parts that are not of fitting shapes, {shapes}")
    if names.dtype.kind != "U" or about.dtype.kind != "U" or classes.dtype.kind not in "biufU" or d > MOST_INPUTS:
        raise ValueError(f"names of type {names.dtype}, {d} of them, and classes of type {classes.dtype}")
    if any(part.dtype.kind not in "biuf" for part in numbers):
        raise ValueError("numbers of another type")
    with np.errstate(over="ignore"):  # of a wider type; it is found below
        mean, scale, coef, intercept = (part.astype(np.float64) for part in numbers)
    if not all(np.isfinite(part).all() for part in (mean, scale, coef, intercept)) or not (scale > 0).all():
        raise ValueError("numbers that are not finite, or a scale that is not above 0")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise ValueError("classes that are not finite")
    if about.dtype.itemsize > LONGEST_ABOUT:
        raise ValueError(f"a description of {about.dtype.itemsize:,} bytes")
    said = json.loads(str(about))
    if not isinstance(said, dict):
        raise ValueError(f"a description that is a {type(said).__name__}")
    return SavedModel(tuple(str(name) for name in names), mean, scale, coef, intercept, classes, said)
