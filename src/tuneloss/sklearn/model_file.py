"""Save a linear classifier as one file, and load it.

The format is NumPy's npz, read without pickle and within bounds. So a file of unknown origin cannot run code, and it
cannot fill the memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.data.dataset import MAX_INPUTS
from tuneloss.errors import InvalidInput
from tuneloss.files import replacing
from tuneloss.npz import read_arrays
from tuneloss.sklearn.softmax import all_classes, log_probabilities
from tuneloss.types import Array

VERSION = 1  # version of the format
MIN_EXPANDED = 2**26  # bytes that any file may expand to; a larger file, which we never compress, may have its own size
MAX_ABOUT = 2**22  # largest description, in bytes
NUMBERS, NUMBERS_OR_TEXT = "biuf", "biufU"  # kinds of dtype


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The classifier ``softmax(coef @ ((x - mean) / scale) + intercept)`` with the names of its inputs and classes.

    Parameters
    ----------
    names : tuple of str
        The names of the D inputs.
    mean, scale : (D,) arrays
        What is subtracted from each input, and what it is then divided by.
    coef, intercept : (C, D) and (C,) arrays, or (1, D) and (1,) for two classes
        As in scikit-learn.
    classes : (C,) array
        The labels.
    about : dict
        A description of the model, as JSON types.
    """

    names: tuple[str, ...]
    mean: Array
    scale: Array
    coef: Array
    intercept: Array
    classes: NDArray[Any]
    about: dict[str, Any]

    def probabilities(self, x: Array) -> Array:
        """Compute the probability of each class.

        Parameters
        ----------
        x : (N, D) array
            The inputs, not standardised.

        Returns
        -------
        (N, C) array

        Raises
        ------
        InvalidInput
            If inputs are so large that their probabilities are not numbers.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            z = ((x - self.mean) / self.scale) @ self.coef.T + self.intercept
            probabilities = np.exp(log_probabilities(all_classes(z)))
        bad = ~np.isfinite(probabilities).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad)) + 1
            raise InvalidInput(f"Inputs must give finite probabilities; row {row} has values that are too large.")
        return np.asarray(probabilities)

    def save(self, path: Path) -> Path:
        """Write the model to a file.

        Parameters
        ----------
        path : Path
            The file. An old file is replaced.

        Returns
        -------
        Path
            The path of the file.
        """
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
    """Read a file that `SavedModel.save` wrote.

    A file of unknown origin can do no harm. Nothing in it is run. Reading it takes no more memory than a few times its
    size or, if it is compressed, MIN_EXPANDED.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InvalidInput
        If the file is damaged, or not such a file.
    """
    what = "a model that `tuneloss fit` saved"
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(f"`{path}` must be {what}; found that {reason}.") from None
    arrays = read_arrays(path, what, max(size, MIN_EXPANDED))
    try:
        _check_version(path, arrays["version"])
        return _model(arrays)
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise InvalidInput(f"`{path}` must be {what}; found something else ({reason}).") from None


def _check_version(path: Path, version: NDArray[Any]) -> None:
    """Raise unless the file has the version of this format."""
    if version.shape != () or version.dtype.kind not in "iu":
        raise ValueError(f"a version that is not a whole number, {version!s:.80}")
    if version != VERSION:
        raise InvalidInput(
            f"`{path}` must have format version {VERSION}; found {version}. Another version of tuneloss wrote it."
        )


def _model(arrays: Mapping[str, NDArray[Any]]) -> SavedModel:
    """Return the model; raise ValueError if its arrays do not fit together."""
    names, classes, about = arrays["names"], arrays["classes"], arrays["about"]
    numbers = [arrays[name] for name in ("mean", "scale", "coef", "intercept")]
    _check_shapes(names, numbers, classes, about)
    if names.dtype.kind != "U" or about.dtype.kind != "U" or names.size > MAX_INPUTS:
        raise ValueError(f"{names.size} names of type {names.dtype}, and a description of type {about.dtype}")
    mean, scale, coef, intercept = _as_floats(numbers)
    if not (scale > 0).all():
        raise ValueError("a scale that is not above 0")
    _check_classes(classes)
    return SavedModel(tuple(map(str, names)), mean, scale, coef, intercept, classes, _description(about))


def _check_shapes(names: NDArray[Any], numbers: list[NDArray[Any]], classes: NDArray[Any], about: NDArray[Any]) -> None:
    """Raise unless the shapes of all arrays fit together."""
    d, n = names.size, classes.size
    rows = 1 if n == 2 else n
    shapes = [array.shape for array in (names, *numbers, classes, about)]
    if shapes != [(d,), (d,), (d,), (rows, d), (rows,), (n,), ()] or n < 2:
        raise ValueError(f"arrays whose shapes do not fit together, {shapes}")


def _as_floats(numbers: list[NDArray[Any]]) -> list[Array]:
    """Return arrays as float64; raise unless all numbers are finite."""
    if any(array.dtype.kind not in NUMBERS for array in numbers):
        raise ValueError("numbers of another type")
    with np.errstate(over="ignore"):  # a type wider than float64 may give infinity, which is refused below
        floats = [array.astype(np.float64) for array in numbers]
    if not all(np.isfinite(array).all() for array in floats):
        raise ValueError("numbers that are not finite")
    return floats


def _check_classes(classes: NDArray[Any]) -> None:
    """Raise unless the classes are text or finite numbers."""
    if classes.dtype.kind not in NUMBERS_OR_TEXT:
        raise ValueError(f"classes of type {classes.dtype}")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise ValueError("classes that are not finite")


def _description(about: NDArray[Any]) -> dict[str, Any]:
    """Read the description."""
    if about.dtype.itemsize > MAX_ABOUT:
        raise ValueError(f"a description of {about.dtype.itemsize:,} bytes")
    description = json.loads(str(about))
    if not isinstance(description, dict):
        raise ValueError(f"a description that is a {type(description).__name__}")
    return description
