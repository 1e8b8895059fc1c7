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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tuneloss.errors import JournalError

try:
    import fcntl
except ImportError:  # Windows: no lock, but a second writer is still found out by the size of the file
    fcntl = None  # type: ignore[assignment]

VERSION = 1
KEY = "tuneloss-journal"


class Journal:
    """The records of one tuner. Opening an existing file reads it; `append` returns when the record is on disk.

    The file is locked while it is opened or written (where the system has locks), so a second process waits; what it
    then finds to be written by another it refuses.
    """

    def __init__(self, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
        if not isinstance(path, (str, os.PathLike)) or not Path(path).name:
            raise JournalError(f"`journal` must be the path of a file; found {path!r}.")
        self.path = Path(path)
        self._side = _side_of(self.path)
        with self._errors():
            self._create(_line(0, {KEY: VERSION, **header}))
            with self._locked() as file:
                self._finish_cut_write(file)
                self.records = self._of_same_box(header, *read_lines(self.path))
                self._size = self.path.stat().st_size

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; when this returns it is on disk, and if it raises the journal is as before."""
        line = _line(len(self.records) + 1, record)
        with self._errors(), self._locked() as file:
            size = self.path.stat().st_size
            if size != self._size:
                raise JournalError(
                    f"The journal {self.path} must be written by one tuner at a time; found {size} bytes where this "
                    f"one left {self._size}. Give each process a journal of its own, or open it again."
                )
            try:
                _write(self._side, line)
                self._extend(file, line)
            except BaseException:
                file.truncate(self._size)
                raise
            finally:
                self._side.unlink(missing_ok=True)
        self._size += len(line)
        self.records.append(record)

    def _create(self, header: bytes) -> None:
        """Make the file with its first line, unless it is there: at once, so that no kill leaves half of it."""
        if self.path.exists():
            return
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        _write(draft, header)
        try:
            os.link(draft, self.path)  # fails if another process was faster
        except FileExistsError:
            pass
        finally:
            draft.unlink()

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with open(self.path, "r+b", buffering=0) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as reason:
            raise JournalError(f"The journal {self.path} must be a file that can be written: {reason}.") from reason

    def _extend(self, file: BinaryIO, line: bytes) -> None:
        file.seek(0, os.SEEK_END)
        file.write(line)
        os.fsync(file.fileno())

    def _of_same_box(
        self, header: dict[str, Any], first: dict[str, Any], records: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        found = {name: first.get(name) for name in header}
        if found != header:
            raise JournalError(
                f"The journal {self.path} must be of the same box; found {found}, not {header}. Use the box it was "
                "begun with, or another file."
            )
        return records

    def _finish_cut_write(self, file: BinaryIO) -> None:
        """If a kill cut an append short, do the rest of it."""
        if not self._side.exists():
            return
        line, text = self._side.read_bytes(), self.path.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        begun = line.endswith(b"\n") and line.startswith(torn) and not whole.endswith(line[:-1])
        if begun:  # else the side file itself was cut, or its line is in the journal already
            file.truncate(len(text) - len(torn))
            self._extend(file, line)
        self._side.unlink()


def _side_of(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def replace_journal(path: Path, draft: Path) -> None:
    """Put another journal in the place of one, of which nothing is left; not even what a kill left beside it."""
    _side_of(path).unlink(missing_ok=True)
    os.replace(draft, path)


def read_lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line and the records of a journal, checked; nothing is written."""
    try:
        text = path.read_bytes()
    except OSError as reason:
        raise JournalError(f"The journal {path} must be a file that can be read: {reason}.") from reason
    if not text.endswith(b"\n"):
        cut = text.count(b"\n") + 1
        raise JournalError(
            f"The journal {path} must end with a whole line; its line {cut} is cut short. Restore the file, "
            f"or delete {'that line to go on without it' if cut > 1 else 'it to begin anew'}."
        )
    bodies = [_body(path, line, number) for number, line in enumerate(text.splitlines())]
    if bodies[0].get(KEY) != VERSION:
        raise JournalError(
            f"The journal {path} must begin with format version {VERSION}; found {bodies[0].get(KEY)!r}. "
            "It was written by another version of tuneloss, or is another file."
        )
    return bodies[0], bodies[1:]


def _body(path: Path, line: bytes, number: int) -> dict[str, Any]:
    try:
        outer = json.loads(line)
        body: dict[str, Any] = outer["body"]
        if (outer["n"], outer["crc32"]) != (number, _checksum(body)) or not isinstance(body, dict):
            raise ValueError("its number or checksum is wrong")
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise JournalError(
            f"Each line of the journal {path} must be as tuneloss wrote it; line {number + 1} is not "
            f"({reason}). Restore it, or delete it and every line after it."
        ) from None
    return body


def _write(path: Path, line: bytes) -> None:
    with open(path, "wb") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def _line(number: int, body: dict[str, Any]) -> bytes:
    return json.dumps({"n": number, "crc32": _checksum(body), "body": body}, allow_nan=False).encode() + b"\n"
