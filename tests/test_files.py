"""Files are written whole or not at all, and what a kill left is removed by the next writer."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from tuneloss.files import create, draft_folder, replacing, write_all, write_whole


class FullDisk:
    """A file on a disk with little room left, as the operating system shows it: a short write, then an error."""

    def __init__(self, room):
        self.room, self.content = room, b""

    def write(self, part):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = bytes(part[: self.room])
        self.room -= len(written)
        self.content += written
        return len(written)


def test_a_short_write_is_no_whole_one():
    full = FullDisk(room=5)
    with pytest.raises(OSError, match="No space left"):
        write_all(full, b"0123456789")
    assert full.content == b"01234"


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop():
    class Stuck:
        def write(self, part):
            return 0

    with pytest.raises(OSError, match="No space left"):
        write_all(Stuck(), b"0123456789")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a disk that is always full")
def test_a_real_full_disk_raises():
    with open("/dev/full", "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        write_all(file, b"0123456789")


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail_half_way():
        with replacing(path) as draft:
            draft.write_text("half of the n")
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail_half_way()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_whole_write_replaces_the_file_and_keeps_its_mode(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["page.html"]


def test_behind_a_link_the_file_is_replaced(tmp_path):
    real = tmp_path / "real.html"
    real.write_text("old")
    (tmp_path / "link.html").symlink_to(real)
    write_whole(tmp_path / "link.html", b"new")
    assert real.read_text() == "new"
    assert (tmp_path / "link.html").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes that have a path")
def test_a_pipe_is_written_and_not_replaced(tmp_path):
    """As is a device; but a test that fails would replace that of the machine."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(path, b"new")
    assert path.is_fifo()
    assert os.read(reader, 10) == b"new"
    os.close(reader)


def test_a_folder_is_not_replaced_and_nothing_is_written(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "page.html", b"new")
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        write_whole(path, b"new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["a" * 250, "学" * 80, "a." + "b" * 240])
def test_a_file_of_the_longest_name_can_be_replaced(tmp_path, name):
    write_whole(tmp_path / name, b"new")
    assert os.listdir(tmp_path) == [name]


def test_create_follows_no_link(tmp_path):
    """Whoever may write into the folder cannot turn our file into a write elsewhere."""
    (tmp_path / "draft").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        create(tmp_path / "draft")
    assert not (tmp_path / "elsewhere").exists()


KILLED = """
import signal, sys, pathlib
from tuneloss.files import draft_folder, replacing
with {opened} as draft:
    target = draft / "file" if draft.is_dir() else draft
    target.write_text("half")
    print("ready", flush=True)
    signal.pause()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl and SIGKILL")
@pytest.mark.parametrize(
    "what", ["replacing(pathlib.Path(sys.argv[1]) / 'a[1].html')", "draft_folder(pathlib.Path(sys.argv[1]), 'fit')"]
)
def test_what_a_killed_process_left_is_removed_by_the_next_and_not_before(tmp_path, what):
    program = [sys.executable, "-c", KILLED.format(opened=what), str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        (left,) = os.listdir(tmp_path)
        write_again(tmp_path)
        assert left in os.listdir(tmp_path)  # its process is alive
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert left in os.listdir(tmp_path)
    write_again(tmp_path)
    assert os.listdir(tmp_path) == ["a[1].html"]


def write_again(folder):
    write_whole(folder / "a[1].html", b"new")
    with draft_folder(folder, "fit") as draft:
        assert draft.is_dir()


def test_many_processes_that_write_one_file_do_not_disturb_each_other(tmp_path):
    program = (
        "import sys, pathlib\nfrom tuneloss.files import write_whole\n"
        "for i in range(100): write_whole(pathlib.Path(sys.argv[1]), sys.argv[2].encode() * 1000)"
    )
    path = tmp_path / "file"
    workers = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abc"]
    deadline = time.monotonic() + 60
    while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
        if path.exists():
            assert path.read_text() in {name * 1000 for name in "abc"}
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert os.listdir(tmp_path) == ["file"]
