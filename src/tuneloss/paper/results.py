"""Results as append-only JSON lines: one record a training run, so that a killed command goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tuneloss.errors import InvalidInput

Record = dict[str, Any]


def read_records(path: Path, *, mend: bool = False) -> list[Record]:
    """The records of a file; none if there is no file. A last line that was cut short is not one.

    mend: remove such a line, which he should who writes to the file; it may be one that another is writing just now.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if mend and whole != text:
        path.write_text(whole, encoding="utf-8")
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except json.JSONDecodeError as reason:
        raise InvalidInput(
            f"{path} must hold one JSON object a line; found that {reason}. Mend that line, or remove it."
        ) from None


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Add lines in one write, so that what was there stays whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(record, allow_nan=False) + "\n" for record in records))
