"""`tuneloss fit`, `predict` and `report`, as a user runs them; and what they refuse before any work is done."""

import io
import json
import os
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from typer.testing import CliRunner

from tests.cli.commands import refused
from tests.test_cli import tuneloss
from tuneloss.cli import app
from tuneloss.data import read_dataset
from tuneloss.report.words import weight_text
from tuneloss.sklearn import TunedLogisticRegression, hold_out
from tuneloss.sklearn.model_file import load_model


@pytest.fixture(scope="module")
def flowers():
    """Iris as a table with text labels."""
    found = load_iris(as_frame=True)
    frame = found.data.rename(columns=lambda name: name.replace(" (cm)", ""))
    return frame.assign(kind=found.target_names[found.target])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, flowers):
    folder = tmp_path_factory.mktemp("fit")
    flowers.to_csv(folder / "iris.csv", index=False)
    return folder, tuneloss("fit", "iris.csv", "--target", "kind", cwd=folder)


def test_fit_shows_a_table_and_writes_model_runs_and_report(fitted):
    folder, done = fitted
    assert done.returncode == 0, done.stderr
    for name in ("no regularizer", "L2 path (LogisticRegressionCV)", "tuned"):
        assert name in done.stdout
    assert "fitting" in done.stderr  # the progress bar
    out = folder / "tuneloss-fit"
    assert sorted(path.name for path in out.iterdir()) == ["model.npz", "report.html", "runs.jsonl"]
    assert "no regularizer" in (out / "report.html").read_text(encoding="utf-8")
    assert "Report: tuneloss-fit/report.html" in done.stdout.replace("\\", "/")


def test_predict_says_what_the_model_says(fitted, flowers):
    """Columns in any order; one that the model does not know is not looked at. And it is a good model."""
    folder, _ = fitted
    shuffled = flowers[["kind", *reversed(flowers.columns[:4])]].assign(note="text")
    shuffled.to_csv(folder / "shuffled.csv", index=False)
    done = tuneloss("predict", "tuneloss-fit/model.npz", "shuffled.csv", "--out", "predicted.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    predicted = pd.read_csv(folder / "predicted.csv")
    model = load_model(folder / "tuneloss-fit" / "model.npz")
    expected = model.predict_proba(flowers)
    np.testing.assert_allclose(predicted.iloc[:, 1:], expected, atol=1e-5)
    assert (predicted["predicted"] == flowers["kind"]).mean() > 0.9
    assert log_loss(flowers["kind"], expected) < 0.2
    again = tuneloss("predict", "tuneloss-fit/model.npz", "shuffled.csv", cwd=folder)
    assert again.stdout == (folder / "predicted.csv").read_text()


def test_the_report_can_be_made_anew_from_the_runs_alone(fitted):
    folder, _ = fitted
    done = tuneloss("report", "tuneloss-fit/runs.jsonl", "--out", "again.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "again.html").read_text() == (folder / "tuneloss-fit" / "report.html").read_text()


def test_json_for_machines(tmp_path, flowers):
    """The same numbers, and nothing else on standard output; Parquet gives what CSV gives."""
    flowers.to_parquet(tmp_path / "iris.parquet")
    flowers.to_csv(tmp_path / "iris.csv", index=False)
    found = []
    for name in ("iris.parquet", "iris.csv"):
        done = tuneloss("fit", name, "--target", "kind", "--json", "--out", "out", cwd=tmp_path)
        found.append(json.loads(done.stdout))
    assert found[0]["weights"] == found[1]["weights"]
    assert 0 < found[0]["models"]["tuned"]["test log loss"] < 0.3
    assert found[0]["report"].endswith("report.html")


def test_embedded_sets_and_npz_files(tmp_path):
    done = CliRunner().invoke(app, ["fit", "wine", "--out", str(tmp_path / "wine"), "--json"])
    assert done.exit_code == 0, done.output
    x, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", features=x.astype(np.float16), labels=y)
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "iris.npz"), "--out", str(tmp_path / "iris"), "--json"])
    assert done.exit_code == 0, done.output
    model = load_model(tmp_path / "iris" / "model.npz")
    assert model.classes.tolist() == [0, 1, 2]
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "iris" / "model.npz"), str(tmp_path / "iris.npz")])
    assert done.output.splitlines()[0] == "predicted,p(0),p(1),p(2)"
    assert len(done.output.splitlines()) == 151


