"""What `tuneloss fit` writes, and what it leaves alone."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from tests.cli.commands import refused
from tuneloss import Box, LossTuner, Observation
from tuneloss.cli import app
from tuneloss.data import Dataset
from tuneloss.report.learned_info import predictions
from tuneloss.report.online_explanation import setting_run
from tuneloss.report.runs_info import read_runs, regularizer
from tuneloss.report.words import term_words, weight_text
from tuneloss.sklearn import TunedLogisticRegression
from tuneloss.sklearn.comparison import ModelComparison, hold_out
from tuneloss.sklearn.fit_files import write_fit


def fit(out):
    return CliRunner().invoke(app, ["fit", "iris", "--out", str(out), "--json"])


def journal_of_a_tuner(path):
    LossTuner(Box.from_dict({"a": (0.1, 1)}), journal=path).tell({"a": 0.5}, Observation(1.0, {"a": 1.0}))


@pytest.mark.parametrize("name", ["runs.jsonl", "model.npz", "report.html"])
def test_a_file_of_someone_else_is_left_alone(tmp_path, name):
    """The command ends before any work, names the file, and the folder is as before."""
    path = tmp_path / name
    if name == "runs.jsonl":
        journal_of_a_tuner(path)
    elif name == "model.npz":
        np.savez(path, params=np.arange(3))
    else:
        path.write_text("<p>mine</p>")
    before = path.read_bytes()
    message = refused("fit", "no_such_data.csv", "--out", tmp_path)  # the data is not even looked at
    assert f"found {path}, which this version did not write. Choose another folder: --out" in message
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == before


def test_a_folder_in_the_way_of_a_file_is_refused(tmp_path):
    (tmp_path / "report.html").mkdir()
    assert "report.html, which this version did not write" in refused("fit", "iris", "--out", tmp_path)


def test_files_of_an_earlier_fit_are_replaced(tmp_path):
    """Also where a kill left half a record beside the journal."""
    for _ in range(2):
        done = fit(tmp_path)
        assert done.exit_code == 0, done.output
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.npz", "report.html", "runs.jsonl"]
        last = (tmp_path / "runs.jsonl").read_bytes().splitlines(keepends=True)[-1]
        (tmp_path / "runs.jsonl.next").write_bytes(last)


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "Stopped; nothing was written."),
        (OSError("disk full"), 1, "must be a folder in which files can be written: disk full"),
    ],
)
def test_a_fit_that_ends_while_its_report_is_drawn_changes_nothing(tmp_path, monkeypatch, end, code, said):
    """The files of the fit before are as they were, there are no others, and standard error says so."""
    fit(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(*_):
        raise end

    monkeypatch.setattr("tuneloss.report.runs_page.write_runs_report", stop)
    done = CliRunner().invoke(app, ["fit", "wine", "--out", str(tmp_path), "--json"])
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (OSError("disk full"), 1)])
def test_who_is_stopped_while_files_are_put_into_place_is_told_so(tmp_path, monkeypatch, end, code):
    """After the first of the three was replaced, and before the second."""
    replaced = []

    def replace(draft, path):
        if Path(path).parent == tmp_path:  # not within the folder in which they are drafted
            if replaced:
                raise end
            replaced.append(Path(path).name)
        Path(draft).rename(path)

    monkeypatch.setattr("os.replace", replace)
    done = fit(tmp_path)
    assert done.exit_code == code
    assert f"some files in {tmp_path} may be new." in " ".join(done.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == replaced == ["runs.jsonl"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which nobody may write, not even root")
def test_a_folder_that_cannot_be_written_is_refused_before_any_work():
    """Exit code 2, as for a folder that cannot be made, and no bar of progress."""
    message = refused("fit", "iris", "--out", "/proc/self", code=2)
    assert "--out" in message
    assert "must be a folder that can be written" in message
    assert "fitting" not in message


def test_no_folder_is_left_where_the_data_is_refused(tmp_path):
    (tmp_path / "huge.csv").write_text("x,kind\n" + "1e308,a\n-1e308,b\n" * 6)
    assert "too large" in refused("fit", tmp_path / "huge.csv", "--target", "kind", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cv", [3, [(np.arange(0, 150, 2), np.arange(1, 150, 2))]])
def test_the_report_shows_what_the_search_learned(tmp_path, cv):
    """On folds as on one split: what LearnLoss said last, in the search's box, and advice only on what can be done."""
    x, y = load_iris(return_X_y=True)
    data = Dataset("iris", ("a", "b", "c", "d"), x, y)
    tuned = TunedLogisticRegression(cv=cv, random_state=0).fit(x, y)
    numbers = {"test log loss": 1.0, "test error": 0.5}
    found = ModelComparison(tuned, [numbers] * len(tuned.history_), {"tuned": numbers})
    write_fit(tmp_path, data, hold_out(data, 0.2, seed=0), found)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    said, chosen = tuned.learned_.as_dict(), tuned.history_[tuned.best_run_]["weights"]
    for name, low, high in zip(tuned.box_.names[:4], tuned.box_.lower, tuned.box_.upper, strict=False):
        texts = [weight_text(number) for number in (tuned.loss_weights_[name], chosen[name], said[name], low, high)]
        pattern = r"<td>{}</td><td>{}</td><td>{}</td>(<td>[^<]*</td>)?<td>{}</td><td>{} to {}</td>"
        assert re.search(pattern.format(*map(re.escape, [term_words(name), *texts])), page)
    tuned.box_.as_array(tuned.history_[-1]["weights"])  # what was fitted then lies in the box, too
    errors = predictions(read_runs(tmp_path / "runs.jsonl"))
    assert np.corrcoef(errors.observed, errors.predicted)[0, 1] > 0.9
    for advice in ("poor fit", "left out", "Raise the bound", "Lower the bound"):
        assert advice not in page


