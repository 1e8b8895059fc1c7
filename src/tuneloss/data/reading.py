"""Read a data set from a CSV, Parquet or npz file, or from scikit-learn's embedded ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuneloss.data.arrays import read_npz
from tuneloss.data.dataset import Dataset, check_inputs
from tuneloss.data.tables import read_columns, read_table
from tuneloss.errors import InvalidInput
from tuneloss.types import Array

EMBEDDED = ("digits", "iris", "wine", "breast_cancer")  # data sets that scikit-learn carries


def read_dataset(source: str, target: str = "", drop: Sequence[str] = (), max_gb: float = 1.0) -> Dataset:
    """Read inputs and labels.

    Parameters
    ----------
    source : str
        Path of a CSV, Parquet or npz file, or one of "digits", "iris", "wine", "breast_cancer".
    target : str, default ""
        The column of labels, or the array of labels of an npz file. It may be empty for an embedded set, and for an
        npz file whose labels are named ``labels``, ``y`` or ``target``.
    drop : sequence of str
        Columns to leave out.
    max_gb : float, default 1.0
        The largest size to read, in GB, both on disk and expanded: all of it is held in memory.

    Returns
    -------
    Dataset
        All columns except the target and the dropped ones are inputs. The index that pandas writes into a Parquet
        file is not an input; `Dataset.notes` then names it.

    Raises
    ------
    InvalidInput
        If the file cannot be read, or if a column does not hold what it must.
    """
    if _is_embedded(source):
        for name in [*([target] if target else []), *drop]:
            raise InvalidInput(
                f"The embedded set {source} has a fixed target and fixed inputs; found {name!r}. Leave it out."
            )
        return _read_embedded(source)
    path = _checked_path(source, max_gb)
    if _is_npz(path):
        return read_npz(path, target, drop, max_gb)
    return read_table(path, target, drop, max_gb)


def read_inputs(source: str, names: Sequence[str], max_gb: float = 1.0) -> Array:
    """Read the inputs of these names, in this order; other columns are ignored.

    Parameters
    ----------
    source, max_gb
        As in `read_dataset`.
    names : sequence of str
        The D inputs; those of an npz file are called x0, x1, ...

    Returns
    -------
    (N, D) array

    Raises
    ------
    InvalidInput
        If the file cannot be read, if an input is not there, or if it holds values that are not finite.
    """
    dataset = _read_unlabelled(source, names, max_gb)
    missing = [name for name in names if name not in dataset.names]
    if missing:
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise InvalidInput(
            f"{dataset.title} must have the columns that the model was trained with; it has no {missing[0]!r}{others}."
        )
    check_inputs(dataset)
    return dataset.x[:, [dataset.names.index(name) for name in names]]


def _read_unlabelled(source: str, names: Sequence[str], max_gb: float) -> Dataset:
    if _is_embedded(source):
        return _read_embedded(source)
    path = _checked_path(source, max_gb)
    return read_npz(path, None, (), max_gb) if _is_npz(path) else read_columns(path, names, max_gb)


def _is_embedded(source: str) -> bool:
    """Return whether this names an embedded set; a file of that name takes precedence."""
    return source in EMBEDDED and not Path(source).exists()


def _is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _checked_path(source: str, max_gb: float) -> Path:
    """Return the path of a file that can be read and is not too large."""
    path = Path(source)
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(
            f"The data must be a CSV, Parquet or npz file, or one of {', '.join(EMBEDDED)}; found {source!r}: "
            f"{reason.strerror}."
        ) from None
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InvalidInput(f"The data must be a file that can be read; found {source!r}.")
    if size > max_gb * 1e9:
        raise InvalidInput(
            f"The data must have at most {max_gb:g} GB, since all of it is held in memory; {source!r} has "
            f"{size / 1e9:.2g} GB. Take a part of its rows, or raise `max_gb`."
        )
    return path


def _read_embedded(name: str) -> Dataset:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    names = tuple(str(n) for n in bunch.feature_names)
    labels = np.asarray(bunch.target_names)[bunch.target]
    return Dataset(name, names, np.asarray(bunch.data, dtype=np.float64), labels)