def write(path, text):
    path.write_text(text)
    return path


def test_files_are_checked_before_work_starts(tmp_path):
    """A missing file or column, no target, a constant one, one row, a rare class, two names."""
    rows = "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40))
    good = write(tmp_path / "good.csv", "x,z,kind\n" + rows)
    out = ("--out", tmp_path / "out")
    assert "No such file" in refused("fit", tmp_path / "none.csv", "--target", "kind", *out)
    assert "must be a file that can be read" in refused("fit", tmp_path, "--target", "kind", *out)
    assert "has no column 'sort'; it has 'x', 'z', 'kind'" in refused("fit", good, "--target", "sort", *out)
    assert "Name it: --target 'kind'" in refused("fit", good, *out)
    assert "found 40 different values in 40 rows. Is it an identifier?" in refused("fit", good, "--target", "x", *out)
    constant = write(tmp_path / "constant.csv", "x,kind\n" + "1,a\n2,a\n" * 5)
    assert "at least 2 classes; found only a in 10 rows" in refused("fit", constant, "--target", "kind", *out)
    one = write(tmp_path / "one.csv", "x,kind\n1,a\n")
    assert "at least 6 rows; found 1" in refused("fit", one, "--target", "kind", *out)
    unlabelled = write(tmp_path / "unlabelled.csv", "x,kind\n" + "1,1\n2,2\n3,\n" * 5)
    assert "5 labels are missing in 'kind'" in refused("fit", unlabelled, "--target", "kind", *out)
    real = write(tmp_path / "real.csv", "x,y\n" + "".join(f"{i},{i / 7}\n" for i in range(30)))
    assert "for classification" in refused("fit", real, "--target", "y", *out)
    own = write(tmp_path / "own.csv", "x,y\n" + "".join(f"{i},{i}\n" for i in range(30)))
    assert "Is it an identifier?" in refused("fit", own, "--target", "y", *out)
    rare = write(tmp_path / "rare.csv", "x,kind\n" + "1,a\n2,b\n" * 6 + "3,c\n")
    assert "found fewer for c (1)" in refused("fit", rare, "--target", "kind", *out)
    twice = write(tmp_path / "twice.csv", "x,x,kind\n" + "1,2,a\n3,4,b\n" * 6)
    assert "has 'x' twice" in refused("fit", twice, "--target", "kind", *out)
    alone = write(tmp_path / "alone.csv", "kind\n" + "a\nb\n" * 6)
    assert "must have rows and input columns" in refused("fit", alone, "--target", "kind", *out)
    ragged = write(tmp_path / "ragged.csv", "x,kind\n1,a\n2\n")
    assert "must have 2 cells" in refused("fit", ragged, "--target", "kind", *out)
    assert "must be a Parquet file" in refused("fit", write(tmp_path / "x.parquet", "no"), "--target", "kind", *out)
    assert not (tmp_path / "out").exists()


