"""An append-only file of JSON lines that survives a kill at any moment.

The first line holds the format version and the box; each further line one record, its number and the checksum of its
text. A record is first written whole to a side file, with the length and checksum of the journal that it continues;
then it is appended; then the side file is removed. So an append that a kill cut short is finished from the side file
when the journal is opened, and a side file of another journal is not taken for one of this.

Half a line at the end without a side file was cut by something else, such as a copy. Nothing that was told is in it:
its bytes are saved beside the journal, with a warning, and the journal goes on. A line that was changed is refused.
"""

from __future__ import annotations

import gc
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tuneloss.errors import JournalError
from tuneloss.files import create, write_all

try:
    import fcntl
except ImportError:  # Windows: no lock, but a second writer is still found out by what it wrote
    fcntl = None  # type: ignore[assignment]

VERSION = 2
KEY = "tuneloss-journal"
LINE = re.compile(rb'\{"n": (\d+), "crc32": (\d+), "body": (.*)\}')  # as `_line` writes it

Body = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """How long a file is, and the checksum of all of it."""

    size: int
    crc32: int

    @classmethod
    def of(cls, text: bytes) -> Content:
        return cls(len(text), zlib.crc32(text))

    def followed_by(self, line: bytes) -> Content:
        return Content(self.size + len(line), zlib.crc32(line, self.crc32))


class Journal:
    """The records of one tuner. Opening an existing file reads it; `append` returns when the record is on disk.

    The file is locked while it is opened or written (where the system has locks), so a second process waits; what it
    then finds to be written by another it refuses. Not to be shared by threads without a lock of their own.
    """

    def __init__(self, path: str | os.PathLike[str], header: Body) -> None:
        if not isinstance(path, (str, os.PathLike)) or not Path(path).name:
            raise JournalError(f"`journal` must be the path of a file; found {path!r}.")
        self.path = Path(path)
        self._side = _side_of(self.path)
        with self._errors():
            self._create(_line(0, {KEY: VERSION, **header}))
            with self._locked() as file:
                text = self._repaired(file)
                first, self.records = _read(self.path, text)
                self._check_header(header, first)
                self._content, self._stamp = Content.of(text), _stamp(file)

    def append(self, record: Body) -> None:
        """Add a record; when this returns it is on disk, and if it raises the journal is as before."""
        before, line = self._content, _line(len(self.records) + 1, record)
        with self._errors(), self._locked() as file:
            self._check_unchanged(file)
            try:
                self._write_side(before, line)
                file.seek(0, os.SEEK_END)
                write_all(file, line)
                self._content, self._stamp = before.followed_by(line), _stamp(file)
                self.records.append(record)
            except BaseException:  # also an interrupt between these lines
                file.truncate(before.size)
                self._content, self._stamp = before, _stamp(file)
                raise
            finally:
                self._side.unlink(missing_ok=True)

    def _create(self, header: bytes) -> None:
        """Make the file with its first line, unless it is there: at once, so that no kill leaves half of it."""
        if self.path.exists():
            return
        self._side.unlink(missing_ok=True)  # of a journal that is gone
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with create(draft) as file:
            write_all(file, header)
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

    def _write_side(self, before: Content, line: bytes) -> None:
        head = json.dumps({"size": before.size, "crc32": before.crc32}).encode() + b"\n"
        self._side.unlink(missing_ok=True)
        with create(self._side) as side:
            write_all(side, head + line)

    def _check_unchanged(self, file: BinaryIO) -> None:
        """Raise if the file holds something else than this tuner left. A new date alone, as of a backup, is nothing."""
        if _stamp(file) == self._stamp:
            return
        found = Content.of(file.read())
        if found != self._content:
            raise JournalError(
                f"The journal {self.path} must be written by one tuner at a time; found {found.size} bytes with other "
                f"content where this one left {self._content.size}. Give each process a journal of its own, or open it "
                "again."
            )
        self._stamp = _stamp(file)

    def _check_header(self, header: Body, first: Body) -> None:
        found = {name: first.get(name) for name in header}
        if found != header:
            raise JournalError(
                f"The journal {self.path} must be of the same box; found {found}, not {header}. Use the box it was "
                "begun with, or another file."
            )

    def _repaired(self, file: BinaryIO) -> bytes:
        """What the file holds, after what a kill cut short was finished, or half a line was put aside."""
        text = file.read()
        end = text.rfind(b"\n") + 1
        whole, torn = text[:end], text[end:]
        line = self._unfinished(whole, torn)
        if line or (torn and whole):
            if not line:
                self._put_aside(torn)
            file.truncate(end)
            file.seek(end)
            write_all(file, line)
            text = whole + line
        self._side.unlink(missing_ok=True)
        return text

    def _unfinished(self, whole: bytes, torn: bytes) -> bytes:
        """The line in the side file, if it continues this journal and is not in it already; else nothing."""
        if not self._side.is_file() or self._side.is_symlink():
            return b""
        head, _, line = self._side.read_bytes().partition(b"\n")
        content = Content.of(whole)
        continues = head == json.dumps({"size": content.size, "crc32": content.crc32}).encode()
        return line if continues and line.endswith(b"\n") and line.startswith(torn) else b""

    def _put_aside(self, torn: bytes) -> None:
        for number in range(1, 1000):
            aside = self.path.with_name(f"{self.path.name}.torn-{number}")
            try:
                with create(aside) as file:
                    write_all(file, torn)
            except FileExistsError:
                continue
            break
        warnings.warn(
            f"The journal {self.path} ended in half a line, which nothing told is in: {len(torn)} bytes were moved to "
            f"{aside.name} beside it. It goes on after its last whole line.",
            RuntimeWarning,
            stacklevel=5,
        )


