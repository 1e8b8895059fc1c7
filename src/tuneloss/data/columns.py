"""What a column of a table is: numbers, categories, something to leave out, or a problem."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tuneloss.types import Array

MIN_CATEGORY_ROWS = 5  # rows that a category needs to have an input of its own; rarer ones are "other"
MAX_CATEGORIES = 100  # inputs per column of categories; the rarest ones beyond are "other"
MIN_NUMBER_SHARE = 0.9  # share of numbers above which a column is meant to hold numbers
MIN_COUNT_ROWS = 10  # rows below which numbers may count up by chance
MAX_CODES = 20  # different numbers that categories may have among their names, as in "2" and "2a"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]+\d{1,2}:\d{2}.*)?")
MISSING_MARKS = {"", "?", "-", "--", ".", "*", "none", "missing", "unknown", "n.a."}  # among numbers, in lower case
ID_NAME = re.compile(r"(?i:(.*[\W_])?(id|uuid|guid)|row|index|unnamed: \d+|)|.*[a-z](Id|ID)")

Column = Any  # pyarrow.ChunkedArray
Kind = Literal["numbers", "text", "left out", "problem"]


@dataclass(frozen=True, eq=False)
class Judged:
    """What a column is.

    Parameters
    ----------
    kind : {"numbers", "text", "left out", "problem"}
        What can be done with the column.
    values : (N,) array
        Numbers, missing ones as NaN; or text, missing ones as "". Empty for the other kinds.
    remark : str
        Why it is left out, what the problem is, or what counts as missing.
    """

    kind: Kind
    values: NDArray[Any]
    remark: str = ""

    @classmethod
    def left_out(cls, reason: str) -> Judged:
        """Return a column without inputs, and why it has none."""
        return cls("left out", np.zeros(0), reason)

    @classmethod
    def problem(cls, message: str) -> Judged:
        """Return a column that the user must correct."""
        return cls("problem", np.zeros(0), message)

    @property
    def is_input(self) -> bool:
        """Whether the column is an input."""
        return self.kind in ("numbers", "text")


def judge(name: str, column: Column, *, is_wanted: bool = False, decimal_comma: bool = False) -> Judged:
    """Decide what a column is.

    Parameters
    ----------
    name : str
        The name of the column.
    column : pyarrow.ChunkedArray
        Its cells.
    is_wanted : bool, default False
        Whether whole numbers are an input even if they look like an identifier.
    decimal_comma : bool, default False
        Whether numbers may have a comma in place of the point.
    """
    import pyarrow as pa

    if column.null_count == len(column):
        return Judged.left_out("no values")
    column, types = plain(column), pa.types
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return Judged.problem(not_utf8(name, column))
    if is_text(column):
        return _judge_text(name, column, decimal_comma)
    if types.is_temporal(column.type):
        return Judged.left_out("dates or times")
    if types.is_integer(column.type) and not is_wanted and _is_identifier(name, column):
        return Judged.left_out("an identifier")
    numbers = as_numbers(column)
    if isinstance(numbers, str):
        return Judged.problem(f"Column {name!r} must hold numbers or text; found {numbers}.{_drop(name)}")
    return _finite(name, numbers)


def _finite(name: str, numbers: Array, remark: str = "") -> Judged:
    if np.isinf(numbers).any():
        return Judged.problem(f"{infinite(name, numbers)} Correct it.{_drop(name)}")
    return Judged("numbers", numbers, remark)


def _drop(name: str) -> str:
    return f" Or leave the column out: `drop=[{name!r}]`"


def plain(column: Column) -> Column:
    """Return categories as their values, and decimals as floats."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def is_text(column: Column) -> bool:
    """Return whether the cells are text."""
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def not_utf8(name: str, column: Column) -> str:
    """Say where a column of bytes is not UTF-8."""
    row, value = _first(column, lambda content: "\ufffd" in content.decode("utf-8", "replace"))
    return f"Column {name!r} must be in UTF-8; found {value!r} at row {row}. Save the file in that encoding."


def infinite(name: str, numbers: Array) -> str:
    """Say where a number is infinite."""
    row = int(np.isinf(numbers).argmax()) + 1
    return f"Column {name!r} must hold finite numbers; found {numbers[row - 1]} at row {row}."


