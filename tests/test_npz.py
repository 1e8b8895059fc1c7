"""Files that attack a reader of arrays: each is refused in words, and none takes more memory than its limit."""

import io
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tuneloss.errors import InvalidInput
from tuneloss.npz import MAX_DIRECTORY, MAX_MEMBERS, read_arrays

LIMIT = 10**6


def member(array=(1.0, 2.0), **header):
    """The bytes of an npy file, with parts of its header replaced."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    if not header:
        return buffer.getvalue()
    said = {"descr": "<f8", "fortran_order": False, "shape": (2,), **header}
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(repr(said))) + repr(said).encode() + np.asarray(array).tobytes()


def archive(path, members, *, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def refused(path, most=LIMIT):
    with pytest.raises(InvalidInput, match="must be an npz file; found ") as error:
        read_arrays(path, "an npz file", most)
    return str(error.value)


@settings(max_examples=60, deadline=None)
@given(
    array=arrays.arrays(
        st.sampled_from(["f8", "<f4", ">f8", "i1", "?", "c16", "<U3", ">U2", "S4", "M8[s]"]),
        arrays.array_shapes(min_dims=0, min_side=0, max_side=5),
        elements=None,
    ),
    compressed=st.booleans(),
    fortran=st.booleans(),
)
def test_what_numpy_saves_is_read_as_numpy_reads_it(tmp_path_factory, array, compressed, fortran):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    array = np.asfortranarray(array) if fortran else array
    (np.savez_compressed if compressed else np.savez)(path, a=array, other=np.arange(3))
    found = read_arrays(path, "an npz file", LIMIT)
    assert list(found) == ["a", "other"]
    assert (found["a"].shape, found["a"].dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(found["a"], array)


def test_a_large_array_comes_in_parts(tmp_path):
    large = np.random.default_rng(0).integers(0, 5, size=(700, 900))
    np.savez_compressed(tmp_path / "a.npz", a=large, b=large.T)
    found = read_arrays(tmp_path / "a.npz", "an npz file", 1e9)
    np.testing.assert_array_equal(found["a"], large)
    np.testing.assert_array_equal(found["b"], large.T)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../a.npy", "the name of a member, '../a.npy', is not that of an array (name.npy)"),
        ("/a.npy", "is not that of an array"),
        ("b/../../a.npy", "is not that of an array"),
        ("c:a.npy", "is not that of an array"),
        ("a", "the name of a member, 'a', is not that of an array (name.npy)"),
        ("a.npz", "is not that of an array"),
        ("x" * 300 + ".npy", "is not that of an array"),
        ("a\x1b[31m.npy", r"'a\x1b[31m.npy', is not that of an array"),
    ],
)
def test_names_of_members_are_those_of_arrays(tmp_path, name, said):
    assert said in refused(archive(tmp_path / "a.npz", [(name, member())]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (member(shape=(10**15,)), "claims to have shape (1000000000000000,), but has"),
        (member(shape=(10**400,)), "claims to have shape"),
        (member(shape=(3,)), "claims to have shape (3,), but has"),
        (member(shape=(1,)), "claims to have shape (1,), but has"),
        (member(shape=(-1, -2)), "claims to have shape (-1, -2)"),
        (member((), shape=(0, 10**12)), "claims to have shape (0, 1000000000000)"),
        (member((), shape=(10**12,), descr="<U0"), "claims to have shape (1000000000000,)"),
        (member((), shape=(1,) * 70, descr="<f8"), "damaged file"),
        (member(descr="|O"), "'a.npy' holds objects or records, not numbers or text"),
        (member(descr=[("x", "<f8")]), "'a.npy' holds objects or records"),
        (member(descr=[("x", "|O")]), "'a.npy' holds objects or records"),
        (member(descr=("<f8", (2,))), "holds objects or records"),
        (member(descr="|V8"), "holds objects or records"),
        (member(descr="no such"), "damaged file"),
        (member(descr="(" * 5000), "damaged file"),
        (member(np.array(["\ud800"])), "'a.npy' holds 0xd800, which is not a character"),
        (member(np.array([0x110000], "<u4"), descr="<U1", shape=(1,)), "holds 0x110000, which is not a character"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 10**5, "damaged file"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 12000) + b"(" * 12000, "damaged file"),
        (b"\x93NUMPY\x03\x00" + member()[8:], "header of another version"),
        (b"", "damaged file"),
        (b"\x80\x04]\x94.", "damaged file"),  # a pickle
    ],
)  # fmt: skip
def test_headers_are_checked_before_there_is_room_for_an_array(tmp_path, content, said):
    assert said in refused(archive(tmp_path / "a.npz", [("a.npy", content)]))


def test_an_array_named_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = archive(tmp_path / "a.npz", [("a.npy", member()), ("a.npy", member())])
    assert "it has 'a.npy' twice" in refused(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_way_of_compression_that_numpy_does_not_write_is_refused(tmp_path, compression):
    path = archive(tmp_path / "a.npz", [("a.npy", member())], compression=compression)
    assert "'a.npy' is compressed in a way that NumPy does not write" in refused(path)


def test_an_encrypted_member_is_refused(tmp_path):
    path = archive(tmp_path / "a.npz", [("a.npy", member())])
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "'a.npy' is encrypted" in refused(path)


def test_too_many_members_are_refused(tmp_path):
    path = archive(tmp_path / "a.npz", [(f"a{i}.npy", b"") for i in range(MAX_MEMBERS + 1)])
    assert "it has 1,001 members, more than 1,000" in refused(path)
    long = [("x" * 60_000 + f"{i}.npy", b"") for i in range(MAX_DIRECTORY // 60_000 + 1)]
    assert "its table of contents has more than 1,048,576 bytes" in refused(archive(tmp_path / "b.npz", long))


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """As those of a bomb that expands one part many times: their places are the same, their names are not."""
    path = archive(tmp_path / "a.npz", [(f"{name}.npy", member()) for name in "abc"])
    content = bytearray(path.read_bytes())
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    content[second + 42 : second + 46] = bytes(4)  # where it begins: at the first
    path.write_bytes(content)
    assert "overlaps with what comes after it" in refused(path)


def bomb(path, n, declared=None):
    """A member of n zeros, which takes a thousandth of that on the disk."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("a.npy", "w") as stream:
        stream.write(member((), shape=(n,), descr="|i1"))
        for _ in range(n // 10**6):
            stream.write(bytes(10**6))
    if declared is not None:
        content = bytearray(path.read_bytes())
        at = content.index(b"PK\x01\x02") + 24
        content[at : at + 4] = struct.pack("<I", declared)
        path.write_bytes(content)
    return path


def test_a_bomb_is_refused_by_what_it_declares(tmp_path):
    path = bomb(tmp_path / "a.npz", 10**8)
    assert path.stat().st_size < 200_000
    assert "its arrays take 100,000,0" in refused(path)
    assert f"more than {LIMIT:,}" in refused(path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs the peak of a process's memory")
@pytest.mark.parametrize("declared", [None, 1000, 900_000])
def test_a_bomb_takes_no_memory_whatever_it_declares(tmp_path, declared):
    """200 MB of zeros, and the process that reads them does not grow by a tenth of that."""
    path = bomb(tmp_path / "a.npz", 2 * 10**8, declared)
    program = (
        "import resource, sys, pathlib\nfrom tuneloss.npz import read_arrays, InvalidInput\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: read_arrays(pathlib.Path(sys.argv[1]), 'an npz file', {LIMIT})\n"
        "except InvalidInput as reason: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000  # kilobytes


def test_what_is_no_file_is_refused(tmp_path):
    assert "it is not a file" in refused(tmp_path)
    assert "No such file" in refused(tmp_path / "none.npz")


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_file_with_changed_bytes_is_read_or_refused(tmp_path_factory, data):
    """Never another error."""
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    with io.BytesIO() as buffer:
        np.savez_compressed(buffer, a=np.arange(5.0), b=np.array(["x", "yz"]))
        content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(len(content) - 30, len(content)))])
    with suppress(InvalidInput):
        read_arrays(path, "an npz file", LIMIT)
