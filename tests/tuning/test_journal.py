"""The journal: a kill at any moment loses nothing told, and a file that was cut or edited is refused."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import zlib

import pytest

from tuneloss import Box, LossTuner, Observation
from tuneloss.errors import JournalError
from tuneloss.tuning import journal
from tuneloss.tuning.journal import Journal, journal_bytes, read_lines

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
    assert lines[0]["body"]["tuneloss-journal"] == 2
    assert [line["body"] for line in lines[1:]] == RECORDS


def spaced(text):
    """The same lines as earlier versions wrote them: with spaces after separators."""
    bodies = [json.dumps(json.loads(line)["body"]).encode() for line in text.splitlines()]
    parts = ((number, zlib.crc32(body), body) for number, body in enumerate(bodies))
    return b"".join(b'{"n": %d, "crc32": %d, "body": %s}\n' % part for part in parts)


def test_journals_have_no_spaces_and_those_of_earlier_versions_which_have_are_continued(path):
    text = path.read_bytes()
    assert b'": ' not in text
    assert b", " not in text
    old = spaced(text)
    assert len(old) > len(text)
    path.write_bytes(old)
    Journal(path, HEADER).append({"x": 4})
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]
    assert path.read_bytes().startswith(old)


def test_a_header_can_change_and_records_keep_their_order(path):
    opened = Journal(path, {"box": "wider"}, extend=True)
    assert opened.header["box"] == "a box"
    opened.change_header({"box": "wider"})
    opened.append({"x": 4})
    size = path.stat().st_size
    opened.change_header({"box": "wider"})  # it has it already
    assert path.stat().st_size == size
    again = Journal(path, {"box": "wider"})
    assert again.records == [*RECORDS, {"x": 4}]
    assert again.header["box"] == "wider"
    again.append({"x": 5})
    assert read_lines(path)[1:] == ([*RECORDS, {"x": 4}, {"x": 5}], [3])
    with pytest.raises(JournalError, match=r"found .*'wider'.*not .*'a box'.*With `extend=True`, it continues in any"):
        Journal(path, HEADER)


def test_a_kill_at_any_byte_of_a_change_leaves_the_old_header_or_the_new_one(path):
    """Whatever part was written, all records are there, and changing it again gives one and the same file."""
    wider = {"box": "wider"}
    before, line, side = watched(path, lambda opened: opened.change_header(wider))
    cuts = [(b"", side[:n]) for n in range(len(side) + 1)] + [(line[:n], side) for n in range(len(line) + 1)]
    for in_journal, in_side in cuts:
        path.write_bytes(before + in_journal)
        side_of(path).write_bytes(in_side)
        opened = Journal(path, wider, extend=True)
        assert opened.records == RECORDS
        is_whole = in_side == side
        assert opened.header["box"] == ("wider" if is_whole else "a box")
        opened.change_header(wider)
        assert path.read_bytes() == before + line


def test_a_changed_header_that_is_no_header_is_refused(path):
    Journal(path, HEADER).append({"changed-header": 5})
    with pytest.raises(JournalError, match=r"line 5 is not \(it holds no values of the header\)"):
        Journal(path, HEADER)


def test_a_kill_at_any_byte_of_an_append_loses_nothing(path):
    """Whatever part of the side file or of the line was written, the journal opens with all records told before;
    once the side file is whole, with the new one too."""
    before, line, side = append_watched(path, {"x": 4})
    for written in range(len(side) + 1):  # killed while writing the side file
        path.write_bytes(before)
        side_of(path).write_bytes(side[:written])
        assert Journal(path, HEADER).records[:3] == RECORDS
        assert not side_of(path).exists()
    for written in range(len(line) + 1):  # killed while appending, or before the side file was removed
        path.write_bytes(before + line[:written])
        side_of(path).write_bytes(side)
        assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]
        assert path.read_bytes() == before + line


def side_of(path):
    return path.with_name(path.name + ".next")


def append_watched(path, record):
    """Append a record; what the journal held before, the line that was added, and what the side file held."""
    return watched(path, lambda opened: opened.append(record))


def watched(path, write_line):
    """Write a line; what the journal held before, the line that was added, and what the side file held."""
    opened, before, seen = Journal(path, HEADER), path.read_bytes(), []
    write = opened._write_side
    opened._write_side = lambda *parts: (write(*parts), seen.append(side_of(path).read_bytes()))
    write_line(opened)
    return before, path.read_bytes()[len(before) :], seen[0]


def test_equal_records_one_after_the_other_are_both_kept(path):
    """A record that equals the last one is not taken for its repetition after a kill."""
    Journal(path, HEADER).append({"x": 4})
    before, _, side = append_watched(path, {"x": 4})
    path.write_bytes(before)
    side_of(path).write_bytes(side)
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}, {"x": 4}]


def test_a_side_file_of_a_deleted_journal_does_not_enter_a_new_one(path):
    _, _, side = append_watched(path, {"x": 4})
    path.unlink()
    side_of(path).write_bytes(side)
    assert Journal(path, HEADER).records == []
    path.unlink()
    Journal(path, HEADER).append({"other": 1})  # a journal that was put here since
    side_of(path).write_bytes(side)
    assert Journal(path, HEADER).records == [{"other": 1}]
    assert not side_of(path).exists()


def test_a_side_file_of_the_first_append_does_not_enter_a_journal_begun_anew(tmp_path):
    """Whose first line is the same."""
    path = tmp_path / "runs.jsonl"
    _, _, side = append_watched(path, {"x": 4})
    path.unlink()
    side_of(path).write_bytes(side)
    assert Journal(path, HEADER).records == []


@pytest.mark.parametrize("cut", [2, 5, 20])
def test_half_a_line_without_a_side_file_is_put_aside_and_the_journal_goes_on(path, cut):
    """As a copy of a file in use leaves it. Nothing that was told whole is lost, and nothing is thrown away."""
    text = path.read_bytes()
    last = text[text[:-1].rfind(b"\n") + 1 :]
    path.write_bytes(text[:-cut])
    with pytest.warns(RuntimeWarning, match=rf"{len(last) - cut} bytes were moved to runs.jsonl.torn-1 beside it"):
        opened = Journal(path, HEADER)
    assert opened.records == RECORDS[:2]
    assert path.with_name("runs.jsonl.torn-1").read_bytes() == last[:-cut]
    opened.append({"x": 4})
    assert Journal(path, HEADER).records == [*RECORDS[:2], {"x": 4}]
    path.write_bytes(path.read_bytes() + b"half")
    with pytest.warns(RuntimeWarning, match="4 bytes were moved to runs.jsonl.torn-2"):
        Journal(path, HEADER)


def test_a_last_line_that_lacks_only_its_newline_is_kept(path):
    """As an editor or a copy leaves it: its checksum says that it is whole."""
    text = path.read_bytes()
    path.write_bytes(text[:-1])
    assert read_lines(path)[1] == RECORDS
    assert path.read_bytes() == text[:-1]
    opened = Journal(path, HEADER)
    assert opened.records == RECORDS
    assert path.read_bytes() == text
    path.write_bytes(text[:-1])
    Journal(path, HEADER).append({"x": 4})
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]
    path.write_bytes(text + text.splitlines()[2])  # a whole line, of another number
    with pytest.warns(RuntimeWarning, match="bytes were moved"):
        assert Journal(path, HEADER).records == RECORDS


def test_a_file_system_without_hard_links_and_locks_will_do(tmp_path, monkeypatch):
    """Such as those of memory cards and of some networks."""

    def refuse(*args, **kwargs):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    if journal.fcntl is not None:
        monkeypatch.setattr(journal.fcntl, "flock", refuse)
    path = tmp_path / "runs.jsonl"
    for n in range(3):
        opened = Journal(path, HEADER)
        assert opened.records == RECORDS[:n]
        opened.append(RECORDS[n])
    assert os.listdir(tmp_path) == ["runs.jsonl"]


def test_reading_without_opening_leaves_half_a_line_where_it_is(path):
    path.write_bytes(path.read_bytes() + b"half")
    assert read_lines(path) == ({"tuneloss-journal": 2, **HEADER}, RECORDS, [])
    assert path.read_bytes().endswith(b"half")
    assert os.listdir(path.parent) == [path.name]


def edit_number(text: str) -> str:
    return text.replace("1.5", "1.6")


def swap_lines(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([lines[0], lines[2], lines[1], lines[3]])


DAMAGE = [
    (lambda text: text[:10], "must begin with a whole line; its first one is cut short"),
    (lambda text: "", "its first one is cut short. Restore the file, or delete it to begin anew"),
    (lambda text: text.replace("tuneloss-journal", "other-journal"), "line 1 is not"),
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


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[1]", "it holds no record"),
        (b'{"x": 1},{"y": 2}', "it holds several records"),
        (b"nonsense", "Expecting value"),
        (b'{"x": ' + b"[" * 100_000, "recursion|Expecting value"),
        (b'{"x": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_names_a_line_that_holds_no_record_although_its_checksum_is_right(path, body, reason):
    with path.open("ab") as file:
        file.write(b'{"n": 4, "crc32": %d, "body": %s}\n' % (zlib.crc32(body), body))
        file.write(journal._line(5, {"x": 5}))
    with pytest.raises(JournalError, match=rf"line 5 is not \(.*({reason})"):
        Journal(path, HEADER)


def test_refuses_another_box(path):
    with pytest.raises(ValueError, match=r"must be of the same box; found .*'a box'.*not .*'other'.*or another file"):
        Journal(path, {"box": "other"})


def test_names_a_handful_of_the_weights_whose_ranges_differ(tmp_path):
    """And none whose ranges are the same."""
    names = [f"w{i}" for i in range(30)]
    LossTuner(Box([0.1] * 30, [1.0] * 29 + [2.0], names), journal=tmp_path / "runs.jsonl")
    with pytest.raises(JournalError, match=r"'w3' from 0.1 to 1, not from 0.1 to 9; and 25 more\. Use") as refused:
        LossTuner(Box([0.1] * 30, [9.0] * 29 + [2.0], names), journal=tmp_path / "runs.jsonl")
    assert "found 'w0' from 0.1 to 1, not from 0.1 to 9; 'w1' " in str(refused.value)
    assert "w29" not in str(refused.value)


def test_tells_ranges_apart_that_differ_by_rounding(tmp_path):
    LossTuner(Box(0.1, 0.3, ["w"]), journal=tmp_path / "runs.jsonl")
    message = "found 'w' from 0.1 to 0.3, not from 0.1 to 0.30000000000000004. Use the box it has"
    with pytest.raises(JournalError, match=message):
        LossTuner(Box(0.1, 0.1 + 0.2, ["w"]), journal=tmp_path / "runs.jsonl")


def test_refuses_another_version(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "VERSION", 99)
    Journal(tmp_path / "other.jsonl", HEADER)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="must have format version 2; found 99"):
        Journal(tmp_path / "other.jsonl", HEADER)


def test_refuses_a_second_writer(path):
    """Two tuners on one file would each overlook what the other was told."""
    first, second = Journal(path, HEADER), Journal(path, HEADER)
    first.append({"x": 4})
    with pytest.raises(JournalError, match=r"written by one tuner at a time.*Give each process its own journal"):
        second.append({"x": 5})
    assert Journal(path, HEADER).records == [*RECORDS, {"x": 4}]


def test_every_record_is_synced_twice_before_append_returns(path, monkeypatch):
    """Once in the side file, which is whole by then, once in the journal: what was told survives a loss of power."""
    synced = []
    sync = os.fsync
    opened, before = Journal(path, HEADER), path.stat().st_size
    monkeypatch.setattr(
        os, "fsync", lambda number: (synced.append((path.stat().st_size, side_of(path).read_bytes())), sync(number))[1]
    )
    opened.append({"x": 4})
    after, line = path.stat().st_size, path.read_bytes()[before:]
    assert [size for size, _ in synced] == [before, after]
    assert all(side.partition(b"\n")[2] == line for _, side in synced)
    assert not side_of(path).exists()


FULL = """
import resource, signal, sys
from pathlib import Path
from tuneloss import Box, LossTuner, Observation
from tuneloss.errors import JournalError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write beyond the limit is short, and the next one an error
path = Path(sys.argv[1])
box = Box.from_dict({"l2": (0.1, 100), "logloss": 1.0})
tuner = LossTuner(box, journal=path)
tuner.tell([1.0, 1.0], Observation(1.0, [1.0, 2.0]))
before = path.read_bytes()
for room in range(0, 1000, 7):
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, resource.RLIM_INFINITY))
    try:
        tuner.tell([2.0, 1.0], Observation(1.5, [1.0, 2.0]))
    except JournalError as reason:
        assert "must be a file that can be written" in str(reason), reason
        assert path.read_bytes() == before
        assert len(tuner.history) == 1
    else:
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert room > 100
assert len(LossTuner(box, journal=path).history) == len(tuner.history) == 2
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_disk_that_becomes_full_in_the_middle_of_a_line_loses_nothing(tmp_path):
    """A real short write, in a process whose files may not grow: `tell` raises, the journal and the tuner stay as they
    were, and with room again it goes on."""
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "runs.jsonl")], check=True)


