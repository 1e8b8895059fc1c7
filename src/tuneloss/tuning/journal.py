"""An append-only file of JSON lines that survives a kill at any moment.

The first line holds the format version and a header. Each further line holds one record, its number and the checksum
of its text. A line may also hold new values of the header, which count from there on.

A record is first written to a side file, with the length and checksum of the journal that it continues. Then it is
appended to the journal, and the side file is removed. If a kill cuts the append short, opening the journal finishes it
from the side file. A side file that belongs to another journal is ignored.

If the last line is cut and there is no side file, something else than a kill cut it, such as an unfinished copy. The
bytes of that line are saved beside the journal, with a warning, and the journal continues. If only the newline is
missing, the line is kept. An edited line is refused.
"""

from __future__ import annotations

import gc
import json
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tuneloss.core.box import Box
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.files import create, write_all
from tuneloss.tuning.box_difference import box_difference

try:
    import fcntl
except ImportError:  # Windows has no such lock; a second writer is still noticed, because the content changes
    fcntl = None  # type: ignore[assignment]

VERSION = 2
KEY = "tuneloss-journal"
CHANGE = "changed-header"  # the key of a line that holds new values of the header
LINE = re.compile(rb'\{"n": ?(\d+), ?"crc32": ?(\d+), ?"body": ?(.*)\}')  # as `_line` writes it; once with spaces

Body = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """The length and the checksum of a file."""

    size: int
    crc32: int

    @classmethod
    def of(cls, text: bytes) -> Content:
        return cls(len(text), zlib.crc32(text))

    def followed_by(self, line: bytes) -> Content:
        return Content(self.size + len(line), zlib.crc32(line, self.crc32))


class Journal:
    """The records of one tuner in a file. Opening an existing file reads it.

    The file is locked while it is opened or written, if its file system has locks. A second process waits, and is
    refused if the file has changed since it was opened there. Threads that share a journal need their own lock.

    Parameters
    ----------
    path : path
        The file; it is created if it does not exist.
    header : dict
        The content of the first line. An existing journal must have the same values.
    extend : bool, default False
        Whether an existing journal may have other values. `change_header` then replaces them.

    Attributes
    ----------
    records : list of dict
        All records, in order.
    header : dict
        The values of the header as they are now.
    """

    def __init__(self, path: str | os.PathLike[str], header: Body, *, extend: bool = False) -> None:
        if not isinstance(path, (str, os.PathLike)) or not Path(path).name:
            raise JournalError(f"`journal` must be the path of a file; found {path!r}.")
        self.path = Path(path)
        self._side = _side_of(self.path)
        with self._errors():
            self._create(_line(0, {KEY: VERSION, **header}))
            with self._locked() as file:
                text = self._repaired(file)
                self.header, self.records, changes = _read(self.path, text)
                self._n_changes = len(changes)
                if not extend:
                    self._check_header(header)
                self._content, self._stamp = Content.of(text), _stamp(file)

    def append(self, record: Body) -> None:
        """Add a record. When this returns, the record is on disk; if it raises, the journal is as before."""
        self._append(record, lambda: self.records.append(record))

    def change_header(self, header: Body) -> None:
        """Give the header new values, as safely as `append` adds a record. Values that it has already add no line."""
        if {name: self.header.get(name) for name in header} != header:
            self._append({CHANGE: header}, lambda: self._take_header(header))

    def _take_header(self, header: Body) -> None:
        self.header, self._n_changes = self.header | header, self._n_changes + 1

    def _append(self, body: Body, take_in: Callable[[], None]) -> None:
        """Add a line, and take its body in once it is on disk."""
        before, line = self._content, _line(len(self.records) + self._n_changes + 1, body)
        with self._errors(), self._locked() as file:
            self._check_unchanged(file)
            try:
                self._write_side(before, line)
                file.seek(0, os.SEEK_END)
                write_all(file, line)
                self._content, self._stamp = before.followed_by(line), _stamp(file)
                take_in()
            except BaseException:  # also an interrupt between these lines
                file.truncate(before.size)
                self._content, self._stamp = before, _stamp(file)
                raise
            finally:
                self._side.unlink(missing_ok=True)

    def _create(self, header: bytes) -> None:
        """Create the file with its first line, unless it exists, in one step that a kill cannot cut."""
        if self.path.exists():
            return
        self._side.unlink(missing_ok=True)  # it belongs to a journal that is gone
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with create(draft) as file:
            write_all(file, header)
        try:
            os.link(draft, self.path)  # fails if another process was faster
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links: a kill here may leave half a header, and no record
            with suppress(FileExistsError), create(self.path) as file:
                write_all(file, header)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with open(self.path, "r+b", buffering=0) as file:
            if fcntl is not None:
                with suppress(OSError):  # of a file system without locks
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
        """Raise if the file does not hold what this tuner left in it. A new date alone, as after a backup, is fine."""
        if _stamp(file) == self._stamp:
            return
        content = Content.of(file.read())
        if content != self._content:
            raise JournalError(
                f"The journal {self.path} must be written by one tuner at a time; found {content.size} bytes with "
                f"other content where this one left {self._content.size}. Give each process its own journal, or open "
                "it again."
            )
        self._stamp = _stamp(file)

    def _check_header(self, header: Body) -> None:
        values = {name: self.header.get(name) for name in header}
        if values != header:
            raise JournalError(
                f"The journal {self.path} must be of the same box; found {_difference(values, header)}. Use the box it "
                "has, or another file. With `extend=True`, it continues in any box that contains all weights tried so "
                "far."
            )

    def _repaired(self, file: BinaryIO) -> bytes:
        """Return the text of the file, after finishing a line that a kill cut, or moving half a line elsewhere."""
        text = file.read()
        if _lacks_newline(text):
            write_all(file, b"\n")
            text += b"\n"
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
        """Return the line in the side file if it continues this journal and is not in it yet; else nothing."""
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
            f"The journal {self.path} ended in half a line. A kill cuts no record that was told. If something else cut "
            f"the file, such as an unfinished copy, that record is lost. The {len(torn)} bytes "
            f"were moved to {aside.name} beside it. The journal goes on after its last whole line.",
            RuntimeWarning,
            stacklevel=5,
        )


