"""Read the arrays of an npz file from anywhere: its memory is known before it is taken, and nothing in it is run.

An npz file is a zip archive of npy files. Each of them is a header and the bytes of one array. A small archive can
claim, and even hold, any number of bytes. Each claim is therefore checked against a limit, and no more is expanded than
was claimed.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.text import HIDDEN

# The limits of what is read.
MAX_MEMBERS = 1000  # arrays per archive
MAX_NAME = 200  # letters of the name of a member
MAX_DIRECTORY = 2**20  # bytes of the archive's table of contents: enough for MAX_MEMBERS names of MAX_NAME letters
MAX_HEADER = 2**14  # bytes of a member before its array; NumPy itself reads headers of up to 10,000 letters
CHUNK = 2**20  # bytes that are expanded at a time
KINDS = "biufcSUmM"  # kinds of dtype: numbers, text and times, but neither objects nor records

# What the formats say.
LOCAL_HEADER = 30  # bytes before each member of a zip archive, not counting its name
ENCRYPTED = 0x1  # the bit of a member's flags that says so
SURROGATES, LAST_CHARACTER = (0xD800, 0xDFFF), 0x10FFFF  # of Unicode; a surrogate alone is not a character
HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}  # by version


class _Refused(Exception):
    """A rule that an archive breaks, in words."""


def read_arrays(path: Path, what: str, max_bytes: float, advice: str = "") -> dict[str, NDArray[Any]]:
    """Read all arrays of an npz file.

    Parameters
    ----------
    path : Path
        The file.
    what : str
        What the file must be, for error messages: "an npz file".
    max_bytes : float
        The largest size of all arrays together.
    advice : str
        What the user can do about a file that is larger. It ends the message.

    Returns
    -------
    dict of str to array
        The arrays by name.

    Raises
    ------
    InvalidInput
        If it is another file, damaged, or beyond a limit.
    """
    try:
        if not path.is_file() and path.exists():
            raise _Refused("it is not a file")
        with path.open("rb") as file, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a header that Python 2 wrote
            return _read(file, max_bytes, advice)
    except (_Refused, OSError) as reason:
        raise InvalidInput(f"`{path}` must be {what}; found that {reason}.") from None
    except Exception:  # zipfile and NumPy raise many kinds for bytes that are not such a file
        size = path.stat().st_size
        raise InvalidInput(f"`{path}` must be {what}; found another or a damaged file, of {size} bytes.") from None


def _read(file: BinaryIO, max_bytes: float, advice: str) -> dict[str, NDArray[Any]]:
    bounded = _BoundedFile(file)
    with zipfile.ZipFile(bounded) as archive:
        bounded.max_read = None
        members = archive.infolist()
        _check_members(members)
        _check_places(members, archive.start_dir)
        size = sum(member.file_size for member in members)
        if size > max_bytes:
            raise _Refused(f"its arrays take {size:,} bytes, more than {int(max_bytes):,}{advice}")
        return {member.filename.removesuffix(".npy"): _read_member(archive, member) for member in members}


class _BoundedFile:
    """A file of which no long part is read at once, so that an endless table of contents does not fill the memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.max_read: int | None = MAX_DIRECTORY

    def read(self, n: int = -1) -> bytes:
        if self.max_read is None:
            return self.file.read(n)
        content = self.file.read(self.max_read + 1 if n < 0 else min(n, self.max_read + 1))
        if len(content) > self.max_read:
            raise _Refused(f"its table of contents has more than {self.max_read:,} bytes")
        return content

    def seek(self, *where: int) -> int:
        return self.file.seek(*where)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return self.file.seekable()

    def close(self) -> None:
        """Do nothing: whoever opened the file closes it."""


def _check_members(members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise unless these are arrays of different names that can be expanded."""
    if len(members) > MAX_MEMBERS:
        raise _Refused(f"it has {len(members):,} members, more than {MAX_MEMBERS:,}")
    names = set()
    for member in members:
        name = member.filename
        if len(name) > MAX_NAME or not _is_array_name(name):
            raise _Refused(f"the name of a member, {name[:MAX_NAME]!r}, is not that of an array (name.npy)")
        if name in names:
            raise _Refused(f"it has {name!r} twice")
        names.add(name)
        if member.flag_bits & ENCRYPTED:
            raise _Refused(f"{name!r} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _Refused(f"{name!r} is compressed in a way that NumPy does not write")


def _check_places(members: Sequence[zipfile.ZipInfo], end: int) -> None:
    """Raise unless the members follow one another without an overlap, up to the table of contents at `end`."""
    members = sorted(members, key=lambda member: member.header_offset)
    ends = [member.header_offset for member in members[1:]] + [end]
    for member, limit in zip(members, ends, strict=True):
        if member.header_offset + LOCAL_HEADER + member.compress_size > limit:
            raise _Refused(f"{member.filename!r} overlaps with what comes after it")


def _is_array_name(name: str) -> bool:
    """Return whether this is the name of an array, and of no other place in a file system."""
    parts = re.split(r"[/\\]", name)
    return name.endswith(".npy") and not {"", ".", ".."} & set(parts) and not HIDDEN.search(name) and ":" not in name


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array. Its header is checked against the size of the member before memory is taken."""
    name = member.filename
    with archive.open(member) as stream:
        start = io.BytesIO(_read_up_to(stream, MAX_HEADER))
        shape, is_fortran, dtype = _read_header(name, start)
        needed = math.prod(max(length, 1) for length in shape) * max(dtype.itemsize, 1)
        if min(shape, default=0) < 0 or needed > max(member.file_size, CHUNK):
            raise _Refused(f"{name!r} claims to have shape {shape}, but has {member.file_size:,} bytes")
        array = np.empty(shape, dtype, order="F" if is_fortran else "C")
        if array.nbytes != member.file_size - start.tell():
            raise _Refused(f"{name!r} claims to have shape {shape}, but has {member.file_size:,} bytes")
        _fill(array, start, stream)
    if dtype.kind == "U" and array.nbytes:
        _check_text(name, array)
    return array


def _read_header(name: str, start: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of the array."""
    read_header = HEADER_READERS.get(npy.read_magic(start))
    if read_header is None:
        raise _Refused(f"{name!r} has a header of another version than NumPy's 1 and 2")
    shape, is_fortran, dtype = read_header(start)
    if dtype.hasobject or dtype.kind not in KINDS or dtype.subdtype is not None:
        raise _Refused(f"{name!r} holds objects or records, not numbers or text")
    return shape, is_fortran, dtype


def _fill(array: NDArray[Any], start: io.BytesIO, stream: Any) -> None:
    """Fill the array with the rest of the member's start, and then with the rest of the member."""
    flat = array.reshape(-1, order="A").view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
    done = 0
    while done < flat.size:
        content = start.read(flat.size) or stream.read(min(CHUNK, flat.size - done))
        if not content:
            raise EOFError
        flat[done : done + len(content)] = np.frombuffer(content, np.uint8)
        done += len(content)
    if stream.read(1):  # at its end, zipfile also compares the checksum
        raise EOFError


def _read_up_to(stream: Any, n: int) -> bytes:
    parts = []
    while n > 0 and (part := stream.read(n)):
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _check_text(name: str, array: NDArray[Any]) -> None:
    """Raise unless each character can be written."""
    order = array.dtype.byteorder
    codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(order))
    is_surrogate = (codes >= SURROGATES[0]) & (codes <= SURROGATES[1])
    bad = codes[(codes > LAST_CHARACTER) | is_surrogate]
    if bad.size:
        raise _Refused(f"{name!r} holds {int(bad[0]):#x}, which is not a character")
