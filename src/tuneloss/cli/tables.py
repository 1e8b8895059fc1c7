"""Data for `tuneloss fit` and `tuneloss predict`: read, and checked before any work is done."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from tuneloss.core.checks import Array
from tuneloss.errors import InvalidInput

EMBEDDED = ("digits", "iris", "wine", "breast_cancer")
INPUTS, TARGETS = ("features", "X", "x"), ("labels", "y", "target")  # names of arrays in an npz file
DataArgument = Annotated[
    str, typer.Argument(help=f"CSV, Parquet or npz file, or an embedded set: {', '.join(EMBEDDED)}.")
]
MaxGb = Annotated[float, typer.Option(min=0.001, help="Largest file that is read.")]
FEWEST = 3  # rows of a class: one each to train, to validate and to test


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs (N, D) with their names, and labels (N,) if there are any."""

    title: str
    names: tuple[str, ...]
    x: Array
    y: NDArray[Any] | None

    def __post_init__(self) -> None:
        if self.x.size == 0:
            raise InvalidInput(f"{self.title} must have rows and input columns; found shape {self.x.shape}.")
        bad = ~np.isfinite(self.x)
        if bad.any():
            worst = int(np.argmax(bad.sum(axis=0)))
            row = int(np.argmax(bad[:, worst])) + 1
            raise InvalidInput(
                f"All inputs must be finite numbers; {self.title} has {int(bad.sum())} missing or infinite values, the "
                f"first in column {self.names[worst]!r} at row {row}. Fill them in, or leave the column out."
            )


def read(
    source: str, target: str | None, drop: Sequence[str], max_gb: float, *, only: Sequence[str] | None = None
) -> Data:
    """An embedded set by name, or a CSV, Parquet or npz file.

    target: the column of labels; None to have none. only: the columns that are wanted, if they are there.
    """
    if source in EMBEDDED and not Path(source).exists():
        for name in [*([target] if target else []), *drop]:
            raise InvalidInput(f"The embedded set {source} knows its target and inputs; found {name!r}. Leave it out.")
        return _embedded(source)
    path = Path(source)
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(
            f"DATA must be a CSV, Parquet or npz file, or one of {', '.join(EMBEDDED)}; {source!r}: {reason.strerror}."
        ) from None
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InvalidInput(f"DATA must be a file that can be read; found {source!r}.")
    if size > max_gb * 1e9:
        raise InvalidInput(
            f"DATA must have at most {max_gb:g} GB, since all of it is held in memory; {source!r} has {size / 1e9:.2g} "
            "GB. Take a part of its rows, or raise --max-gb."
        )
    if path.suffix.lower() == ".npz":
        return _npz(path, target, drop)
    table = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)
    if only is not None:
        table = table.select([name for name in table.column_names if name in only])
    return _table(path.name, table, target, drop)


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


def _embedded(name: str) -> Data:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    names = tuple(str(n) for n in found.feature_names)
    labels = np.asarray(found.target_names)[found.target]
    return Data(name, names, np.asarray(found.data, dtype=np.float64), labels)


def _npz(path: Path, target: str | None, drop: Sequence[str]) -> Data:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as reason:
        raise InvalidInput(f"{path} must be an npz file without pickled objects; {reason}.") from None
    inputs = next((arrays[name] for name in INPUTS if name in arrays), None)
    if inputs is None or inputs.ndim != 2 or inputs.dtype.kind not in "biuf":
        raise InvalidInput(
            f"{path} must hold numbers (N, D) in an array named {' or '.join(INPUTS)}; found {_shapes(arrays)}."
        )
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


def _csv(path: Path) -> Any:
    from pyarrow import ArrowException, csv

    try:
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=True))
        names = list(table.column_names)
    except (ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"{path} must be a CSV file in UTF-8, with names in its first line; {reason}.") from None
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise InvalidInput(f"{path} must have commas between its columns; found the one column {names[0][:60]!r}.")
    return table


def _parquet(path: Path) -> Any:
    from pyarrow import ArrowException, parquet

    try:
        return parquet.read_table(path)
    except (ArrowException, OSError) as reason:
        raise InvalidInput(f"{path} must be a Parquet file; {reason}.") from None


def _table(title: str, table: Any, target: str | None, drop: Sequence[str]) -> Data:
    columns = list(table.column_names)
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidInput(f"Columns must have different names; {title} has {twice[0]!r} twice. Is there a first line?")
    for name in [*([target] if target else []), *drop]:
        if name not in columns:
            raise InvalidInput(f"{title} has no column {name!r}; it has {', '.join(map(repr, columns[:20]))}.")
    if target in drop:
        raise InvalidInput(f"--target and --drop must name different columns; found {target!r} for both.")
    if target == "":
        raise InvalidInput(f"Which column of {title} is to be predicted? Name it: --target {columns[-1]}")
    names = tuple(name for name in columns if name != target and name not in drop)
    found = [_numbers(title, name, table[name]) for name in names]
    x = np.column_stack(found) if found else np.zeros((len(table), 0))
    return Data(title, names, x, None if target is None else _labels(title, target, table[target]))


def _numbers(title: str, name: str, column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    row, value = next(((i, v) for i, v in enumerate(column.to_pylist()) if not _is_number(v)), (0, None))
    raise InvalidInput(
        f"Column {name!r} of {title} must hold numbers; found {value!r} ({column.type}) at row {row + 1}. Turn it into "
        f"numbers first (one column a category), or leave it out: --drop {name}"
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _labels(title: str, name: str, column: Any) -> NDArray[Any]:
    if column.null_count:
        raise InvalidInput(
            f"The target must have a label in each row; {name!r} of {title} has {column.null_count} missing ones. "
            "Leave those rows out."
        )
    values = np.asarray(column.to_pylist())
    if values.dtype.kind not in "biufU":
        raise InvalidInput(f"The target must hold numbers or text; {name!r} of {title} has type {column.type}.")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InvalidInput(f"The target must have a label in each row; {name!r} of {title} has NaN. Leave those out.")
    return values
