"""Read a CSV or Parquet file whose columns are inputs and labels."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.data.dataset import Dataset
from tuneloss.errors import InvalidInput
from tuneloss.types import Array

FLOAT_BYTES = 8  # bytes of a float64, in which each cell is held
MAX_FIRST_LINE = 2**20  # bytes of the first line that are looked at
MAX_LISTED = 20  # columns that an error message lists
SHOWN_LETTERS = 60  # letters of a first line that an error message shows
Table = Any  # pyarrow.Table; pyarrow is imported only where a table is read
Column = Any  # pyarrow.ChunkedArray


def read_table(path: Path, target: str, drop: Sequence[str], max_gb: float) -> Dataset:
    """Read the target as labels and the other columns as inputs, except the dropped ones and pandas' index."""
    table, title = _open(path, max_gb), path.name
    index = [name for name in _index_columns(table) if name not in (target, *drop)]
    _check_request(title, table, target, drop)
    columns = [name for name in table.column_names if name not in (*drop, *index)]
    _check_names(title, table, columns)
    if target == "":
        example = f": `target={columns[-1]!r}`" if columns else " with `target`"
        raise InvalidInput(f"Which column of {title} is to be predicted? Name it{example}")
    labels = _labels(title, target, table[target], is_csv=not _is_parquet(path))
    names = [name for name in columns if name != target]
    numbers = [_numbers(title, name, table[name], f", or leave it out: `drop=[{name!r}]`") for name in names]
    note = (
        f"The pandas index {', '.join(map(repr, index))} of {title} is not an input; reset_index() would make it one."
    )
    return Dataset(title, tuple(names), _stacked(numbers, len(table)), labels, (note,) if index else ())


def read_columns(path: Path, names: Sequence[str], max_gb: float) -> Dataset:
    """Read those of the named columns that are there, as inputs without labels."""
    table, title = _open(path, max_gb), path.name
    table = table.select([i for i, name in enumerate(table.column_names) if name in names])  # a name may be there twice
    _check_request(title, table, "", ())
    _check_unique(title, table.column_names)
    numbers = [_numbers(title, name, table[name]) for name in table.column_names]
    return Dataset(title, tuple(table.column_names), _stacked(numbers, len(table)))


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _open(path: Path, max_gb: float) -> Table:
    return _open_parquet(path, max_gb) if _is_parquet(path) else _open_csv(path)


def _open_csv(path: Path) -> Table:
    from pyarrow import ArrowException, csv

    try:
        _check_first_line(path)
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=True))
        table.column_names  # noqa: B018 - decodes the names, which fails if they are not UTF-8
    except (ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(
            f"{path} must be a CSV file in UTF-8 with column names in its first line; found that {reason}."
        ) from None
    return table


def _check_first_line(path: Path) -> None:
    """Raise unless the first line is UTF-8 with commas."""
    with path.open("rb") as file:
        line = file.readline(MAX_FIRST_LINE)
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(line)
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{path} must be a CSV file in UTF-8; its first line, {line[:SHOWN_LETTERS]!r}, is not. Save it in that "
            "encoding."
        ) from None
    if "," not in text and any(mark in text for mark in ";\t|"):
        raise InvalidInput(
            f"{path} must have commas between its columns, and points in its numbers; found none in the first line, "
            f"{text.strip()[:SHOWN_LETTERS]!r}. Save it with these separators."
        )


def _open_parquet(path: Path, max_gb: float) -> Table:
    from pyarrow import ArrowException, parquet

    try:
        metadata = parquet.read_metadata(path)
        stored = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        size = max(stored, FLOAT_BYTES * metadata.num_rows * metadata.num_columns)
        if size > max_gb * 1e9:
            raise InvalidInput(
                f"The data must have at most {max_gb:g} GB, since all of it is held in memory; {path} takes "
                f"{size / 1e9:.2g} GB expanded. Take a part of its rows, or raise `max_gb`."
            )
        table = parquet.read_table(path)
        table.validate(full=bool(table.column_names))  # checks that text is UTF-8, also in names
        return table
    except (ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"{path} must be a Parquet file with text in UTF-8; found that {reason}.") from None


