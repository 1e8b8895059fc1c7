"""Files that are written whole or not at all, and drafts that no other program can put in our way.

A file is first written as a draft beside its place, then moved there in one step: a full disk or a kill leaves the old
file as it was. A process keeps its drafts locked, so the next one can tell a draft in use from one that a kill left.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

DRAFT = ".tuneloss-draft"  # how the name of a draft ends
LONGEST = 24  # letters of a name and of a suffix that a draft's name repeats: file systems take 255 bytes in all


def create(path: Path) -> BinaryIO:
    """A new, unbuffered file to write. FileExistsError if anything has that name, even a link to nowhere."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "w+b", buffering=0)


def write_all(file: BinaryIO, content: bytes) -> None:
    """Write every byte and wait until the disk has them, or raise OSError.

    One `write` to an unbuffered file may take a part of the bytes only, as it does where the disk becomes full.
    """
    left = memoryview(content)
    while left:
        written = file.write(left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]
    os.fsync(file.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Put these bytes in the place of a file, or raise OSError and leave the file as it was."""
    with replacing(path) as draft:
        draft.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives an empty draft to write. It takes the place of `path` if the block ends well, and is removed if not.

    The draft has the suffix of `path`, so that a writer who looks at it, as matplotlib does, chooses the same format.
    A device or a pipe, such as /dev/stdout, has nothing to keep: it is given itself.
    """
    real = Path(os.path.realpath(path))  # behind a link, the file is replaced and not the link
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not real.is_file():
        yield path
        return
    if real.exists() and not os.access(real, os.W_OK):  # it could be replaced, but was protected from that
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    with _draft(real.parent, real.name, real.suffix) as draft:
        yield draft
        if real.exists():
            shutil.copymode(real, draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, real)


@contextmanager
def draft_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder inside `parent` for the time of the block. Folders of the same name left by a kill are removed."""
    with _draft(parent, name, "", folder=True) as draft:
        yield draft


@contextmanager
def _draft(parent: Path, name: str, suffix: str, *, folder: bool = False) -> Iterator[Path]:
    name, ending = name[:LONGEST], DRAFT + suffix[:LONGEST]
    for left in parent.glob(f".{_escaped(name)}.*{_escaped(ending)}"):
        _remove_if_unused(left)
    draft, lock = _locked_draft(parent, name, ending, folder=folder)
    try:
        yield draft
    finally:
        _remove(draft)
        os.close(lock)


def _locked_draft(parent: Path, name: str, ending: str, *, folder: bool) -> tuple[Path, int]:
    """A draft of a new name, and the descriptor that holds its lock.

    Another process may take it for a left one, and remove it, just before it is locked: then there is a next one.
    """
    while True:
        draft = parent / f".{name}.{secrets.token_hex(4)}{ending}"
        if folder:
            draft.mkdir()
        else:
            create(draft).close()
        try:
            lock = os.open(os.devnull if fcntl is None else draft, os.O_RDONLY)
        except FileNotFoundError:
            continue
        if _take(lock) and draft.exists():
            return draft, lock
        os.close(lock)


def _take(lock: int) -> bool:
    """Lock it, unless another process holds it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _remove_if_unused(draft: Path) -> None:
    """Remove what a killed process left; where there are no locks it cannot be told, and stays."""
    if fcntl is None or draft.is_symlink():
        return
    with suppress(OSError):
        lock = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error, also where there are no locks: it stays
            _remove(draft)
        finally:
            os.close(lock)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    """The name as a pattern of `glob` that only it matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
