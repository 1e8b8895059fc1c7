"""An append-only file of JSON lines that survives a kill at any moment.

The first line holds the format version and the box; each further line one record, its number and its checksum. A
record is first written whole to a side file, then appended, then the side file is removed: whatever a kill cuts short
can be finished from the side file. So a journal that ends in half a line without one was cut by something else, and
is refused like one with an edited line: nothing that was told is dropped in silence.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from tuneloss.errors import JournalError

VERSION = 1
KEY = "tuneloss-journal"


class Journal:
    """The records of one tuner. Opening an existing file reads it; `append` returns when the record is on disk."""

    def __init__(self, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
        self.path = Path(path)
        self._side = self.path.with_name(self.path.name + ".next")
        if not self.path.exists():
            self._write_side(_line(0, {KEY: VERSION, **header}))
            os.replace(self._side, self.path)
        self.records = self._read(header)
        self._size = self.path.stat().st_size

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; when this returns it is on disk."""
        size = self.path.stat().st_size
        if size != self._size:
            raise JournalError(
                f"The journal {self.path} must be written by one tuner at a time; found {size} bytes where this one "
                f"left {self._size}. Give each process a journal of its own."
            )
        line = _line(len(self.records) + 1, record)
        self._write_side(line)
        self._extend(line)
        self._side.unlink()
        self.records.append(record)

    def _write_side(self, line: bytes) -> None:
        with open(self._side, "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _extend(self, line: bytes) -> None:
        with open(self.path, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._size = file.tell()

    def _read(self, header: dict[str, Any]) -> list[dict[str, Any]]:
        self._finish_cut_write()
        text = self.path.read_bytes()
        if not text.endswith(b"\n"):
            cut = text.count(b"\n") + 1
            raise JournalError(
                f"The journal {self.path} must end with a whole line; its line {cut} is cut short. "
                "Restore the file, or delete that line to go on without it."
            )
        bodies = [self._body(line, number) for number, line in enumerate(text.splitlines())]
        if bodies[0].get(KEY) != VERSION:
            raise JournalError(
                f"The journal {self.path} must begin with format version {VERSION}; found {bodies[0].get(KEY)!r}. "
                "It was written by another version of tuneloss, or is another file."
            )
        found = {name: bodies[0].get(name) for name in header}
        if found != header:
            raise JournalError(
                f"The journal {self.path} must be of the same box; found {found}, not {header}. Use the box it was "
                "begun with, or another file."
            )
        return bodies[1:]

    def _body(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            outer = json.loads(line)
            body: dict[str, Any] = outer["body"]
            if (outer["n"], outer["crc32"]) != (number, _checksum(body)):
                raise ValueError("its number or checksum is wrong")
        except (ValueError, KeyError, TypeError) as reason:
            raise JournalError(
                f"Each line of the journal {self.path} must be as tuneloss wrote it; line {number + 1} is not "
                f"({reason}). Restore it, or delete it and every line after it."
            ) from None
        return body

    def _finish_cut_write(self) -> None:
        """If a kill cut an append short, do the rest of it."""
        if not self._side.exists():
            return
        line, text = self._side.read_bytes(), self.path.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        begun = line.endswith(b"\n") and line.startswith(torn) and not whole.endswith(line[:-1])
        if begun:  # else the side file itself was cut, or its line is in the journal already
            with open(self.path, "r+b") as file:
                file.truncate(len(text) - len(torn))
            self._extend(line)
        self._side.unlink()


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def _line(number: int, body: dict[str, Any]) -> bytes:
    return json.dumps({"n": number, "crc32": _checksum(body), "body": body}, allow_nan=False).encode() + b"\n"