def _side_of(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def _stamp(file: BinaryIO) -> tuple[int, ...]:
    """What changes if another writes to the file or puts another in its place."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def replace_journal(path: Path, draft: Path) -> None:
    """Put another journal in the place of one, of which nothing is left; not even what a kill left beside it."""
    _side_of(path).unlink(missing_ok=True)
    os.replace(draft, path)


def read_lines(path: Path) -> tuple[Body, list[Body]]:
    """The first line and the records of a journal, checked; nothing is written, and half a line at its end not read."""
    try:
        text = path.read_bytes()
    except OSError as reason:
        raise JournalError(f"The journal {path} must be a file that can be read: {reason}.") from reason
    return _read(path, text[: text.rfind(b"\n") + 1])


def _read(path: Path, text: bytes) -> tuple[Body, list[Body]]:
    if not text.endswith(b"\n"):
        raise JournalError(
            f"The journal {path} must begin with a whole line; its first one is cut short. Restore the file, or delete "
            "it to begin anew."
        )
    lines = text.split(b"\n")[:-1]
    version = re.search(rb'"%s": (\d{1,9}),' % KEY.encode(), lines[0])
    if version is not None and int(version[1]) != VERSION:  # other versions have other checksums
        raise JournalError(
            f"The journal {path} must have format version {VERSION}; found {int(version[1])}. It was written by "
            "another version of tuneloss."
        )
    bodies = _bodies(path, lines)
    if KEY not in bodies[0]:
        raise JournalError(f"The journal {path} must begin with its format version; it is another file.")
    return bodies[0], bodies[1:]


def _bodies(path: Path, lines: list[bytes]) -> list[Body]:
    """What the lines hold, after their numbers and checksums were found right."""
    texts = []
    for number, line in enumerate(lines):
        parts = LINE.fullmatch(line)
        if parts is None or int(parts[1]) != number or int(parts[2]) != zlib.crc32(parts[3]):
            raise _edited(path, number, "its number or checksum is wrong")
        texts.append(parts[3])
    try:
        bodies: list[Body] = json.loads(b"[" + b",".join(texts) + b"]")  # faster than one by one
        if len(bodies) != len(texts):
            raise ValueError("it holds several")
    except (ValueError, RecursionError) as reason:
        raise _edited(path, next(i for i, text in enumerate(texts) if not _is_json(text)), str(reason)) from None
    for number, body in enumerate(bodies):
        if not isinstance(body, dict):
            raise _edited(path, number, "it holds no record")
    return bodies


def _edited(path: Path, number: int, reason: str) -> JournalError:
    return JournalError(
        f"Each line of the journal {path} must be as tuneloss wrote it; line {number + 1} is not ({reason}). Restore "
        "it, or delete it and every line after it."
    )


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Within, objects that are made by the million are not searched for cycles again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _line(number: int, body: Body) -> bytes:
    text = json.dumps(body, allow_nan=False).encode()
    return b'{"n": %d, "crc32": %d, "body": %s}\n' % (number, zlib.crc32(text), text)
