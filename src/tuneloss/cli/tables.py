"""Data from a CSV or Parquet file: inputs and labels are columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.cli.data import Data
from tuneloss.cli.shown import note
from tuneloss.core.checks import Array
from tuneloss.errors import InvalidInput


def read_table(path: Path, target: str | None, drop: Sequence[str], only: Sequence[str] | None) -> Data:
    """Inputs, and labels unless the target is None."""
    table = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)
    if only is not None:
        wanted = [i for i, name in enumerate(table.column_names) if name in only]  # numbers: a name may be there twice
        return _data(path.name, table.select(wanted), target, drop, [])
    index = [name for name in _index(table) if name not in (target, *drop)]
    if index:
        shown = ", ".join(map(repr, index))
        note(f"Not an input: the pandas index {shown} of {path.name} (reset_index() would make it one).")
    return _data(path.name, table, target, drop, index)


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


def _index(table: Any) -> list[str]:
    """The columns that pandas wrote as an index."""
    said = (table.schema.pandas_metadata or {}).get("index_columns", [])  # a dict stands for 0, 1, 2, ...: no column
    return [name for name in table.column_names if name in said or re.fullmatch(r"__index_level_\d+__", name)]


def _data(title: str, table: Any, target: str | None, drop: Sequence[str], index: Sequence[str]) -> Data:
    for name in [*([target] if target else []), *drop]:
        if name not in table.column_names:
            known = ", ".join(map(repr, table.column_names[:20]))
            raise InvalidInput(f"{title} has no column {name!r}; it has {known}.")
    if target and target in drop:
        raise InvalidInput(f"--target and --drop must name different columns; found {target!r} for both.")
    columns = [name for name in table.column_names if name not in (*drop, *index)]
    if "" in columns and target is not None:
        raise InvalidInput(
            f"Each column must have a name; number {table.column_names.index('') + 1} of {title} has none. If it is "
            "the index that pandas wrote, save the table with index=False, or leave it out: --drop ''"
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidInput(f"Columns must have different names; {title} has {twice[0]!r} twice. Is there a first line?")
    if target == "":
        raise InvalidInput(f"Which column of {title} is to be predicted? Name it: --target {' '.join(columns[-1:])}")
    names = tuple(name for name in columns if name != target)
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
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise InvalidInput(f"The target must have a label in each row; {name!r} of {title} has {bad}. Leave those out.")
    return values
