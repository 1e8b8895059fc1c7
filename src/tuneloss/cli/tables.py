"""Data from a CSV or Parquet file: inputs and labels are columns."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.cli.console import note
from tuneloss.cli.data import Data
from tuneloss.errors import InvalidInput
from tuneloss.types import Array

FLOAT = 8  # bytes of a number, as which each cell is held
LONGEST = 2**20  # bytes of a first line that are looked at


def read_table(path: Path, target: str | None, drop: Sequence[str], only: Sequence[str] | None, max_gb: float) -> Data:
    """Inputs, and labels unless the target is None."""
    table = _parquet(path, max_gb) if path.suffix.lower() in (".parquet", ".pq") else _csv(path, target)
    if only is not None:
        wanted = [i for i, name in enumerate(table.column_names) if name in only]  # numbers: a name may be there twice
        return _data(path.name, table.select(wanted), target, drop, [])
    index = [name for name in _index(table) if name not in (target, *drop)]
    if index:
        shown = ", ".join(map(repr, index))
        note(f"Not an input: the pandas index {shown} of {path.name} (reset_index() would make it one).")
    return _data(path.name, table, target, drop, index)


def _csv(path: Path, target: str | None) -> Any:
    from pyarrow import ArrowException, csv

    options = csv.ConvertOptions(strings_can_be_null=True)
    try:
        _check_first_line(path)
        table = csv.read_csv(path, convert_options=options)
        names = table.column_names
    except (ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"{path} must be a CSV file in UTF-8, with names in its first line; {reason}.") from None
    missing = table[target].null_count if names.count(target) == 1 else 0
    if missing:
        texts = ", ".join(filter(None, options.null_values))
        raise InvalidInput(
            f"The target must have a label in each row; {target!r} of {path.name} has {missing} missing ones: those "
            f"that are empty or one of {texts}. Leave those rows out, or write the label in another way."
        )
    return table


def _check_first_line(path: Path) -> None:
    """Raise unless it is UTF-8 with commas."""
    with path.open("rb") as file:
        line = file.readline(LONGEST)
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(line)
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{path} must be a CSV file in UTF-8; its first line, {line[:60]!r}, is not. Save it in that encoding."
        ) from None
    if "," not in text and any(mark in text for mark in ";\t|"):
        raise InvalidInput(
            f"{path} must have commas between its columns, and points in its numbers; found none in the first line, "
            f"{text.strip()[:60]!r}. Save it with these separators."
        )


def _parquet(path: Path, max_gb: float) -> Any:
    from pyarrow import ArrowException, parquet

    try:
        about = parquet.read_metadata(path)
        stored = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        size = max(stored, FLOAT * about.num_rows * about.num_columns)
        if size > max_gb * 1e9:
            raise InvalidInput(
                f"DATA must have at most {max_gb:g} GB, since all of it is held in memory; {path} takes "
                f"{size / 1e9:.2g} GB expanded. Take a part of its rows, or raise --max-gb."
            )
        table = parquet.read_table(path)
        table.validate(full=bool(table.column_names))  # that text is UTF-8, also in names
        return table
    except (ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"{path} must be a Parquet file, with text in UTF-8; {reason}.") from None


def _index(table: Any) -> list[str]:
    """The columns that pandas wrote as an index."""
    try:
        said = list((table.schema.pandas_metadata or {}).get("index_columns", []))  # a dict is 0, 1, 2, ...: no column
    except (ValueError, TypeError, AttributeError):  # something else than pandas wrote it
        said = []
    return [name for name in table.column_names if name in said or re.fullmatch(r"__index_level_\d+__", name)]


def _data(title: str, table: Any, target: str | None, drop: Sequence[str], index: Sequence[str]) -> Data:
    for name in [*([target] if target else []), *drop]:
        if name not in table.column_names:
            known = ", ".join(map(repr, table.column_names[:20]))
            raise InvalidInput(f"{title} has no column {name!r}; it has {known}.")
    if target and target in drop:
        raise InvalidInput(f"--target and --drop must name different columns; found {target!r} for both.")
    if len(table) == 0:
        raise InvalidInput(f"{title} must have rows; found none.")
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
    found = [_numbers(title, name, table[name], may_drop=target is not None) for name in names]
    x = np.column_stack(found) if found else np.zeros((len(table), 0))
    return Data(title, names, x, None if target is None else _labels(title, target, table[target]))


def _numbers(title: str, name: str, column: Any, *, may_drop: bool) -> Array:
    import pyarrow as pa

    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    column = _plain(title, name, column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    what, mend = f"type {column.type}", "Turn it into numbers first"
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        row, value = _first(column, lambda text: not _is_number(text))
        what = f"{value!r} ({column.type}) at row {row}"
        mend = "Save them as numbers" if _is_number(value) else f"{mend} (one column a category)"
    rest = f", or leave it out: --drop {name}" if may_drop else "."
    raise InvalidInput(f"Column {name!r} of {title} must hold numbers; found {what}. {mend}{rest}")


def _plain(title: str, name: str, column: Any) -> Any:
    """Categories as their values, decimals as floats; bytes, which are no text, are refused."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        row, value = _first(column, lambda content: "\ufffd" in content.decode("utf-8", "replace"))
        raise InvalidInput(
            f"Column {name!r} of {title} must be in UTF-8; found {value!r} at row {row}. Save it in that encoding."
        )
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _first(column: Any, wrong: Callable[[Any], bool]) -> tuple[int, Any]:
    """Row, from 1 on, and value of the first that is wrong, or else of the first that is not missing."""
    known = [(row, value) for row, value in enumerate(column.to_pylist(), start=1) if value is not None]
    return next((found for found in known if wrong(found[1])), known[0])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels(title: str, name: str, column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if column.null_count:
        raise InvalidInput(
            f"The target must have a label in each row; {name!r} of {title} has {column.null_count} missing ones. "
            "Leave those rows out."
        )
    column, types = _plain(title, name, column), pa.types
    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise InvalidInput(f"The target must hold numbers or text; {name!r} of {title} has type {column.type}.")
    values = np.asarray(column.to_pylist())
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise InvalidInput(f"The target must have a label in each row; {name!r} of {title} has {bad}. Leave those out.")
    return values
