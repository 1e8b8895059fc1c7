"""Results as append-only JSON lines: one record a training run, so that a killed command goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuneloss.errors import InvalidInput

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
Append = Callable[[Iterable[Record]], None]


def read_records(path: Path) -> list[Record]:
    """The records of a file; none if there is no file. A last line without its end is not one: it was cut short by a
    kill, or another is writing it just now."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    try:
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except json.JSONDecodeError as reason:
        raise InvalidInput(
            f"{path} must hold one JSON object a line; found that {reason}. Mend that line, or remove it."
        ) from None


@contextmanager
def writing(path: Path) -> Iterator[Append]:
    """Alone with the file, which is made if it is not there: gives a function that adds records, in one write.

    A last line that was cut short is removed first; nothing else that is there is touched.

    Raises InvalidInput if the file cannot be written, or another process is writing it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as reason:
        raise InvalidInput(f"Results must be in a folder that can be written: {reason}. Name one: --results") from None
    with file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInput(
                f"{path} must be written by one command at a time; found that another does. Wait for it, or name "
                "another folder: --results"
            ) from None
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)

        def append(records: Iterable[Record]) -> None:
            file.write("".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode())
            file.flush()
            os.fsync(file.fileno())

        yield append
