"""Read the bytes of a CSV file: gzip, encoding, separator and cells."""

from __future__ import annotations

import codecs
import csv as cells
import gzip
import io
import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from tuneloss.errors import InvalidInput

SEPARATORS = ",;\t|"  # between columns; the first one is used where the file does not tell
SNIFFED_BYTES = 2**20  # bytes at the start of a file that show its encoding and its separator
SNIFFED_ROWS = 50  # rows that show the separator
BLOCK = 2**25  # bytes that pyarrow parses at once; a row must fit into them
MAX_LISTED = 10  # rows that a message lists
SHOWN_LETTERS = 60  # letters of a first line that an error message shows
GZIP = b"\x1f\x8b"  # how such a file begins
Table = Any  # pyarrow.Table; pyarrow is imported only where a table is read


def expand(content: bytes, what: str, max_gb: float) -> bytes:
    """Return the content of a gzip file, and other content as it is. No more than `max_gb` is expanded."""
    if not content.startswith(GZIP):
        return content
    limit = int(max_gb * 1e9)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            expanded = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as reason:
        raise InvalidInput(f"{what} must be a whole gzip file; found that {reason}.") from None
    if len(expanded) > limit:
        raise InvalidInput(
            f"The data must have at most {max_gb:g} GB, since all of it is held in memory; {what} has more, expanded. "
            "Take a part of its rows, or raise `max_gb`."
        )
    return expanded


def sniff_separator(content: bytes, what: str) -> str:
    """Return the separator that splits the first rows into most columns, all rows alike if possible.

    Raises
    ------
    InvalidInput
        If the first line is not in UTF-8.
    """
    line = content[:SNIFFED_BYTES].split(b"\n", 1)[0] + b"\n"
    try:
        codecs.getincrementaldecoder("utf-8-sig")().decode(line)
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{what} must be a CSV file in UTF-8; its first line, {line[:SHOWN_LETTERS]!r}, is not. Save it in that "
            "encoding."
        ) from None
    text = content[:SNIFFED_BYTES].decode("utf-8-sig", "replace")
    widths = {mark: _widths(text, mark, is_cut=len(content) > SNIFFED_BYTES) for mark in SEPARATORS}
    even = {mark: found[0] for mark, found in widths.items() if len(set(found)) == 1 and found[0] > 1}
    first = even or {mark: found[0] for mark, found in widths.items()}
    return max(first, key=lambda mark: (first[mark], -SEPARATORS.index(mark)))


def _widths(text: str, mark: str, *, is_cut: bool) -> list[int]:
    """Return the number of cells in each of the first rows that are not blank."""
    reader = cells.reader(io.StringIO(text, newline=""), delimiter=mark)
    try:
        widths = [len(row) for row in itertools.islice(reader, SNIFFED_ROWS) if row]
    except cells.Error:  # a cell beyond the limit of that module, which pyarrow may still read
        return [1]
    return (widths[:-1] if is_cut and 1 < len(widths) < SNIFFED_ROWS else widths) or [1]


def read_csv(content: bytes, what: str, text_columns: Sequence[str] = ()) -> tuple[Table, list[str]]:
    """Read a table whose first line holds the names of its columns, and say which rows have another number of cells.

    Parameters
    ----------
    content : bytes
        The file.
    what : str
        Its name, for messages.
    text_columns : sequence of str
        Columns whose cells are text, even if they look like numbers.

    Returns
    -------
    table : pyarrow.Table
        The rows that have a cell for each name.
    problems : list of str
        What is wrong with the other rows; empty if there are none.
    """
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() for name in text_columns}
    options = csv.ConvertOptions(strings_can_be_null=True, column_types=types)
    try:
        return _parse(content, what, options), []
    except InvalidInput:
        skipped = list[Any]()

        def skip(row: Any) -> str:
            skipped.append(row)
            return "skip"

        table = _parse(content, what, options, skip)
        if not skipped:
            raise
    return table, [_skipped_problem(skipped)]


def _skipped_problem(skipped: Sequence[Any]) -> str:
    """Say which rows have another number of cells than the first line."""
    rows = ", ".join(f"{row.actual_columns} in row {row.number - 1}" for row in skipped[:MAX_LISTED])
    more = f", and others in {len(skipped) - MAX_LISTED} more rows" if len(skipped) > MAX_LISTED else ""
    return (
        f"Each row must have {skipped[0].expected_columns} cells, one for each name in the first line; found {rows}"
        f"{more}. Correct these rows, or leave them out. Problems named below count rows without these."
    )


def read_cells(content: bytes, what: str, positions: Sequence[int]) -> list[list[str]]:
    """Read the cells of columns, by position, as they are in the file."""
    import pyarrow as pa
    from pyarrow import csv

    names = _parse(content, what, csv.ConvertOptions()).column_names
    options = csv.ConvertOptions(column_types={names[i]: pa.string() for i in positions}, null_values=[])
    table = _parse(content, what, options)
    return [table.column(i).to_pylist() for i in positions]


def _parse(content: bytes, what: str, options: Any, on_bad_row: Callable[[Any], str] | None = None) -> Table:
    """Read a table. `on_bad_row` decides about rows with another number of cells; without it, they are an error."""
    import pyarrow as pa
    from pyarrow import csv

    separator = sniff_separator(content, what)
    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            read_options=csv.ReadOptions(block_size=BLOCK, use_threads=on_bad_row is None),  # one thread counts rows
            parse_options=csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=on_bad_row
            ),
            convert_options=options,
        )
        table.column_names  # noqa: B018 - decodes the names, which fails if they are not UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(
            f"{what} must be a CSV file in UTF-8 with column names in its first line; found that {reason}."
        ) from None
    return table
