"""A linear classifier as one file: NumPy's npz, read without pickle, so that a file from elsewhere can do no harm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.core.checks import Array
from tuneloss.errors import InvalidInput
from tuneloss.files import replacing
from tuneloss.sklearn.softmax import all_classes, log_probabilities

VERSION = 1


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
        """(N, C) of inputs (N, D)."""
        z = ((x - self.mean) / self.scale) @ self.coef.T + self.intercept
        return np.asarray(np.exp(log_probabilities(all_classes(z))))

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


def read_arrays(path: Path, what: str) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, which must be `what`; nothing in it is run."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as reason:
        raise InvalidInput(f"`{path}` must be {what}; found that {reason}.") from None
    except Exception:  # NumPy has many for bytes that are no such file, and advises to load them unsafely
        size = path.stat().st_size
        raise InvalidInput(f"`{path}` must be {what}; found another or a damaged file, of {size} bytes.") from None


def load_model(path: Path) -> SavedModel:
    """Read a file that `save` wrote; nothing in it is run."""
    what = "a model that `tuneloss fit` saved"
    parts = read_arrays(path, what)
    try:
        found = SavedModel(
            names=tuple(str(name) for name in parts["names"]),
            mean=np.asarray(parts["mean"], dtype=np.float64),
            scale=np.asarray(parts["scale"], dtype=np.float64),
            coef=np.asarray(parts["coef"], dtype=np.float64),
            intercept=np.asarray(parts["intercept"], dtype=np.float64),
            classes=parts["classes"],
            about=json.loads(str(parts["about"])),
        )
        version = int(parts["version"])
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise InvalidInput(f"`{path}` must be {what}; found something else ({reason}).") from None
    if version != VERSION:
        raise InvalidInput(f"`{path}` must have format version {VERSION}; found {version}. Another tuneloss wrote it.")
    d, n = len(found.names), found.classes.size
    rows = 1 if n == 2 else n
    sizes = [part.shape for part in (found.mean, found.scale, found.coef, found.intercept, found.classes)]
    finite = all(np.isfinite(part).all() for part in (found.mean, found.scale, found.coef, found.intercept))
    if sizes != [(d,), (d,), (rows, d), (rows,), (n,)] or n < 2 or not finite:
        raise InvalidInput(f"`{path}` must hold finite numbers of fitting shapes; found {sizes}. The file is damaged.")
    return found