def test_a_journal_that_another_took_the_place_of_is_noticed(path):
    """Of the same size, by rename or in place; a new date alone is nothing."""
    opened = Journal(path, HEADER)
    os.utime(path, ns=(1, 1))
    opened.append({"x": 4})
    other = path.read_bytes().replace(b"1.5", b"1.6")
    path.with_name("other").write_bytes(other)
    os.replace(path.with_name("other"), path)
    with pytest.raises(JournalError, match="with other content where this one left"):
        opened.append({"x": 5})
    assert path.read_bytes() == other
    path.write_bytes(other.replace(b"1.6", b"1.5"))
    again = Journal(path, HEADER)
    path.write_bytes(other)
    with pytest.raises(JournalError, match="with other content where this one left"):
        again.append({"x": 5})


def test_side_files_and_drafts_follow_no_link(tmp_path):
    """Whoever may write into the folder cannot make the journal write elsewhere, nor read from there."""
    path, elsewhere = tmp_path / "runs.jsonl", tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    path.with_name(f"runs.jsonl.{os.getpid()}").symlink_to(elsewhere)
    opened = Journal(path, HEADER)
    side_of(path).symlink_to(elsewhere)
    opened.append({"x": 4})
    side_of(path).symlink_to(elsewhere)
    assert Journal(path, HEADER).records == [{"x": 4}]
    assert elsewhere.read_text() == "precious"


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


def test_a_journal_written_at_once_is_the_same_as_one_written_record_by_record(tmp_path):
    header, records = {"box": {"a": 1.0}, "title": "学習"}, [{"n": i, "x": 0.1 * i} for i in range(5)]
    journal = Journal(tmp_path / "runs.jsonl", header)
    for record in records:
        journal.append(record)
    assert journal_bytes(header, records) == (tmp_path / "runs.jsonl").read_bytes()
