"""Read an npz file whose arrays are inputs and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.data.dataset import MAX_INPUTS, Dataset
from tuneloss.errors import InvalidInput
from tuneloss.npz import read_arrays

INPUT_NAMES, LABEL_NAMES = (
    ("features", "X", "x"),
    ("labels", "y", "target"),
)  # of arrays; the first that exists is read
NUMBERS, NUMBERS_OR_TEXT = "biuf", "biufU"  # kinds of dtype
Arrays = Mapping[str, NDArray[Any]]


def read_npz(path: Path, target: str | None, drop: Sequence[str], max_gb: float) -> Dataset:
    """Read inputs, and labels unless the target is None. An empty target stands for the usual names."""
    advice = ". Take a part of its rows, or raise `max_gb`"
    arrays = read_arrays(path, "an npz file without pickled objects", max_gb * 1e9, advice)
    inputs = _inputs(path, arrays)
    if drop:
        raise InvalidInput(f"`drop` names columns of a table; {path} has arrays without column names.")
    labels = None if target is None else _labels(path, arrays, target, len(inputs))
    names = tuple(f"x{j}" for j in range(inputs.shape[1]))
    return Dataset(path.name, names, inputs.astype(np.float64), labels)


def _inputs(path: Path, arrays: Arrays) -> NDArray[Any]:
    inputs = next((arrays[name] for name in INPUT_NAMES if name in arrays), None)
    if inputs is None or inputs.ndim != 2 or inputs.dtype.kind not in NUMBERS:
        raise InvalidInput(
            f"{path} must hold numbers (N, D) in an array named {' or '.join(INPUT_NAMES)}; found {_shapes(arrays)}."
        )
    if not 0 < inputs.shape[1] <= MAX_INPUTS:
        raise InvalidInput(f"{path} must have 1 to {MAX_INPUTS:,} inputs; found shape {inputs.shape}.")
    return inputs


def _labels(path: Path, arrays: Arrays, target: str, n_rows: int) -> NDArray[Any]:
    candidates = [target] if target else LABEL_NAMES
    name = next((name for name in candidates if name in arrays), None)
    if name is None or arrays[name].shape != (n_rows,):
        raise InvalidInput(f"`target` must name an array of {n_rows} labels in {path}; found {_shapes(arrays)}.")
    labels = arrays[name]
    if labels.dtype.kind not in NUMBERS_OR_TEXT or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise InvalidInput(f"Labels must be finite numbers or text; {name} of {path} has type {labels.dtype}.")
    return labels


def _shapes(arrays: Arrays) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "no arrays"
