"""Read a CSV or Parquet file whose columns are inputs and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.data.columns import Column, Judged, as_numbers, as_text, infinite, is_text, judge, not_utf8, plain
from tuneloss.data.dataset import Dataset, label_problems, refuse
from tuneloss.data.table_files import TableFile, index_columns
from tuneloss.data.table_remarks import (
    column_notes,
    gaps_note,
    index_notes,
    input_problems,
    missing_problems,
    name_problems,
    request_problems,
    row_problems,
    size_problems,
    twice_problems,
    unknown_problems,
)

ALL = "all"  # what is kept if all columns are


def read_table(file: TableFile, target: str, drop: Sequence[str], use: Sequence[str]) -> Dataset:
    """Read the target as labels and the other columns as inputs, except those that are left out."""
    (table, bad_rows), title = file.table(), file.title
    index = [name for name in index_columns(table) if name not in (target, *drop, *use)]
    columns = [name for name in table.column_names if name not in (*drop, *index)]
    requested = request_problems(table, target, drop, use)
    if requested:
        refuse(title, [*bad_rows, *requested])
    judged = {
        name: judge(name, column, is_wanted=name in use, decimal_comma=file.decimal_comma)
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name in columns and (name != target or target == "")
    }
    if target == "":
        example = f": `target={columns[-1]!r}`" if columns else " with `target`"
        refuse(
            title, [*bad_rows, *name_problems(columns, judged), f"Which column is to be predicted? Name it{example}"]
        )
    labels = _labels(target, table[target], is_csv=not file.is_parquet) if columns.count(target) == 1 else ""
    problems = [*bad_rows, *name_problems(columns, judged), *input_problems(judged, target, use)]
    problems += size_problems(judged, len(table), file.max_gb)
    if isinstance(labels, str):
        problems += [labels] if labels else []
    elif problems:
        problems += label_problems(labels)
    refuse(title, problems)
    return _dataset(title, judged, np.asarray(labels), [*index_notes(title, index), *column_notes(judged)])


def read_columns(file: TableFile, names: Sequence[str], text_names: Sequence[str], keep: Sequence[str]) -> Dataset:
    """Read the named columns as numbers and as text, without labels, and the cells of the columns to keep."""
    (table, bad_rows), title = file.table(text_names), file.title
    wanted = {name: name.strip() for name in (*names, *text_names)}  # a model of an old version may have spaces there
    kept = list(table.column_names) if ALL in keep else list(dict.fromkeys(keep))
    missing = [name for name, column in wanted.items() if column not in table.column_names]
    relevant = [name for name in table.column_names if name in wanted.values() or name in kept]
    problems = [*bad_rows, *missing_problems(missing), *unknown_problems(table, kept), *twice_problems(relevant)]
    refuse(title, problems + row_problems(table))
    judged = {name: _known_numbers(name, table[wanted[name]], file.decimal_comma) for name in names}
    judged |= {name: _known_text(name, table[wanted[name]]) for name in text_names}
    refuse(title, [found.remark for found in judged.values() if found.kind == "problem"])
    note = gaps_note(judged)
    cells = dict(zip(kept, file.cells(table, kept), strict=True))
    return _dataset(title, judged, None, [note] if note else [], cells)


def _dataset(
    title: str,
    judged: Mapping[str, Judged],
    labels: NDArray[Any] | None,
    notes: Sequence[str],
    kept: Mapping[str, Sequence[str]] | None = None,
) -> Dataset:
    """Put columns side by side: numbers, and text."""
    numbers = {name: found.values for name, found in judged.items() if found.kind == "numbers"}
    texts = {name: found.values for name, found in judged.items() if found.kind == "text"}
    n_rows = len(next(iter((numbers | texts).values())))
    x = np.column_stack(list(numbers.values())) if numbers else np.zeros((n_rows, 0))
    text = np.column_stack(list(texts.values())) if texts else None
    return Dataset(title, tuple(numbers), x, labels, tuple(notes), tuple(texts), text, kept or {})


def _known_numbers(name: str, column: Column, decimal_comma: bool) -> Judged:
    """Return a column that a model takes as numbers."""
    numbers = as_numbers(column, decimal_comma=decimal_comma)
    if isinstance(numbers, str):
        return Judged.problem(f"Column {name!r} must hold numbers, as in training; found {numbers}.")
    return Judged.problem(infinite(name, numbers)) if np.isinf(numbers).any() else Judged("numbers", numbers)


def _known_text(name: str, column: Column) -> Judged:
    """Return a column that a model takes as categories."""
    import pyarrow as pa

    column = plain(column)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return Judged.problem(not_utf8(name, column))
    if pa.types.is_nested(column.type):
        return Judged.problem(f"Column {name!r} must hold text, as in training; found type {column.type}.")
    return Judged("text", as_text(column))


def _labels(name: str, column: Column, *, is_csv: bool) -> NDArray[Any] | str:
    """Return a column as labels, numbers or text; or, in words, why it holds no labels."""
    import pyarrow as pa

    if column.null_count:
        missing = "1 label is" if column.null_count == 1 else f"{column.null_count} labels are"
        return (
            f"The target must have a label in each row; {missing} missing in {name!r}"
            f"{_csv_nulls() if is_csv else ''}. Leave those rows out{', or write the label in another way' * is_csv}."
        )
    column, types = plain(column), pa.types
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return not_utf8(name, column)
    kinds = (types.is_boolean, types.is_integer, types.is_floating)
    if not is_text(column) and not any(is_kind(column.type) for is_kind in kinds):
        return f"The target must hold numbers or text; {name!r} has type {column.type}."
    values = np.asarray(column.to_pylist())
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        return f"The target must have a label in each row; {name!r} has {bad}. Leave those rows out."
    return np.char.strip(values) if values.dtype.kind == "U" else values


def _csv_nulls() -> str:
    """Return, as a remark, the texts that stand for a missing label in a CSV file."""
    from pyarrow import csv

    return f" (empty, or one of {', '.join(filter(None, csv.ConvertOptions().null_values))})"
