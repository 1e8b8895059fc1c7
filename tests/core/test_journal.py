"""The journal: a kill at any moment loses nothing told, and a file that was cut or edited is refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tuneloss import Box, LossTuner, Observation
from tuneloss.core import journal
from tuneloss.core.journal import Journal
from tuneloss.errors import JournalError

HEADER = {"box": "a box"}
RECORDS = [{"x": 1.5, "text": "ä\n"}, {"x": 1 / 3}, {"x": None}]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "runs.jsonl"
    fresh = Journal(path, HEADER)
    for record in RECORDS:
        fresh.append(record)
    return path


def test_reopening_gives_all_records_and_goes_on(path):
    Journal(path, HEADER).append({"x": 4})
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]


def test_it_is_json_lines_with_the_version_first(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["body"]["tuneloss-journal"] == 1
    assert [line["body"] for line in lines[1:]] == RECORDS


def test_a_kill_at_any_byte_of_an_append_loses_nothing(path):
    """Whatever part of the side file or of the line was written, the journal opens with all records told before;
    once the side file is whole, with the new one too."""
    before = path.read_bytes()
    Journal(path, HEADER).append({"x": 4})
    line = path.read_bytes()[len(before) :]
    side = path.with_name(path.name + ".next")
    for written in range(len(line) + 1):  # killed while writing the side file
        path.write_bytes(before)
        side.write_bytes(line[:written])
        assert Journal(path, HEADER).records[:3] == RECORDS
        assert not side.exists()
    for written in range(len(line) + 1):  # killed while appending, or before the side file was removed
        path.write_bytes(before + line[:written])
        side.write_bytes(line)
        assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]
        assert path.read_bytes() == before + line


def test_equal_records_one_after_the_other_are_both_kept(path):
    """A record that equals the last one is not taken for its repetition after a kill."""
    opened = Journal(path, HEADER)
    opened.append({"x": 4})
    before = path.read_bytes()
    opened.append({"x": 4})
    line = path.read_bytes()[len(before) :]
    path.write_bytes(before)
    path.with_name(path.name + ".next").write_bytes(line)
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}, {"x": 4}]


def edit_number(text: str) -> str:
    return text.replace("1.5", "1.6")


def swap_lines(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([lines[0], lines[2], lines[1], lines[3]])


DAMAGE = [
    (lambda text: text[:-5], "must end with a whole line; its line 4 is cut short. Restore the file, or delete"),
    (lambda text: text[:10], "its line 1 is cut short"),
    (lambda text: "", "its line 1 is cut short. Restore the file, or delete it to begin anew"),
    (edit_number, r"must be as tuneloss wrote it; line 2 is not \(its number or checksum is wrong\). Restore it"),
    (swap_lines, "line 2 is not"),
    (lambda text: "".join(text.splitlines(keepends=True)[::2]), "line 2 is not"),
    (lambda text: text + "nonsense\n", "line 5 is not"),
    (lambda text: text + "[1]\n", "line 5 is not"),
    (lambda text: text + "[" * 100_000 + "\n", "line 5 is not"),
    (lambda text: "\n" + text, "line 1 is not"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_refuses_a_file_that_was_cut_or_edited(path, damage, message):
    """And leaves it as it is."""
    damaged = damage(path.read_text())
    path.write_text(damaged)
    with pytest.raises(JournalError, match=message):
        Journal(path, HEADER)
    assert path.read_text() == damaged


def test_refuses_another_box(path):
    with pytest.raises(ValueError, match=r"must be of the same box; found .*'a box'.*not .*'other'.*or another file"):
        Journal(path, {"box": "other"})


def test_refuses_another_version(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "VERSION", 99)
    Journal(tmp_path / "other.jsonl", HEADER)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="must begin with format version 1; found 99"):
        Journal(tmp_path / "other.jsonl", HEADER)


def test_refuses_a_second_writer(path):
    """Two tuners on one file would each overlook what the other was told."""
    first, second = Journal(path, HEADER), Journal(path, HEADER)
    first.append({"x": 4})
    with pytest.raises(JournalError, match=r"written by one tuner at a time.*Give each process a journal of its own"):
        second.append({"x": 5})
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]


def test_every_record_is_synced_twice_before_append_returns(path, monkeypatch):
    """Once in the side file, once in the journal: what was told survives a loss of power."""
    synced = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(os.fstat(number).st_size), sync(number))[1])
    opened, before = Journal(path, HEADER), path.stat().st_size
    opened.append({"x": 4})
    added = path.stat().st_size - before
    assert synced == [added, before + added]


def test_an_append_that_fails_leaves_the_journal_as_it_was(path, monkeypatch):
    """A full disk is told in words, and when there is room again the record can be appended."""
    opened, before = Journal(path, HEADER), path.read_bytes()

    def full(file, line):
        file.seek(0, os.SEEK_END)
        file.write(line[:7])
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(opened, "_extend", full)
        with pytest.raises(JournalError, match="must be a file that can be written: No space left"):
            opened.append({"x": 4})
    assert path.read_bytes() == before
    opened.append({"x": 4})
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]


def test_the_side_file_is_whole_before_the_journal_grows(path, monkeypatch):
    """So whatever a kill leaves of the line can be finished from it."""
    opened = Journal(path, HEADER)
    extend, seen = opened._extend, []
    side = path.with_name(path.name + ".next")
    monkeypatch.setattr(
        opened, "_extend", lambda file, line: (seen.append(side.read_bytes() == line), extend(file, line))
    )
    opened.append({"x": 4})
    assert seen == [True]
    assert not side.exists()


@pytest.mark.parametrize("where", [".", "missing/runs.jsonl"])
def test_refuses_a_path_that_cannot_be_written(tmp_path, where):
    with pytest.raises(JournalError, match="must be a file that can be written"):
        Journal(tmp_path / where, HEADER)


@pytest.mark.parametrize("path", [5, "", None])
def test_refuses_what_is_not_a_path(path):
    with pytest.raises(JournalError, match="`journal` must be the path of a file; found"):
        Journal(path, HEADER)


def test_refuses_records_of_another_shape(tmp_path):
    """Right checksum, wrong content."""
    box = Box.from_dict({"l2": (0.1, 100), "logloss": 1.0})
    Journal(tmp_path / "runs.jsonl", {"box": box.state_dict()}).append({"run": 0})
    with pytest.raises(ValueError, match="A run's record must be as documented"):
        LossTuner(box, journal=tmp_path / "runs.jsonl")


READER = """
import sys
from tuneloss import Box, LossTuner
while True:
    LossTuner(Box.from_dict({"l2": (0.1, 100), "logloss": 1.0}), journal=sys.argv[1])
