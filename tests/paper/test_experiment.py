"""Units of experiments: they are run once, side by side, and survive a kill."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import joblib
import pytest

from tests.paper.records import without_time
from tuneloss.errors import InvalidInput
from tuneloss.paper import tuner_runs
from tuneloss.paper.ablation import Ablation
from tuneloss.paper.experiment import Results, run_experiment, run_units, side_by_side
from tuneloss.paper.results import read_records, writing
from tuneloss.paper.table1 import Table1
from tuneloss.paper.tuner_runs import TunerRuns
from tuneloss.paper.tuners import TUNERS


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(tuner_runs, "EPOCHS_ON_DIGITS", 3)


def test_what_is_in_the_file_is_not_run_again_and_longer_units_add_their_rest(tmp_path, monkeypatch):
    path = tmp_path / "some" / "table1.jsonl"
    units = [TunerRuns("table1", "digits", name, 0, 2) for name in ("random", "tuneloss")]
    seen = []
    first = run_units(units, path, on_unit=lambda done, unit: seen.append((done, unit and unit.tuner)))
    assert seen[0] == (0, None)
    assert seen[1:] in ([(1, "random"), (2, "tuneloss")], [(1, "tuneloss"), (2, "random")])
    before = path.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(TunerRuns, "run", None)
        assert run_units(units, path, on_unit=lambda *seen_now: seen.append(seen_now)) == first
        assert seen[-1] == (2, None)
        assert run_units([TunerRuns("table1", "digits", "random", 0, 1)], path) == first[:1]
    longer = run_units([TunerRuns("table1", "digits", "random", 0, 3)], path)
    assert without_time(longer[:2]) == without_time(first[:2])
    assert path.read_text().startswith(before)
    assert len(read_records(path)) == 5


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])  # the last returns lists only
def test_another_backend_of_joblib_takes_the_units(tmp_path, backend):
    units = [TunerRuns("table1", "digits", "random", repeat, 1) for repeat in range(3)]
    with joblib.parallel_config(backend=backend):
        records = run_units(units, tmp_path / "some.jsonl", jobs=2)
    assert [record["repeat"] for record in records] == [0, 1, 2]


@dataclass(frozen=True)
class Appending:
    """A unit that appends its number to a file."""

    path: Path
    number: int

    def run(self):
        with self.path.open("a") as file:
            file.write(str(self.number))
        return [{"number": self.number}]


def test_a_backend_that_returns_lists_only_works_in_rounds(tmp_path):
    """Of five units, two at a time, the first two have run when the first record is there; so a kill loses a round."""
    units = [Appending(tmp_path / "calls", i) for i in range(5)]
    with joblib.parallel_config(backend="multiprocessing"):
        results = side_by_side(units, 2)
        assert next(results) == (units[0], [{"number": 0}])
        assert sorted((tmp_path / "calls").read_text()) == ["0", "1"]
        assert [unit for unit, _ in results] == units[1:]


@dataclass(frozen=True)
class Process:
    """A unit that says in which process it runs."""

    number: int

    def run(self):
        return [{"process": os.getpid()}]


def test_all_rounds_share_their_workers():
    with joblib.parallel_config(backend="multiprocessing"):
        processes = {records[0]["process"] for _, records in side_by_side([Process(i) for i in range(9)], 2)}
    assert len(processes) <= 2


def test_a_ray_cluster_runs_an_experiment(tmp_path):
    """`Table1` on digits, as `tuneloss paper table1 --quick` runs it: all records are there, with the same weights."""
    from tests.ray_cluster import local_cluster  # before Ray is imported

    pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    units = Table1(["digits"], **Table1.QUICK | {"runs": 2}).units()
    here = run_units(units, jobs=2)
    with local_cluster(1):
        register_ray()
        with joblib.parallel_backend("ray"):
            there = run_units(units, tmp_path / "table1-quick.jsonl", jobs=2)
    assert len(there) == 2 * len(units) == len(read_records(tmp_path / "table1-quick.jsonl"))
    asked = [
        [(record["tuner"], record["repeat"], record["weights"]) for record in records] for records in (here, there)
    ]
    assert (
        asked[0][::2] == asked[1][::2]
    )  # first runs; the others differ, since few epochs are set in this process only


def test_side_by_side_gives_the_same_records(tmp_path):
    units = Table1(["digits"], repeats=1, runs=1).units()
    one, two = (run_units(units, tmp_path / f"{jobs}.jsonl", jobs=jobs) for jobs in (1, 2))
    assert [record["tuner"] for record in two] == list(TUNERS)
    asked = [[(record["tuner"], record["weights"]) for record in records] for records in (one, two)]
    assert asked[0] == asked[1]  # not their numbers: few epochs are set in this process only


def test_a_killed_command_goes_on_where_it_was(tmp_path):
    """SIGKILL after the first unit is written; the second call keeps its lines and ends with the rest."""
    path = tmp_path / "table1-quick.jsonl"
    command = [sys.executable, "-m", "tuneloss", "paper", "table1", "--quick", "--runs", "2", "--repeats", "1"]
    command += ["--results", str(tmp_path), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = path.read_text()
    before = before[: before.rfind("\n") + 1]
    assert before
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert path.read_text().startswith(before)
    records = read_records(path)
    assert len(records) == 2 * len(TUNERS) == len({(r["tuner"], r["run"]) for r in records})


def test_two_commands_do_not_write_the_same_file(tmp_path):
    """The second is refused while the first is at work, and not after it."""
    path, units = tmp_path / "a.jsonl", [TunerRuns("table1", "digits", "random", 0, 1)]
    with (
        writing(path),
        pytest.raises(InvalidInput, match="by one command at a time; found that another command"),
    ):
        run_units(units, path)
    assert len(run_units(units, path)) == len(read_records(path)) == 1


def test_records_of_something_else_and_units_named_twice_are_refused(tmp_path):
    path, unit = tmp_path / "a.jsonl", TunerRuns("table1", "digits", "random", 0, 1)
    with pytest.raises(InvalidInput, match="Units must have different keys"):
        run_units([unit, unit], path)
    path.write_text('{"a": 1}\n')
    with pytest.raises(InvalidInput, match="must hold records of this experiment; line 1 has no 'experiment'"):
        run_units([unit], path)


def test_results_that_cannot_be_written_are_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(TunerRuns, "run", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="must be in a folder that can be written"):
        run_units([TunerRuns("table1", "digits", "random", 0, 1)], tmp_path / "file" / "a.jsonl")


def test_records_of_digits_alone_and_quick_ones_are_apart(tmp_path):
    """So that who has no features files does not write into the records of those who have."""
    cases = [(["tf_flowers", "digits"], False), (["digits"], False), (["digits"], True)]
    names = [Results(tmp_path, quick).path("table1", datasets).name for datasets, quick in cases]
    assert names == ["table1.jsonl", "table1-digits.jsonl", "table1-quick.jsonl"]


def test_an_experiment_counts_units_of_all_its_files(tmp_path):
    """The ablation needs records of Table 1: each file has its own, and progress goes on from one to the other."""
    seen = []
    ablation = Ablation(["digits"], 1, 1, ["10 epochs"])
    records = run_experiment(ablation, Results(tmp_path), on_unit=lambda done, unit: seen.append(done))
    assert seen == [0, 1, 2, 2, 3]
    assert [record["experiment"] for record in records] == ["table1", "table1", "ablation"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ablation-digits.jsonl", "table1-digits.jsonl"]


def test_without_a_file_all_units_are_run_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = run_units([TunerRuns("demo", "digits", "random", repeat, 1) for repeat in range(2)])
    assert [record["repeat"] for record in records] == [0, 1]
    assert not list(tmp_path.iterdir())
