"""Arrays from an npz file of anyone: what it may take of memory is known before it is taken, and nothing in it is run.

An npz file is a zip archive of npy files, each a header and the bytes of one array. A small archive can claim, and even
hold, any number of bytes; so each claim is checked against a limit, and no more is expanded than was claimed.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.text import HIDDEN

MOST_MEMBERS = 1000
LONGEST_NAME = 200  # letters
LONGEST_DIRECTORY = 2**20  # bytes of the archive's table of contents: enough for the most members of longest names
LONGEST_HEADER = 2**14  # bytes of a member before its array; NumPy itself takes up to 10,000 letters
LOCAL_HEADER = 30  # bytes that stand before each member, beside its name
CHUNK = 2**20  # bytes that are expanded at a time
KINDS = "biufcSUmM"  # of dtypes: numbers, text and times; neither objects nor records


class _Refused(Exception):
    """What must hold of an archive, and does not."""


def read_arrays(path: Path, what: str, most_bytes: float, advice: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, which must be `what`, by name.

    most_bytes: of all its arrays together. advice: what can be done about more.
    """
    try:
        if not path.is_file() and path.exists():
            raise _Refused("it is no file")
        with path.open("rb") as file, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a header that Python 2 wrote
            return _read(file, most_bytes, advice)
    except (_Refused, OSError) as reason:
        raise InvalidInput(f"`{path}` must be {what}; found that {reason}.") from None
    except Exception:  # zipfile and NumPy have many for bytes that are no such file
        size = path.stat().st_size
        raise InvalidInput(f"`{path}` must be {what}; found another or a damaged file, of {size} bytes.") from None


def _read(file: BinaryIO, most_bytes: float, advice: str) -> dict[str, NDArray[Any]]:
    bounded = _Bounded(file)
    with zipfile.ZipFile(bounded) as archive:
        bounded.most = None
        members = archive.infolist()
        _check_directory(members, archive.start_dir)
        size = sum(member.file_size for member in members)
        if size > most_bytes:
            raise _Refused(f"its arrays take {size:,} bytes, more than {int(most_bytes):,}{advice}")
        return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}


class _Bounded:
    """A file of which no long part is read at once, so that a table of contents without end does not fill memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.most: int | None = LONGEST_DIRECTORY

    def read(self, n: int = -1) -> bytes:
        if self.most is None:
            return self.file.read(n)
        content = self.file.read(self.most + 1 if n < 0 else min(n, self.most + 1))
        if len(content) > self.most:
            raise _Refused(f"its table of contents has more than {self.most:,} bytes")
        return content

    def seek(self, *where: int) -> int:
        return self.file.seek(*where)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return self.file.seekable()

    def close(self) -> None:
        """Left to whoever opened it."""


def _check_directory(members: list[zipfile.ZipInfo], end: int) -> None:
    """Raise unless these are members of different names, one after another, that can be expanded."""
    if len(members) > MOST_MEMBERS:
        raise _Refused(f"it has {len(members):,} members, more than {MOST_MEMBERS:,}")
    seen = set()
    for member in members:
        name = member.filename
        if len(name) > LONGEST_NAME or not _is_name(name):
            raise _Refused(f"the name of a member, {name[:LONGEST_NAME]!r}, is not that of an array (name.npy)")
        if name in seen:
            raise _Refused(f"it has {name!r} twice")
        seen.add(name)
        if member.flag_bits & 0x1:
            raise _Refused(f"{name!r} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _Refused(f"{name!r} is compressed in a way that NumPy does not write")
    members = sorted(members, key=lambda member: member.header_offset)
    ends = [member.header_offset for member in members[1:]] + [end]
    for member, last in zip(members, ends, strict=True):
        if member.header_offset + LOCAL_HEADER + member.compress_size > last:
            raise _Refused(f"{member.filename!r} overlaps with what comes after it")


def _is_name(name: str) -> bool:
    """Whether it is that of an array, and of no other place in a file system."""
    parts = re.split(r"[/\\]", name)
    return name.endswith(".npy") and not {"", ".", ".."} & set(parts) and not HIDDEN.search(name) and ":" not in name


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, its header checked against the size of the member before there is any room for it."""
    name = member.filename
    with archive.open(member) as stream:
        start = io.BytesIO(_read_up_to(stream, LONGEST_HEADER))
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(start))
        if read_header is None:
            raise _Refused(f"{name!r} has a header of another version than NumPy's 1 and 2")
        shape, is_fortran, dtype = read_header(start)
        if dtype.hasobject or dtype.kind not in KINDS or dtype.subdtype is not None:
            raise _Refused(f"{name!r} holds objects or records, not numbers or text")
        room = math.prod(max(length, 1) for length in shape) * max(dtype.itemsize, 1)
        if min(shape, default=0) < 0 or room > max(member.file_size, CHUNK):
            raise _Refused(f"{name!r} claims to have shape {shape}, but has {member.file_size:,} bytes")
        array = np.empty(shape, dtype, order="F" if is_fortran else "C")
        if array.nbytes != member.file_size - start.tell():
            raise _Refused(f"{name!r} claims to have shape {shape}, but has {member.file_size:,} bytes")
        _fill(array, start, stream)
    if dtype.kind == "U" and array.nbytes:
        _check_text(name, array)
    return array


def _fill(array: NDArray[Any], start: io.BytesIO, stream: Any) -> None:
    """Put what is left of the start of a member, and then the rest of it, into the array."""
    flat = array.reshape(-1, order="A").view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
    done = 0
    while done < flat.size:
        content = start.read(flat.size) or stream.read(min(CHUNK, flat.size - done))
        if not content:
            raise EOFError
        flat[done : done + len(content)] = np.frombuffer(content, np.uint8)
        done += len(content)
    if stream.read(1):  # at its end the archive's checksum is compared, too
        raise EOFError


def _read_up_to(stream: Any, n: int) -> bytes:
    parts = []
    while n > 0 and (part := stream.read(n)):
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _check_text(name: str, array: NDArray[Any]) -> None:
    """Raise unless each letter is one that can be written."""
    order = array.dtype.byteorder
    letters = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(order))
    bad = letters[(letters > 0x10FFFF) | ((letters >= 0xD800) & (letters <= 0xDFFF))]
    if bad.size:
        raise _Refused(f"{name!r} holds {int(bad[0]):#x}, which is no letter")
