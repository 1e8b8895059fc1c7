"""Data from an npz file: inputs and labels are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.cli.data import MOST_INPUTS, Data
from tuneloss.errors import InvalidInput
from tuneloss.npz import read_arrays

INPUTS, TARGETS = ("features", "X", "x"), ("labels", "y", "target")  # names of arrays


def read_npz(path: Path, target: str | None, drop: Sequence[str], max_gb: float) -> Data:
    """Inputs, and labels unless the target is None."""
    advice = ". Take a part of its rows, or raise --max-gb"
    arrays = read_arrays(path, "an npz file without pickled objects", max_gb * 1e9, advice)
    inputs = next((arrays[name] for name in INPUTS if name in arrays), None)
    if inputs is None or inputs.ndim != 2 or inputs.dtype.kind not in "biuf":
        raise InvalidInput(
            f"{path} must hold numbers (N, D) in an array named {' or '.join(INPUTS)}; found {_shapes(arrays)}."
        )
    if not 0 < inputs.shape[1] <= MOST_INPUTS:
        raise InvalidInput(f"{path} must have 1 to {MOST_INPUTS:,} inputs; found shape {inputs.shape}.")
    if drop:
        raise InvalidInput(f"--drop names columns of a table; {path} has arrays without column names.")
    labels = None
    if target is not None:
        wanted = [target] if target in arrays else [name for name in TARGETS if name in arrays and target == ""]
        if not wanted or arrays[wanted[0]].shape != (len(inputs),):
            raise InvalidInput(
                f"--target must name an array of {len(inputs)} labels in {path}; found {_shapes(arrays)}."
            )
        labels = arrays[wanted[0]]
        if labels.dtype.kind not in "biufU" or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
            raise InvalidInput(f"Labels must be finite numbers or text; {wanted[0]} of {path} has type {labels.dtype}.")
    names = tuple(f"x{j}" for j in range(inputs.shape[1]))
    return Data(path.name, names, inputs.astype(np.float64), labels)


def _shapes(arrays: dict[str, NDArray[Any]]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "no arrays"
