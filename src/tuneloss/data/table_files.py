"""The bytes of a CSV or Parquet file, and the table in them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuneloss.data.columns import plain
from tuneloss.data.csv_files import expand, read_cells, read_csv, sniff_separator
from tuneloss.errors import InvalidInput

FLOAT_BYTES = 8  # bytes of a float64, in which each cell is held
Table = Any  # pyarrow.Table; pyarrow is imported only where a table is read


@dataclass(frozen=True, eq=False)
class TableFile:
    """The bytes of a CSV or Parquet file.

    Parameters
    ----------
    title : str
        The name of the file, for messages and reports.
    content : bytes
        What it holds.
    is_parquet : bool
        Whether it is a Parquet file.
    max_gb : float
        The largest size of its table, in GB.
    """

    title: str
    content: bytes
    is_parquet: bool
    max_gb: float

    @cached_property
    def csv_text(self) -> bytes:
        """The content of a CSV file, expanded."""
        return expand(self.content, self.title, self.max_gb)

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers may have a comma in place of the point: if something else separates the columns."""
        return not self.is_parquet and sniff_separator(self.csv_text, self.title) != ","

    def table(self, text_columns: Sequence[str] = ()) -> tuple[Table, list[str]]:
        """Read the table, and say what is wrong with rows that it leaves out.

        The named columns of a CSV file are text, even if they look like numbers.
        """
        if self.is_parquet:
            table, problems = _read_parquet(self), list[str]()
        else:
            table, problems = read_csv(self.csv_text, self.title, text_columns)
        names = [name.strip() for name in table.column_names]
        if names != table.column_names:
            table = table.rename_columns(names)  # which forgets pandas' metadata
        return table, problems

    def cells(self, table: Table, names: Sequence[str]) -> list[list[str]]:
        """Return the cells of columns of its table as text: those of a CSV file as they are written."""
        positions = [table.column_names.index(name) for name in names]
        if not self.is_parquet:
            return read_cells(self.csv_text, self.title, positions)
        columns = [plain(table.column(i)).to_pylist() for i in positions]
        return [["" if value is None else str(value) for value in column] for column in columns]


def _read_parquet(file: TableFile) -> Table:
    from pyarrow import ArrowException, parquet

    try:
        metadata = parquet.read_metadata(io.BytesIO(file.content))
        stored = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        size = max(stored, FLOAT_BYTES * metadata.num_rows * metadata.num_columns)
        if size > file.max_gb * 1e9:
            raise InvalidInput(
                f"The data must have at most {file.max_gb:g} GB, since all of it is held in memory; {file.title} takes "
                f"{size / 1e9:.2g} GB expanded. Take a part of its rows, or raise `max_gb`."
            )
        table = parquet.read_table(io.BytesIO(file.content))
        table.validate(full=bool(table.column_names))  # checks that text is UTF-8, also in names
        return table
    except (ArrowException, OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"{file.title} must be a Parquet file with text in UTF-8; found that {reason}.") from None


def index_columns(table: Table) -> list[str]:
    """Return the columns that pandas wrote as an index."""
    try:
        index = list((table.schema.pandas_metadata or {}).get("index_columns", []))  # a dict: a range, not a column
    except (ValueError, TypeError, AttributeError):  # the metadata is not by pandas
        index = []
    return [name for name in table.column_names if name in index or re.fullmatch(r"__index_level_\d+__", name)]