def _difference(found: Body, wanted: Body) -> str:
    """Return what differs between two headers: of boxes only the weights that differ, of anything else all of it."""
    words = ""
    with suppress(InvalidInput):
        words = box_difference(*(Box.from_state_dict(header.get("box", {})) for header in (found, wanted)))
    return words or f"{found}, not {wanted}"


def _side_of(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def _stamp(file: BinaryIO) -> tuple[int, ...]:
    """Return numbers that change if another process writes to the file or replaces it."""
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def journal_bytes(header: Body, records: Iterable[Body]) -> bytes:
    """Return a complete journal as the bytes of its file."""
    bodies = [{KEY: VERSION, **header}, *records]
    return b"".join(_line(number, body) for number, body in enumerate(bodies))


def replace_journal(path: Path, draft: Path) -> None:
    """Replace a journal by a draft, and remove the old one's side file."""
    _side_of(path).unlink(missing_ok=True)
    os.replace(draft, path)


def read_lines(path: Path) -> tuple[Body, list[Body], list[int]]:
    """Read a journal without writing anything; a cut last line is ignored.

    Returns
    -------
    header : dict
        The header, with its values as they are now.
    records : list of dict
        All records, checked.
    changes : list of int
        For each line that changed the header, the number of records before it.
    """
    try:
        text = path.read_bytes()
    except OSError as reason:
        raise JournalError(f"The journal {path} must be a file that can be read: {reason}.") from reason
    return _read(path, text + b"\n" if _lacks_newline(text) else text[: text.rfind(b"\n") + 1])


def _read(path: Path, text: bytes) -> tuple[Body, list[Body], list[int]]:
    if not text.endswith(b"\n"):
        raise JournalError(
            f"The journal {path} must begin with a whole line; its first one is cut short. Restore the file, or delete "
            "it to begin anew."
        )
    lines = text.split(b"\n")[:-1]
    version = re.search(rb'"%s": ?(\d{1,9}),' % KEY.encode(), lines[0])
    if version is not None and int(version[1]) != VERSION:  # other versions have other checksums
        raise JournalError(
            f"The journal {path} must have format version {VERSION}; found {int(version[1])}. It was written by "
            "another version of tuneloss."
        )
    bodies = _bodies(path, lines)
    if KEY not in bodies[0]:
        raise JournalError(f"The journal {path} must begin with its format version; it is another file.")
    header, records, changes = bodies[0], list[Body](), list[int]()
    for number, body in enumerate(bodies[1:], start=1):
        if CHANGE not in body:
            records.append(body)
            continue
        if not isinstance(body[CHANGE], dict):
            raise _edited(path, number, "it holds no values of the header")
        header = header | body[CHANGE]
        changes.append(len(records))
    return header, records, changes


def _lacks_newline(text: bytes) -> bool:
    """Return whether nothing but its newline is missing from the last line of a journal."""
    return _body_of(text.count(b"\n"), text[text.rfind(b"\n") + 1 :]) is not None


def _body_of(number: int, line: bytes) -> bytes | None:
    """Return the text of the record in a line; None if its number or checksum is wrong."""
    parts = LINE.fullmatch(line)
    if parts is None or int(parts[1]) != number or int(parts[2]) != zlib.crc32(parts[3]):
        return None
    return parts[3]


def _bodies(path: Path, lines: list[bytes]) -> list[Body]:
    """Return what the lines hold; raise JournalError if a number or checksum is wrong."""
    texts = []
    for number, line in enumerate(lines):
        text = _body_of(number, line)
        if text is None:
            raise _edited(path, number, "its number or checksum is wrong")
        texts.append(text)
    try:
        bodies: list[Body] = json.loads(b"[" + b",".join(texts) + b"]")  # faster than one by one
        if len(bodies) != len(texts):
            raise ValueError("it holds several records")
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
    """Turn garbage collection off: it would search millions of new objects for cycles again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _line(number: int, body: Body) -> bytes:
    text = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    return b'{"n":%d,"crc32":%d,"body":%s}\n' % (number, zlib.crc32(text), text)