def test_npz_files_are_read_without_pickle(tmp_path):
    np.savez(tmp_path / "objects.npz", features=np.array([{}], dtype=object), labels=[0])
    assert "without pickled objects" in refused("fit", tmp_path / "objects.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    assert "found a (3,)" in refused("fit", tmp_path / "other.npz")
    np.savez(tmp_path / "short.npz", X=np.zeros((4, 2)), y=[0, 1])
    assert "an array of 4 labels" in refused("fit", tmp_path / "short.npz")


def test_models_are_checked(tmp_path, fitted, flowers):
    folder, _ = fitted
    good = folder / "tuneloss-fit" / "model.npz"
    assert "must be a model that `tuneloss fit` saved" in refused("predict", write(tmp_path / "m.npz", "x"), "iris")
    parts = dict(np.load(good))
    np.savez(tmp_path / "cut.npz", **(parts | {"coef": parts["coef"][:, :2]}))
    assert "shapes do not fit together" in refused("predict", tmp_path / "cut.npz", "iris")
    np.savez(tmp_path / "one.npz", **(parts | {"classes": np.array("a")}))
    assert "shapes do not fit together" in refused("predict", tmp_path / "one.npz", "iris")
    (tmp_path / "empty.npz").write_bytes(b"")
    assert "saved; found another or a damaged file, of 0 bytes" in refused("predict", tmp_path / "empty.npz", "iris")
    np.savez(tmp_path / "deep.npz", **(parts | {"about": np.array("[" * 100_000)}))
    assert "must be a model" in refused("predict", tmp_path / "deep.npz", "iris")
    np.savez(tmp_path / "new.npz", **(parts | {"version": np.array(3)}))
    assert "format version 1 or 2; found 3" in refused("predict", tmp_path / "new.npz", "iris")
    flowers.drop(columns=["sepal width"]).to_csv(tmp_path / "less.csv", index=False)
    assert "it has no 'sepal width'" in refused("predict", good, tmp_path / "less.csv")


def test_predict_says_what_is_wrong_with_the_rows(tmp_path, fitted, flowers):
    """Columns that are not there at all, text, infinite and huge values; nothing is advised that predict cannot do."""
    folder, _ = fitted
    model = folder / "tuneloss-fit" / "model.npz"
    other = write(tmp_path / "other.csv", "x0,x1\n1,2\n")
    assert (
        "other.csv: It must have the columns that the model was trained with; it has no 'sepal length' and 3 others"
        in (refused("predict", model, other))
    )
    inputs = flowers.drop(columns="kind")
    wrong = inputs.astype(object)
    wrong.iloc[5, 0], wrong.iloc[7, 1] = "wide", np.inf
    wrong.to_csv(tmp_path / "wrong.csv", index=False)
    message = refused("predict", model, tmp_path / "wrong.csv")
    assert (
        "wrong.csv has 2 problems: - Column 'sepal length' must hold numbers, as in training; found 'wide' at"
        in message
    )
    assert message.endswith("Column 'sepal width' must hold finite numbers; found inf at row 8.")
    (inputs * 1e307).to_csv(tmp_path / "huge.csv", index=False)
    assert " has values that are too large" in refused("predict", model, tmp_path / "huge.csv")


def test_few_rows_of_many_classes_are_enough(tmp_path):
    """Three rows of each of twenty classes: smaller parts are taken, and nothing breaks."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc")).assign(kind=np.repeat(np.arange(20), 3))
    frame.to_csv(tmp_path / "many.csv", index=False)
    arguments = ["fit", tmp_path / "many.csv", "--target", "kind", "--out", tmp_path / "out", "--json"]
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output


def test_other_bad_files_and_names(tmp_path, flowers):
    out = ("--out", tmp_path / "out")
    empty = write(tmp_path / "empty.csv", "")
    assert "must be a CSV file" in refused("fit", empty, "--target", "kind", *out)
    gaps = write(tmp_path / "gaps.csv", "x,kind\n" + "1,yes\n2,\n" * 5)
    assert "5 labels are missing in 'kind'" in refused("fit", gaps, "--target", "kind", *out)
    flowers.to_csv(tmp_path / "iris.csv", index=False)
    same = ("--target", "kind", "--drop", "kind", *out)
    assert "found 'kind' for both" in refused("fit", tmp_path / "iris.csv", *same)
    assert "has a fixed target and fixed inputs; found 'kind'" in refused("fit", "iris", "--target", "kind", *out)
    for content in (b"PK\x03\x04 cut short", b"", b"\x80\x04]\x94."):  # the last is a pickle
        (tmp_path / "cut.npz").write_bytes(content)
        message = refused("fit", tmp_path / "cut.npz", *out)
        assert "must be an npz file" in message
        assert "allow_pickle" not in message
    assert "--seed" in refused("fit", "iris", "--seed", 2**32, *out, code=2)
    np.savez(tmp_path / "complex.npz", X=np.zeros((9, 2)), y=np.zeros(9, dtype=complex))
    assert "finite numbers or text" in refused("fit", tmp_path / "complex.npz", *out)


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_what_is_read_is_not_replaced(fitted, tmp_path, link):
    """A journal by its report, a model or a table by predictions; also under another name."""
    folder, _ = fitted
    runs, model, table = (folder / name for name in ("tuneloss-fit/runs.jsonl", "tuneloss-fit/model.npz", "iris.csv"))
    predict = ["predict", model, table]
    for path, call in ((runs, ["report", runs]), (model, predict), (table, predict)):
        out, before = path if link is None else tmp_path / path.name, path.read_bytes()
        if link is not None:
            link(path, out)
        assert f"must not replace a file that is read; found {out}, the same file" in refused(*call, "--out", out)
        assert path.read_bytes() == before


def test_the_report_is_about_the_model_that_was_saved(fitted):
    folder, done = fitted
    page = (folder / "tuneloss-fit" / "report.html").read_text(encoding="utf-8")
    model = load_model(folder / "tuneloss-fit" / "model.npz")
    assert "The chosen run is marked." in page
    assert f"L2 {weight_text(model.about['weights']['l2'])}" in " ".join(done.stdout.split())
    growth = float(re.search(r"L1 and L2 ([\d.]+) times as large", page)[1])
    assert growth == pytest.approx((5 / 4) ** 0.5, rel=0.01)  # the last fit has all five folds
    saved, chosen = re.search(r"<td>L2</td><td>([\d.]+)</td><td>([\d.]+)</td>", page).groups()
    assert saved == weight_text(model.about["weights"]["l2"])  # as the terminal says
    assert growth * float(chosen) == pytest.approx(model.about["weights"]["l2"], rel=0.01)  # three digits are shown


def test_a_rare_class_and_many_test_rows_end_in_a_table(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=list("ab")).assign(
        kind=np.repeat(["r", "s"], [3, 97])
    )
    frame.to_csv(tmp_path / "rare.csv", index=False)
    arguments = ["fit", tmp_path / "rare.csv", "--target", "kind", "--out", tmp_path / "out", "--test-fraction", 0.9]
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output


def test_an_ordinary_table_is_fitted_and_predicted(tmp_path):
    """With categories, gaps, an identifier and semicolons. What decides the class is a category and a gap."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": range(300), "colour": rng.choice(["red", "blue", "grün"], size=300)})
    frame["size"] = np.where(rng.random(300) < 0.3, np.nan, rng.normal(size=300).round(2))
    frame["kind"] = np.where((frame["colour"] == "grün") | frame["size"].isna(), "yes", "no")
    frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    done = tuneloss("fit", "t.csv", "--target", "kind", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Left out: 'id' (an identifier)." in done.stderr
    assert "Categories, one input for each: 'colour' (3)." in done.stderr
    assert "Missing numbers, replaced by the median of the training rows: 'size' (" in done.stderr
    frame.loc[0, "colour"] = "violet"
    frame.drop(columns="kind").to_csv(tmp_path / "new.csv", index=False)
    done = tuneloss("predict", "tuneloss-fit/model.npz", "new.csv", "--keep", "id", cwd=tmp_path)
    predicted = pd.read_csv(io.StringIO(done.stdout))
    assert list(predicted) == ["id", "predicted", "p(no)", "p(yes)"]
    assert (predicted["id"] == frame["id"]).all()
    done = tuneloss("predict", "tuneloss-fit/model.npz", "new.csv", "--keep", "all", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "id,colour,size,predicted,p(no),p(yes)"
    assert (predicted["predicted"] == frame["kind"])[1:].mean() > 0.97


def test_terms_and_folds_are_those_of_the_options(tmp_path):
    """The result is that of the estimator with these parameters on the same rows."""
    arguments = ["fit", "iris", "--terms", "l2, dropout", "--cv", "3", "--seed", "2", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = hold_out(read_dataset("iris"), seed=2)
    expected = TunedLogisticRegression(terms=("l2", "dropout"), cv=3, random_state=2).fit(rows.x, rows.y)
    assert json.loads(done.stdout)["weights"] == pytest.approx(expected.loss_weights_)
    assert expected.loss_weights_["l1"] == expected.loss_weights_["uniform"] == 0
    other = TunedLogisticRegression(terms=("l2", "dropout"), random_state=2).fit(rows.x, rows.y)
    assert other.loss_weights_ != expected.loss_weights_


def test_classes_are_balanced_by_an_option(tmp_path):
    """The terminal and the report say so, and the majority class is as good as none."""
    done = CliRunner().invoke(app, ["fit", "breast_cancer", "--class-weight", "balanced", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "test rows, where every class counts the same:" in done.stdout
    assert re.search(r"majority class +0\.6931 +50\.0% +0\.5000", done.stdout)
    assert "Every class counts the same" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_terms_and_folds_are_checked_before_a_model_is_fitted(tmp_path):
    message = refused("fit", "iris", "--terms", "l1,l3", "--out", tmp_path)
    assert "--terms must be some of ['l1', 'l2', 'uniform', 'dropout'], each once, \"l2\" among them" in message
    assert "found ['l1', 'l3']" in message
    assert "no regularizer" not in message  # the first model of the bar of progress
    assert "--cv" in refused("fit", "iris", "--cv", "1", "--out", tmp_path, code=2)
    assert not list(tmp_path.iterdir())


def test_weights_are_learned_inside_one_run_by_an_option(tmp_path):
    """Terminal, JSON and model file have the estimator's penalty; the report names epochs and draws that penalty."""
    arguments = ["fit", "breast_cancer", "--strategy", "online", "--cv", "2", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = hold_out(read_dataset("breast_cancer"))
    expected = TunedLogisticRegression(strategy="online", cv=2, random_state=0).fit(rows.x, rows.y)
    points, values = expected.regularizer_
    assert np.ptp(values) > 0
    last = weight_text(values[-2] - values.min())
    assert f"Learned penalty of a coefficient: {weight_text(values[1] - values.min())} at " in done.stdout
    assert f"{last} at {weight_text(points[-2])}; the report draws it." in done.stdout
    assert "L1" not in done.stdout
    model = load_model(tmp_path / "model.npz")
    np.testing.assert_allclose(model.coef, expected.coef_)
    np.testing.assert_allclose(model.about["regularizer"], expected.regularizer_)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Learned regularizer: penalty, at the chosen epoch" in page
    assert f"chosen epoch ({expected.best_run_})" in page
    assert not re.search(r"\bruns?\b \d", page)
    again = tuneloss("report", "runs.jsonl", "--out", "again.html", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)  # replaces the files
    np.testing.assert_allclose(found["regularizer"], expected.regularizer_)


def test_without_l1_an_online_run_learns_no_penalty_of_coefficients(tmp_path):
    """Then neither the terminal nor the report has one to show."""
    arguments = ["fit", "iris", "--strategy", "online", "--terms", "l2,dropout", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "Learned penalty" not in done.stdout
    assert "Learned regularizer" not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("strategy", ["runs", "online"])
def test_a_test_error_is_in_per_cent_in_the_terminal_and_in_the_report(tmp_path, strategy):
    done = CliRunner().invoke(app, ["fit", "wine", "--strategy", strategy, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    loss, error = re.search(r"L2 path \(LogisticRegressionCV\) +([\d.]+) +([\d.]+%)", done.stdout).groups()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    row = re.search(r"<td>L2 path \(LogisticRegressionCV\)</td><td>([\d.]+)</td><td>([\d.]+%)</td>", page)
    assert float(row[1]) == pytest.approx(float(loss), abs=1e-4)
    assert row[2] == error
    assert "<b>test error, %</b>" in page
