"""Records of experiments on a full disk, and files of records that someone else wrote."""

import json
import subprocess
import sys

import pytest

from tests.test_cli import tuneloss
from tuneloss.errors import InvalidInput
from tuneloss.paper.experiments import Unit, run_units
from tuneloss.paper.results import read_records, writing

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
    assert f"{path} has all those before. Make room, and give the same command again." in done.stdout
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'


@pytest.mark.parametrize("depth", [500, 5000, 100_000])
def test_records_that_are_nested_without_end_are_read_or_refused_in_words(tmp_path, depth):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": ' + "[" * depth + "]" * depth + "}\n")
    if depth < 900:
        assert list(read_records(path)[0]) == ["a"]
    else:
        with pytest.raises(InvalidInput, match="must hold one JSON object a line; found that maximum recursion"):
            read_records(path)


def test_a_number_of_thousands_of_digits_is_refused_in_words(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": ' + "1" * 5000 + "}\n")
    with pytest.raises(InvalidInput, match="must hold one JSON object a line; found that Exceeds the limit"):
        read_records(tmp_path / "a.jsonl")


def test_records_whose_key_is_a_list_are_refused_in_words(tmp_path):
    path = tmp_path / "table1-quick.jsonl"
    with writing(path) as append:
        append([{"experiment": [], "dataset": "digits", "tuner": {}, "repeat": 0}])
    with pytest.raises(InvalidInput, match=r"line 1 has another type of value .*unhashable"):
        run_units(path, [Unit("table1", "digits", "random", 0, 1)])
    done = tuneloss("paper", "table1", "--quick", "--results", tmp_path)
    assert done.returncode == 1
    assert "line 1 has another type of value" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(path.read_text())["dataset"] == "digits"