"""


def test_looking_at_a_journal_while_another_process_writes_it_does_no_harm(tmp_path):
    """A reader that opens it again and again neither breaks the writer nor the file."""
    path, box = tmp_path / "runs.jsonl", Box.from_dict({"l2": (0.1, 100), "logloss": 1.0})
    tuner = LossTuner(box, journal=path)
    process = subprocess.Popen([sys.executable, "-c", READER, str(path)], stderr=subprocess.PIPE, text=True)
    try:
        stop = time.monotonic() + 4
        while time.monotonic() < stop:
            tuner.tell([1.0, 1.0], Observation(1.0, [1.0, 2.0]))
        assert process.poll() is None
    finally:
        process.kill()
        complaint = process.communicate()[1]
    assert complaint == ""
    assert len(LossTuner(box, journal=path).history) == len(tuner.history) > 20


PROGRAM = """
import sys
from tuneloss import Box, LossTuner, Observation
tuner = LossTuner(Box.from_dict({"l2": (0.1, 100), "logloss": 1.0}), journal=sys.argv[1])
while True:
    weights = tuner.ask()
    n = len(tuner.history)
    gram = [[2.0 + n, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 4.0]]
    tuner.tell(weights, Observation(1.0 + 1 / (1 + n), [1.0 + n, 2.0], gram))
    print(len(tuner.history), flush=True)
"""


def test_kill_9_in_the_middle_of_tuning_loses_nothing_told(tmp_path):
    """A real process, killed for real several times: what it said it had told is there, and it goes on."""
    path = tmp_path / "runs.jsonl"
    told = 0
    for pause in (0.05, 0.11, 0.02, 0.07):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True)
        assert int(process.stdout.readline()) == told + 1  # it resumed where the last one was killed
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        said = process.stdout.read().split()
        process.stdout.close()
        process.wait()
        told = max(int(said[-1]) if said else 0, told + 1)
        found = len(LossTuner(Box.from_dict({"l2": (0.1, 100), "logloss": 1.0}), journal=path).history)
        assert told <= found <= told + 1
        told = found
    assert told >= 8


def test_a_resumed_tuner_asks_what_the_interrupted_one_would_have(tmp_path):
    """The journal is all the state there is."""
    box = Box.from_dict({"l2": (0.1, 100), "l1": (0.0, 1.0), "logloss": 1.0})

    def observation(i: int) -> Observation:
        return Observation(1.0 + 0.1 * (i % 3), [1.0 + i, 2.0, 3.0 - 0.2 * i])

    whole, interrupted = LossTuner(box, seed=3), LossTuner(box, seed=3, journal=tmp_path / "runs.jsonl")
    for i in range(6):
        assert whole.ask() == interrupted.ask()
        weights = box.as_dict(box.lower)
        for tuner in (whole, interrupted):
            tuner.tell(weights, observation(i))
        whole = LossTuner.from_state_dict(json.loads(json.dumps(whole.state_dict())))
        whole._pending = []
        interrupted = LossTuner(box, seed=3, journal=tmp_path / "runs.jsonl")
