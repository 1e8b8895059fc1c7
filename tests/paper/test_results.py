"""Records of experiments on a full disk, and files of records that someone else wrote."""

import json
import subprocess
import sys

import pytest

from tests.test_cli import tuneloss
from tuneloss.errors import InvalidInput
from tuneloss.paper import results
from tuneloss.paper.experiment import run_units
from tuneloss.paper.results import read_records, writing
from tuneloss.paper.tuner_runs import TunerRuns

FULL = """
import resource, sys, pathlib
from tuneloss.paper.results import InvalidInput, writing
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with writing(pathlib.Path(sys.argv[1])) as append:
    append([{"a": 1}])
    try:
        append([{"a": 2}, {"a": "x" * 90}])
    except InvalidInput as reason:
        print(reason)
    append([{"a": 3}])
"""


def test_records_without_room_are_refused_in_words_and_leave_no_part_of_them(tmp_path):
    pytest.importorskip("resource", reason="needs limits on what a process may write")
    path = tmp_path / "a.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "must be on a disk with room for them: [Errno 27] File too large" in done.stdout
    assert f"{path} holds all records before these. Make room, and run the same command again." in done.stdout
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'


@pytest.mark.parametrize("depth", [500, 5000, 100_000])
def test_records_that_are_nested_without_end_are_read_or_refused_in_words(tmp_path, depth):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": ' + "[" * depth + "]" * depth + "}\n")
    if depth < 900:
        assert list(read_records(path)[0]) == ["a"]
    else:
        with pytest.raises(InvalidInput, match="must hold one JSON object per line; found that maximum recursion"):
            read_records(path)


def test_a_number_of_thousands_of_digits_is_refused_in_words(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": ' + "1" * 5000 + "}\n")
    with pytest.raises(InvalidInput, match="must hold one JSON object per line; found that Exceeds the limit"):
        read_records(tmp_path / "a.jsonl")


def test_records_whose_key_is_a_list_are_refused_in_words(tmp_path):
    path = tmp_path / "table1-quick.jsonl"
    with writing(path) as append:
        append([{"experiment": [], "dataset": "digits", "tuner": {}, "repeat": 0}])
    with pytest.raises(InvalidInput, match=r"line 1 has another type of value .*unhashable"):
        run_units([TunerRuns("table1", "digits", "random", 0, 1)], path)
    done = tuneloss("paper", "table1", "--quick", "--results", tmp_path)
    assert done.returncode == 1
    assert "line 1 has another type of value" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(path.read_text())["dataset"] == "digits"


def test_a_line_cut_short_is_removed_by_who_writes_and_a_broken_one_is_named(tmp_path):
    """Who only reads leaves it: another may be writing it just now."""
    path = tmp_path / "some" / "a.jsonl"
    with writing(path) as append:
        append([{"a": 1}])
        assert read_records(path) == [{"a": 1}]  # at once
    path.write_text(path.read_text() + '{"a": ')
    assert read_records(path) == [{"a": 1}]
    assert path.read_text().endswith('{"a": ')
    with writing(path) as append:
        append([{"a": 2}, {"a": 3}])
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n{"a": 3}\n'
    for wrong in (b"{]\n", b"[1]\n", b"\xff\n"):
        path.write_bytes(wrong)
        with pytest.raises(InvalidInput, match="must hold one JSON object per line"):
            read_records(path)
    assert read_records(tmp_path / "none.jsonl") == []


def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("not supported")

    monkeypatch.setattr(results.fcntl, "flock", refuse)
    with writing(tmp_path / "a.jsonl") as append:
        append([{"a": 1}])
    assert read_records(tmp_path / "a.jsonl") == [{"a": 1}]