def as_text(column: Column) -> NDArray[Any]:
    """Return the cells as text without spaces around it, missing ones as ""."""
    encoded = _encoded(plain(column))
    words = np.array([str(word).strip() for word in encoded.dictionary.to_pylist()] + [""], dtype=object)
    return words[_codes(encoded)]


def as_numbers(column: Column, *, decimal_comma: bool = False) -> Array | str:
    """Return the cells as numbers, missing ones as NaN; or, in words, what was found instead."""
    import pyarrow as pa

    column = plain(column)
    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    return _text_numbers(column, decimal_comma) if is_text(column) else f"type {column.type}"


def _text_numbers(column: Column, decimal_comma: bool) -> Array | str:
    encoded = _encoded(column)
    words = [word.strip() for word in encoded.dictionary.to_pylist()]
    numbers = np.array([_number(word, decimal_comma) for word in words] + [np.nan])
    wrong = {word for word, number in zip(words, numbers[:-1], strict=True) if np.isnan(number) and not _is_mark(word)}
    if wrong:
        row, value = _first(column, lambda text: text.strip() in wrong)
        return f"{value!r} at row {row}"
    return np.asarray(numbers[_codes(encoded)])


def _judge_text(name: str, column: Column, decimal_comma: bool) -> Judged:
    """Text may be numbers, dates, an identifier, or categories."""
    texts = as_text(column)
    words, counts = np.unique(texts[texts != ""], return_counts=True)
    if not len(words):
        return Judged.left_out("no values")
    if all(DATE.fullmatch(word) for word in words):
        return Judged.left_out("dates or times")
    is_number = np.array([not np.isnan(_number(word, decimal_comma)) for word in words])
    if is_number.any() and all(_is_mark(word) for word in words[~is_number]):
        numbers = np.asarray(as_numbers(column, decimal_comma=decimal_comma))
        return _finite(name, numbers, " and ".join(map(repr, words[~is_number].tolist())))
    if counts[is_number].sum() > MIN_NUMBER_SHARE * counts.sum() and is_number.sum() > MAX_CODES:
        wrong = set(words[~is_number].tolist())
        row, value = _first(column, lambda text: text.strip() in wrong)
        return Judged.problem(
            f"Column {name!r} must hold numbers or categories, not both; found numbers and "
            f"{int(counts[~is_number].sum())} other values, the first {value!r} at row {row}. Correct them."
            f"{_drop(name)}"
        )
    if len(words) > counts.sum() / 2 or counts.max() < MIN_CATEGORY_ROWS:
        return Judged.left_out(f"{len(words):,} different texts in {counts.sum():,} rows")
    return Judged("text", texts)


def _is_identifier(name: str, column: Column) -> bool:
    """Return whether whole numbers count the rows, or are all different under a name such as "id"."""
    if column.null_count:
        return False
    is_count = (np.diff(column.to_numpy().astype(np.float64)) == 1).all() and len(column) >= MIN_COUNT_ROWS
    return bool(is_count) or (ID_NAME.fullmatch(name) is not None and len(column.unique()) == len(column))


def _number(word: str, decimal_comma: bool) -> float:
    """Return the number that a word is, or NaN."""
    word = word.replace(",", ".") if decimal_comma else word
    return float(word) if NUMBER.fullmatch(word) else np.nan


def _is_mark(word: str) -> bool:
    return word.lower() in MISSING_MARKS


def _encoded(column: Column) -> Any:
    """Return a column that is not empty as one dictionary array: different values, and the code of each cell."""
    return column.combine_chunks().dictionary_encode()


def _codes(encoded: Any) -> NDArray[np.intp]:
    """Return the code of each cell; -1, the last place, for a missing one."""
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(), dtype=np.intp)


def _first(column: Column, is_wrong: Callable[[Any], bool]) -> tuple[int, Any]:
    """Return the row, from 1, and the value of the first wrong cell; if none is wrong, of the first with a value."""
    cells = [(row, value) for row, value in enumerate(column.to_pylist(), start=1) if value is not None]
    return next((cell for cell in cells if is_wrong(cell[1])), cells[0])
