"""Experiments: fair repeats, records that survive a kill, tables and curves from records by hand."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import joblib
import numpy as np
import pytest

from tuneloss import Observation
from tuneloss.errors import InvalidInput
from tuneloss.paper import experiments, results
from tuneloss.paper.experiments import Unit, run_unit, run_units
from tuneloss.paper.figure2 import draw_figure2, early_rows, figure2_info, figure2_units
from tuneloss.paper.parallel import side_by_side
from tuneloss.paper.results import read_records, writing
from tuneloss.paper.table1 import ERROR_HEADER, HEADER, chosen, error_cells, table1_cells, table1_info, table1_units
from tuneloss.paper.terms import appendix_box
from tuneloss.paper.tuners import COLORS, LABELS, READ_TERMS, TUNERS, make_tuner

FIELDS = {
    "experiment", "dataset", "tuner", "repeat", "run", "weights", "validation_loss", "validation_error", "test_loss",
    "test_error", "seconds",
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(experiments, "EPOCHS_ON_DIGITS", 3)


def without_time(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def test_a_unit_has_one_whole_record_a_run():
    records = list(run_unit(Unit("table1", "digits", "tuneloss", 0, 3)))
    assert [record["run"] for record in records] == [0, 1, 2]
    for record in records:
        assert set(record) == FIELDS
        assert json.loads(json.dumps(record, allow_nan=False)) == record
        assert appendix_box().as_array(record["weights"]) is not None
        assert 0 < record["validation_loss"] < 10
        assert 0 <= record["test_error"] <= 1


@pytest.mark.parametrize("tuner", TUNERS)
def test_terms_matter_to_tuners_that_read_them_and_only_to_them(tuner):
    """What the others ask for is the same, so the error is all that they need to be told."""
    box, rng = appendix_box(), np.random.default_rng(0)
    start = box.as_dict(box.lower)
    one, other = (make_tuner(tuner, box, 7, start) for _ in range(2))
    for error in (3.0, 1.0, 2.0, 1.5, 1.2, 1.1, 1.4, 1.3, 1.6, 1.7, 1.8):  # more than any tuner draws at random first
        weights = one.ask()
        assert weights == other.ask() or tuner in READ_TERMS
        one.tell(weights, Observation(error, rng.random(5), np.eye(6)))
        other.tell(weights, Observation(error, rng.random(5), np.diag(1 + rng.random(6))))
    assert (one.ask() == other.ask()) == (tuner not in READ_TERMS)


def test_tuners_share_split_first_weights_and_noise_of_a_repeat_and_repeats_differ():
    """So the first run is the same for all tuners."""
    first = [without_time(run_unit(Unit("table1", "digits", name, 0, 1))) for name in TUNERS]
    assert all({**records[0], "tuner": ""} == {**first[0][0], "tuner": ""} for records in first)
    assert next(run_unit(Unit("table1", "digits", "random", 1, 1)))["test_loss"] != first[0][0]["test_loss"]


def test_each_repeat_has_its_own_split_and_each_run_its_own_noise(monkeypatch):
    """Both are the same for all tuners."""
    seen = []

    def noted(split, weights, rng, **options):
        seen.append((split.train_x.tobytes(), rng.random()))
        return train(split, weights, rng, **options)

    train = experiments.train
    monkeypatch.setattr(experiments, "train", noted)
    for tuner, repeat in (("random", 0), ("tuneloss", 0), ("random", 1)):
        list(run_unit(Unit("table1", "digits", tuner, repeat, 3)))
    first, same, other = seen[:3], seen[3:6], seen[6:]
    assert first == same
    assert len({split for split, _ in first}) == 1
    assert first[0][0] != other[0][0]
    assert len({noise for _, noise in first + other}) == 6


def test_a_diverged_run_is_a_record_without_numbers(monkeypatch):
    def fails(*args, **options):
        raise experiments.RunFailed("Training diverged in epoch 1")

    monkeypatch.setattr(experiments, "train", fails)
    records = list(run_unit(Unit("table1", "digits", "tuneloss", 0, 2)))
    assert [record["validation_loss"] for record in records] == [None, None]
    assert all("diverged" in record["failed"] for record in records)
    assert math.isnan(table1_info([{**records[0], "tuner": "random"}])[0].test_loss.mean)


def test_what_is_in_the_file_is_not_run_again_and_longer_units_add_their_rest(tmp_path, monkeypatch):
    path = tmp_path / "some" / "table1.jsonl"
    units = [Unit("table1", "digits", name, 0, 2) for name in ("random", "tuneloss")]
    seen = []
    first = run_units(path, units, on_unit=lambda done, unit: seen.append((done, unit and unit.tuner)))
    assert seen[0] == (0, None)
    assert seen[1:] in ([(1, "random"), (2, "tuneloss")], [(1, "tuneloss"), (2, "random")])
    before = path.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(experiments, "run_unit", None)
        assert run_units(path, units, on_unit=lambda *seen_now: seen.append(seen_now)) == first
        assert seen[-1] == (2, None)
        assert run_units(path, [Unit("table1", "digits", "random", 0, 1)]) == first[:1]
    longer = run_units(path, [Unit("table1", "digits", "random", 0, 3)])
    assert without_time(longer[:2]) == without_time(first[:2])
    assert path.read_text().startswith(before)
    assert len(read_records(path)) == 5


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])  # the last returns lists only
def test_another_backend_of_joblib_takes_the_units(tmp_path, backend):
    units = [Unit("table1", "digits", "random", repeat, 1) for repeat in range(3)]
    with joblib.parallel_config(backend=backend):
        records = run_units(tmp_path / "some.jsonl", units, jobs=2)
    assert [record["repeat"] for record in records] == [0, 1, 2]


def test_a_backend_that_returns_lists_only_works_in_rounds(tmp_path):
    """Of five calls, two at a time, the first two have run when the first result is there; so a kill loses a round."""
    with joblib.parallel_config(backend="multiprocessing"):
        results = side_by_side(_append, [(tmp_path / "calls", i) for i in range(5)], 2)
        assert next(results) == 0
        assert sorted((tmp_path / "calls").read_text()) == ["0", "1"]
        assert list(results) == [1, 2, 3, 4]


def _append(path, number):
    with path.open("a") as file:
        file.write(str(number))
    return number


def test_side_by_side_gives_the_same_records(tmp_path):
    units = table1_units(["digits"], repeats=1, runs=1)
    one, two = (run_units(tmp_path / f"{jobs}.jsonl", units, jobs=jobs) for jobs in (1, 2))
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
        with pytest.raises(InvalidInput, match="must hold one JSON object a line"):
            read_records(path)
    assert read_records(tmp_path / "none.jsonl") == []


def test_two_commands_do_not_write_the_same_file(tmp_path):
    """The second is refused while the first is at work, and not after it."""
    path, units = tmp_path / "a.jsonl", [Unit("table1", "digits", "random", 0, 1)]
    with writing(path), pytest.raises(InvalidInput, match="by one command at a time; found that another does"):
        run_units(path, units)
    assert len(run_units(path, units)) == len(read_records(path)) == 1


def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("not supported")

    monkeypatch.setattr(results.fcntl, "flock", refuse)
    with writing(tmp_path / "a.jsonl") as append:
        append([{"a": 1}])
    assert read_records(tmp_path / "a.jsonl") == [{"a": 1}]


def test_records_of_something_else_and_units_named_twice_are_refused(tmp_path):
    path, unit = tmp_path / "a.jsonl", Unit("table1", "digits", "random", 0, 1)
    with pytest.raises(InvalidInput, match="Tasks must have different keys"):
        run_units(path, [unit, unit])
    path.write_text('{"a": 1}\n')
    with pytest.raises(InvalidInput, match="must hold records of this experiment; line 1 has no 'experiment'"):
        run_units(path, [unit])


def test_results_that_cannot_be_written_are_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "run_unit", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="must be in a folder that can be written"):
        run_units(tmp_path / "file" / "a.jsonl", [Unit("table1", "digits", "random", 0, 1)])


def record(tuner, repeat, run, validation_loss, test_loss, validation_error=0.5, test_error=0.5):
    names = ("validation_loss", "test_loss", "validation_error", "test_error")
    values = zip(names, (validation_loss, test_loss, validation_error, test_error), strict=True)
    return {"dataset": "tf_flowers", "tuner": tuner, "repeat": repeat, "run": run, **dict(values)}


def test_the_model_of_least_validation_loss_so_far_is_chosen():
    runs = [record("random", 0, i, v, t) for i, (v, t) in enumerate([(3, 10), (4, 11), (2, 12), (2, 13)])]
    assert chosen(runs[::-1], "test_loss").tolist() == [10, 10, 12, 12]
    assert chosen(runs, "test_loss", "validation_error").tolist() == [10, 10, 10, 10]
    failed = {**runs[0], "validation_loss": None}
    np.testing.assert_array_equal(chosen([failed, *runs[1:]], "test_loss"), [np.nan, 11, 12, 12])


def test_table_1_by_hand():
    """Two repeats: means, paired differences from the first tuner, and the paper's number.

    By error, random search's second model is chosen, by log loss its first.
    """
    records = [record("tuneloss", r, 0, 1, loss, test_error=0.1) for r, loss in enumerate([0.2, 0.4])]
    records += [record("random", r, 0, 1, loss, test_error=0.2) for r, loss in enumerate([0.5, 0.8])]
    records += [record("random", r, 1, 2, 9, validation_error=0.4, test_error=e) for r, e in enumerate([0.3, 0.4])]
    first, second = table1_info(records)
    assert (first.test_loss.mean, second.test_loss.mean) == (pytest.approx(0.3), pytest.approx(0.65))
    assert (second.test_error.mean, second.by_error.mean) == (pytest.approx(0.2), pytest.approx(0.35))
    assert first.less_loss is first.less_error is None
    assert second.less_loss.mean == pytest.approx(0.35)
    assert second.less_loss.half == pytest.approx(12.7062 * 0.05, rel=1e-4)
    assert second.less_error.mean == pytest.approx(0.25)
    assert second.paper == 0.1063
    assert all(len(row) == len(HEADER) for row in table1_cells([first, second]))
    cells = error_cells([first, second])
    assert all(len(row) == len(ERROR_HEADER) for row in cells)
    assert cells[1][-1] == "10.63%"


def test_figure_2_by_hand_and_drawn(tmp_path):
    records = [record("tuneloss", r, i, 1 - i / 10, 1 + r - i / 10) for r in range(2) for i in range(4)]
    curve = figure2_info(records)[0]
    np.testing.assert_allclose(curve.mean, [1.5, 1.4, 1.3, 1.2])
    figure = draw_figure2(figure2_info(records))
    figure.savefig(tmp_path / "a.png")
    assert [axes.get_title() for axes in figure.axes] == ["tf_flowers"] * 2


def test_early_rows_by_hand():
    """TuneLoss after 2 and 3 runs less random search after 100, repeat by repeat; random search has no 500 here."""
    records = [record("tuneloss", r, i, 1 - i / 10, 1 + r - i / 10) for r in range(2) for i in range(3)]
    records += [record("random", r, i, 1 - i / 1000, 2 + r + r - i / 100) for r in range(2) for i in range(100)]
    header, rows = early_rows(records)
    assert header[3] == "test log loss less random search's after 100"
    assert rows[0][:3] == ["tf_flowers", LABELS["tuneloss"], "2"]
    less = [0.9 + 0 - (2 - 0.99), 1.9 - (4 - 0.99)]
    assert rows[0][3] == f"{np.mean(less):.4f} ± {12.7062 * 0.5:.4f}"
    assert rows[1][3].startswith(f"{np.mean(less) - 0.1:.4f} ± ")
    assert all(row[4] == row[6] == "" for row in rows)
    assert len(rows) == 2  # it has no 10 runs, and the other form none


def test_what_is_to_be_run():
    """The sizes that the reproduction promises."""
    counts: dict[tuple[str, str], int] = {}
    for unit in table1_units(["tf_flowers", "nct_crc_he_3class", "oxford_iiit_pet", "caltech101"]):
        counts[unit.dataset, unit.tuner] = counts.get((unit.dataset, unit.tuner), 0) + 1
        assert unit.runs == 10
    assert {counts[name, t] for name in ("tf_flowers", "nct_crc_he_3class") for t in TUNERS} == {50}
    assert {counts[name, t] for name in ("oxford_iiit_pet", "caltech101") for t in TUNERS} == {10}
    sizes = {(u.tuner, u.runs) for u in figure2_units(["tf_flowers"])}
    assert {("random", 500), ("gp-ei-mcmc", 50), ("tuneloss", 100)} <= sizes
    assert sum(u.tuner == "gp-ei-mcmc" for u in figure2_units(["tf_flowers"])) == 5
    assert {u.tuner for u in figure2_units(["tf_flowers"], tuners=["random", "tpe"])} == {"random", "tpe"}
    for repeats, slow in ((20, 5), (2, 2)):
        units = figure2_units(["tf_flowers"], repeats=repeats)
        assert sum(u.tuner == "gp-ei-mcmc" for u in units) == slow
        assert sum(u.tuner == "tpe" for u in units) == repeats
    with pytest.raises(InvalidInput, match="found 'sgd'"):
        figure2_units(["tf_flowers"], tuners=["random", "sgd"])
    units = figure2_units(["caltech101"], 3, 40, tuners=["random:100", "tuneloss:10", "tpe"])
    assert {(u.tuner, u.runs) for u in units} == {("random", 100), ("tuneloss", 10), ("tpe", 40)}
    with pytest.raises(InvalidInput, match="named once; found random:1000, random"):
        figure2_units(["tf_flowers"], tuners=["random:1000", "random"])
    for wrong in ("random:", "random:0", "random:ten"):
        with pytest.raises(InvalidInput, match=f"NAME or NAME:RUNS, such as random:100; found '{wrong}'"):
            figure2_units(["tf_flowers"], tuners=[wrong])


def test_every_tuner_has_a_label_and_a_colour_of_its_own():
    assert set(LABELS) == set(COLORS) == set(TUNERS)
    assert len(set(COLORS.values())) == len(TUNERS)
    with pytest.raises(InvalidInput, match=r"A tuner must be one of tuneloss, .* found 'sgd'"):
        make_tuner("sgd", appendix_box(), 0, {})
