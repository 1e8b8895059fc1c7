"""Write files whole or not at all.

A file is first written as a draft in the same folder, then moved to its place in one step. A full disk or a kill leaves
the old file as it was. A process keeps its drafts locked, so that another one can tell a draft in use from one that a
killed process left behind. Drafts have random names and are created exclusively: no other program can plant one.
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
except ImportError:  # Windows does not have these locks
    fcntl = None  # type: ignore[assignment]

DRAFT_ENDING = ".tuneloss-draft"
MAX_REPEATED = (
    24  # letters of a name, and of a suffix, that a draft's name repeats: file systems allow 255 bytes in all
)


def create(path: Path) -> BinaryIO:
    """Create a file and open it unbuffered; raise FileExistsError if anything has that name, even a dangling link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "w+b", buffering=0)


def write_all(file: BinaryIO, content: bytes) -> None:
    """Write every byte and wait until the disk has them, or raise OSError.

    One `write` to an unbuffered file may take only a part of the bytes, for example when the disk becomes full.
    """
    rest = memoryview(content)
    while rest:
        n_taken = file.write(rest)
        if not n_taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[n_taken:]
    os.fsync(file.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Replace the content of a file, or raise OSError and leave it as it was."""
    with replacing(path) as draft:
        draft.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty draft to write to; it replaces `path` if the block succeeds, and is removed otherwise.

    The draft has the suffix of `path`, because some writers, such as matplotlib, choose the format by it. A device or a
    pipe, such as /dev/stdout, has no old content to protect: the block writes to it directly.
    """
    real = Path(os.path.realpath(path))  # of a link, the file behind it is replaced
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not real.is_file():
        yield path
        return
    if real.exists() and not os.access(real, os.W_OK):  # a move could replace it, but the user protected it
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
    """Yield a new folder inside `parent` for the duration of the block; remove those that killed processes left."""
    with _draft(parent, name, "", folder=True) as draft:
        yield draft


@contextmanager
def _draft(parent: Path, name: str, suffix: str, *, folder: bool = False) -> Iterator[Path]:
    name, ending = name[:MAX_REPEATED], DRAFT_ENDING + suffix[:MAX_REPEATED]
    for old in parent.glob(f".{_escaped(name)}.*{_escaped(ending)}"):
        _remove_if_unused(old)
    draft, lock = _locked_draft(parent, name, ending, folder=folder)
    try:
        yield draft
    finally:
        _remove(draft)
        os.close(lock)


def _locked_draft(parent: Path, name: str, ending: str, *, folder: bool) -> tuple[Path, int]:
    """Return a draft of a new name, and the descriptor that holds its lock.

    Just before it is locked, another process may take it for abandoned and remove it. Then another draft is made.
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
    """Take the lock; False if another process holds it."""
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
    """Remove a draft that a killed process left. Without locks this cannot be known, and the draft stays."""
    if fcntl is None or draft.is_symlink():
        return
    with suppress(OSError):
        lock = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if it is in use, or without locks
            _remove(draft)
        finally:
            os.close(lock)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    """Return the name as a pattern of `glob` that matches only this name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
