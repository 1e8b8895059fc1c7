"""Files of records: JSON lines, one record per training run, from which a killed command resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tuneloss.errors import InvalidInput
from tuneloss.files import write_all

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]  # one line: the fields that identify a run, and its results
Append = Callable[[Iterable[Record]], None]


def read_records(path: Path) -> list[Record]:
    """Read the records of a file; there are none if the file does not exist.

    A last line without a newline is ignored: a kill cut it short, or another process is still writing it.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InvalidInput
        If a line is not a JSON object.
    """
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
        records = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        if not all(isinstance(record, dict) for record in records):
            raise ValueError("a line is not an object")
    except (OSError, ValueError, RecursionError) as reason:
        raise InvalidInput(
            f"{path} must hold one JSON object per line; found that {reason}. Correct or remove that line."
        ) from None
    return records


@contextmanager
def writing(path: Path) -> Iterator[Append]:
    """Open a file for this process alone, and yield a function that appends records in one write.

    The file is created if it does not exist. A last line that was cut short is removed first. Nothing else in the file
    is changed. If the disk is full, records are appended completely or not at all.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InvalidInput
        If the file cannot be written, or if another process is writing it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
    except OSError as reason:
        raise InvalidInput(
            f"Results must be in a folder that can be written: {reason}. Name another folder for {path.name}."
        ) from None
    with file:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InvalidInput(
                        f"{path} must be written by one command at a time; found that another command is writing it. "
                        "Wait for it, or name another folder."
                    ) from None
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)

        def append(records: Iterable[Record]) -> None:
            size = file.seek(0, os.SEEK_END)
            try:
                write_all(file, "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode())
            except OSError as reason:
                file.truncate(size)
                raise InvalidInput(
                    f"Results must be on a disk with room for them: {reason}. {path} holds all records before these. "
                    "Make room, and run the same command again."
                ) from None

        yield append