def test_the_report_explains_the_step_that_set_the_weights_of_the_chosen_epoch(tmp_path):
    """Its journal has all epochs, each with its test scores, and the saved weights have grown with the examples."""
    x, y = load_iris(return_X_y=True)
    data = Dataset("iris", ("a", "b", "c", "d"), x, y)
    tuned = TunedLogisticRegression(strategy="online", cv=3, random_state=0).fit(x, y)
    scores = [{"test log loss": 1.0 + i, "test error": 0.5} for i in range(len(tuned.history_))]
    write_fit(tmp_path, data, hold_out(data, 0.2, seed=0), ModelComparison(tuned, scores, {"tuned": scores[0]}))
    info = read_runs(tmp_path / "runs.jsonl")
    assert [run.info for run in info.runs] == scores
    assert info.runs.index(info.best) == tuned.best_run_ > 0
    chosen = tuned.steps_[tuned.best_run_]
    assert info.best.weights == chosen.weights
    assert info.best.observation.error == chosen.error
    assert setting_run(info) is info.runs[tuned.best_run_ - 1]
    for name, weight in info.header.final.items():
        growth = 1.5**0.5 if name == "l2" or name.startswith("penalty/") else 1.0
        assert weight == pytest.approx(growth * chosen.weights[name], rel=1e-6)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    step = f"weights of epoch {tuned.best_run_}, which the step after epoch {tuned.best_run_ - 1} had set"
    assert f"The saved model is based on the {step}." in page
    points, values = regularizer(info, "penalty")
    np.testing.assert_allclose(points[1:-1], tuned.regularizer_[0][1:-1])
    grown = tuned.regularizer_[1] - tuned.regularizer_[1].min()
    np.testing.assert_allclose(1.5**0.5 * values[1:-1], grown[1:-1], rtol=1e-6, atol=1e-12)


def test_where_nothing_can_be_learned_the_report_says_that_l2_alone_is_used(tmp_path):
    """Constant inputs: the run ends at epoch 0, and no step is named as the one that set its weights."""
    x, y = np.zeros((60, 2)), np.arange(60) % 2
    data = Dataset("constant", ("a", "b"), x, y)
    tuned = TunedLogisticRegression(strategy="online", cv=2, random_state=0).fit(x, y)
    assert len(tuned.history_) == 1
    numbers = {"test log loss": 1.0, "test error": 0.5}
    write_fit(tmp_path, data, hold_out(data, 0.2, seed=0), ModelComparison(tuned, [numbers], {"tuned": numbers}))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "L2 alone is used: no epoch with learned weights was better." in page
    assert "The weights were not set by a step, but by a fit with L2 alone, before the first step." in page
