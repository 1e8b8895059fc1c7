"""What is said about the columns of a table: problems, which end the work, and notes, which do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuneloss.data.columns import MAX_CATEGORIES, Judged
from tuneloss.data.table_files import FLOAT_BYTES, Table

MAX_LISTED = 20  # columns that a message lists


def request_problems(table: Table, target: str, drop: Sequence[str], use: Sequence[str]) -> list[str]:
    """Say what is wrong with the names of columns in a request, and whether there are rows."""
    problems = unknown_problems(table, [*([target] if target else []), *drop, *use])
    if target and target in drop:
        problems.append(f"`target` and `drop` must name different columns; found {target!r} for both.")
    return problems + row_problems(table)


def row_problems(table: Table) -> list[str]:
    """Say whether there are rows."""
    return [] if len(table) else ["It must have rows; found none."]


def unknown_problems(table: Table, names: Sequence[str]) -> list[str]:
    """Say which columns a request names although they are not there."""
    columns = ", ".join(map(repr, table.column_names[:MAX_LISTED]))
    unknown = [name for name in dict.fromkeys(names) if name not in table.column_names]
    return [f"It has no column {name!r}; it has {columns}." for name in unknown]


def missing_problems(missing: Sequence[str]) -> list[str]:
    """Say which inputs of a model are not there."""
    if not missing:
        return []
    others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
    return [f"It must have the columns that the model was trained with; it has no {missing[0]!r}{others}."]


def name_problems(columns: Sequence[str], judged: Mapping[str, Judged]) -> list[str]:
    """Say which columns have no name, unless they count rows, and which names are there twice."""
    problems = twice_problems([name for name in columns if name])
    if "" in columns and (columns.count("") > 1 or judged[""].kind != "left out"):
        problems.append(
            f"Each column must have a name; number {columns.index('') + 1} has none. If it is the index that pandas "
            "wrote, save the table with index=False, or leave it out: `drop=['']`"
        )
    return problems


def twice_problems(columns: Sequence[str]) -> list[str]:
    """Say which names are there twice."""
    twice = [name for name, n in Counter(columns).items() if n > 1]
    if not twice:
        return []
    names = ", ".join(map(repr, twice[:MAX_LISTED]))
    return [f"Columns must have different names; it has {names} twice. Does its first line hold the names?"]


def input_problems(judged: Mapping[str, Judged], target: str, use: Sequence[str]) -> list[str]:
    """Say which columns cannot be inputs, which were asked for in vain, and whether there are inputs at all."""
    problems = [found.remark for name, found in judged.items() if found.kind == "problem" and name]
    for name in use:
        if name in judged and judged[name].kind == "left out":
            problems.append(
                f"Column {name!r} cannot be used as it is ({judged[name].remark}). Turn it into numbers first."
            )
    if not problems and not any(found.is_input for found in judged.values()):
        reasons = left_out_note(judged)
        problems = [f"It must have rows and input columns; found none except {target!r}. {reasons}".strip()]
    return problems


def size_problems(judged: Mapping[str, Judged], n_rows: int, max_gb: float) -> list[str]:
    """Say whether the inputs would take too much memory, with one input per category."""
    widths = {name: _width(found) for name, found in judged.items() if found.is_input}
    size = FLOAT_BYTES * n_rows * sum(widths.values())
    if size <= max_gb * 1e9:
        return []
    widest = max(widths, key=lambda name: widths[name])
    return [
        (
            f"Its inputs must take at most {max_gb:g} GB; they take {size / 1e9:.2g} GB, {widths[widest]} inputs of "
            f"{widest!r} among them. Leave out columns with `drop`, take a part of its rows, or raise `max_gb`."
        )
    ]


def _width(found: Judged) -> int:
    """Return the largest number of inputs that a column becomes."""
    if found.kind == "text":
        return min(len(set(found.values)), MAX_CATEGORIES)
    return 1 + bool(np.isnan(found.values).any())


def index_notes(title: str, index: Sequence[str]) -> list[str]:
    """Say that an index is no input."""
    names = ", ".join(map(repr, index))
    return [f"The pandas index {names} of {title} is not an input; reset_index() would make it one."] if index else []


def column_notes(judged: Mapping[str, Judged]) -> list[str]:
    """Say which columns are left out, which hold categories, and where numbers are missing."""
    categories = {name: len(set(found.values) - {""}) for name, found in judged.items() if found.kind == "text"}
    marks = {name: found.remark for name, found in judged.items() if found.kind == "numbers" and found.remark}
    notes = [
        left_out_note(judged),
        _listing("Categories, one input for each: ", categories),
        gaps_note(judged),
        _listing("Counted as missing: ", marks),
    ]
    return [note for note in notes if note]


def left_out_note(judged: Mapping[str, Judged]) -> str:
    """Say which columns are left out, and why."""
    return _listing("Left out: ", {name: found.remark for name, found in judged.items() if found.kind == "left out"})


def gaps_note(judged: Mapping[str, Judged]) -> str:
    """Say in which columns numbers are missing, and how many."""
    numbers = {name: found.values for name, found in judged.items() if found.kind == "numbers"}
    gaps = {name: int(np.isnan(values).sum()) for name, values in numbers.items()}
    return _listing("Missing numbers, replaced by the median of the training rows: ", _positive(gaps))


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: n for name, n in counts.items() if n}


def _listing(start: str, remarks: Mapping[str, Any]) -> str:
    """Return a sentence that lists columns with a remark each; "" if there are none."""
    shown = ", ".join(f"{name!r} ({remark})" for name, remark in list(remarks.items())[:MAX_LISTED])
    more = f" and {len(remarks) - MAX_LISTED} others" if len(remarks) > MAX_LISTED else ""
    return f"{start}{shown}{more}." if remarks else ""