def _index_columns(table: Table) -> list[str]:
    """Return the columns that pandas wrote as an index."""
    try:
        index = list((table.schema.pandas_metadata or {}).get("index_columns", []))  # a dict: a range, not a column
    except (ValueError, TypeError, AttributeError):  # the metadata is not by pandas
        index = []
    return [name for name in table.column_names if name in index or re.fullmatch(r"__index_level_\d+__", name)]


def _check_request(title: str, table: Table, target: str, drop: Sequence[str]) -> None:
    """Raise unless the table has rows, and the columns that are named."""
    for name in [*([target] if target else []), *drop]:
        if name not in table.column_names:
            columns = ", ".join(map(repr, table.column_names[:MAX_LISTED]))
            raise InvalidInput(f"{title} has no column {name!r}; it has {columns}.")
    if target and target in drop:
        raise InvalidInput(f"`target` and `drop` must name different columns; found {target!r} for both.")
    if len(table) == 0:
        raise InvalidInput(f"{title} must have rows; found none.")


def _check_names(title: str, table: Table, columns: Sequence[str]) -> None:
    """Raise unless each of these columns has a name of its own."""
    if "" in columns:
        raise InvalidInput(
            f"Each column must have a name; number {table.column_names.index('') + 1} of {title} has none. If it is "
            "the index that pandas wrote, save the table with index=False, or leave it out: `drop=['']`"
        )
    _check_unique(title, columns)


def _check_unique(title: str, columns: Sequence[str]) -> None:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidInput(
            f"Columns must have different names; {title} has {twice[0]!r} twice. Does its first line hold the names?"
        )


def _stacked(columns: Sequence[Array], n_rows: int) -> Array:
    return np.column_stack(columns) if columns else np.zeros((n_rows, 0))


def _numbers(title: str, name: str, column: Column, way_out: str = ".") -> Array:
    """Return a column as numbers, missing ones as NaN. `way_out` ends the message about a column of other values."""
    import pyarrow as pa

    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    column = _plain(title, name, column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    content, remedy = f"type {column.type}", "Turn it into numbers first"
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        row, value = _first(column, lambda text: not _is_number(text))
        content = f"{value!r} ({column.type}) at row {row}"
        remedy = "Save them as numbers" if _is_number(value) else f"{remedy} (one column per category)"
    raise InvalidInput(f"Column {name!r} of {title} must hold numbers; found {content}. {remedy}{way_out}")


def _plain(title: str, name: str, column: Column) -> Column:
    """Return the column with categories as their values and decimals as floats; bytes are refused."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        row, value = _first(column, lambda content: "\ufffd" in content.decode("utf-8", "replace"))
        raise InvalidInput(
            f"Column {name!r} of {title} must be in UTF-8; found {value!r} at row {row}. Save it in that encoding."
        )
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _first(column: Column, is_wrong: Callable[[Any], bool]) -> tuple[int, Any]:
    """Return the row, from 1, and the value of the first wrong cell; if none is wrong, of the first with a value."""
    cells = [(row, value) for row, value in enumerate(column.to_pylist(), start=1) if value is not None]
    return next((cell for cell in cells if is_wrong(cell[1])), cells[0])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels(title: str, name: str, column: Column, *, is_csv: bool) -> NDArray[Any]:
    """Return a column as labels: numbers or text, none missing."""
    import pyarrow as pa

    if column.null_count:
        raise InvalidInput(
            f"The target must have a label in each row; {column.null_count} labels of {name!r} of {title} are missing"
            f"{_csv_nulls() if is_csv else ''}. Leave those rows out{', or write the label in another way' * is_csv}."
        )
    column, types = _plain(title, name, column), pa.types
    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise InvalidInput(f"The target must hold numbers or text; {name!r} of {title} has type {column.type}.")
    values = np.asarray(column.to_pylist())
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise InvalidInput(
            f"The target must have a label in each row; {name!r} of {title} has {bad}. Leave those rows out."
        )
    return values


def _csv_nulls() -> str:
    """Return, as a remark, the texts that stand for a missing label in a CSV file."""
    from pyarrow import csv

    return f" (empty, or one of {', '.join(filter(None, csv.ConvertOptions().null_values))})"
