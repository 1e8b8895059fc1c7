"""`tuneloss fit` and `tuneloss predict`: a tuned classifier from a table, and what it says to another."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from tuneloss.cli.shown import console, make_folder, show, stoppable
from tuneloss.cli.tables import EMBEDDED, Data, check_labels, read
from tuneloss.core.journal import Journal, remove_journal
from tuneloss.core.runs import Run
from tuneloss.errors import InvalidInput

if TYPE_CHECKING:
    from tuneloss.sklearn import TunedLogisticRegression
    from tuneloss.sklearn.saved import SavedModel

MEASURES = ("test log loss", "test error", "seconds")
PLAIN, L2_PATH, TUNED = "no regularizer", "L2 path (LogisticRegressionCV)", "tuned"
DataArgument = Annotated[
    str, typer.Argument(help=f"CSV, Parquet or npz file, or an embedded set: {', '.join(EMBEDDED)}.")
]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; again for more.")]
MaxGb = Annotated[float, typer.Option(min=0.001, help="Largest file that is read.")]


def fit(
    data: DataArgument,
    target: Annotated[str, typer.Option(help="Column to predict; in an npz file, the array of labels.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for model.npz, runs.jsonl and report.html.")] = Path("tuneloss-fit"),
    drop: Drop = None,
    test_fraction: Annotated[float, typer.Option(min=0.05, max=0.9, help="Part of the rows that only tests.")] = 0.25,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    max_gb: MaxGb = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")] = False,
) -> None:
    """Train a classifier whose regularizers (L1, L2, uniform labels, dropout) get learned weights.

    A part of the rows is held out to test; inputs are standardised. The table compares the tuned model with one without
    a regularizer and with a path of ten L2 fits in 5-fold cross-validation. The model is saved as model.npz (NumPy's
    format, read without pickle; see `tuneloss predict`), the runs as runs.jsonl, and the report as report.html.

    An npz file has inputs in `features` or `X`, and labels in `labels` or `y`.
    """
    with stoppable():
        given = read(data, target, drop or [], max_gb)
        if given.y is None:
            raise InvalidInput("`tuneloss fit` needs labels; found none. Name them: --target")
        check_labels(given.y, given.title)
        make_folder(out)
        found = _compare(given, test_fraction, seed, out)
    if as_json:
        sys.stdout.write(json.dumps(found, allow_nan=False) + "\n")
        return
    rows = [[name, *_cells(values)] for name, values in found["models"].items()]
    show(("model", *MEASURES), rows)
    weights = ", ".join(f"{name} {value:.3g}" for name, value in found["weights"].items() if name != "logloss")
    console.print(f"Learned weights: {weights}.", highlight=False, soft_wrap=True)
    console.print(f"Model: {found['model']}", highlight=False, soft_wrap=True)
    console.print(f"Report: {found['report']}", highlight=False, soft_wrap=True)


def predict(
    model: Annotated[Path, typer.Argument(help="model.npz of `tuneloss fit`.")],
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; standard output if not given.")] = None,
    max_gb: MaxGb = 1.0,
) -> None:
    """Print the most probable class of each row, and the probabilities of all classes, as CSV.

    The columns that the model was trained with must be there, in any order; others are not looked at.
    """
    with stoppable():
        from tuneloss.sklearn.saved import load_model

        known = load_model(model)
        given = _inputs(known, data, max_gb)
        lines = _csv_lines(known, known.probabilities(given))
        if out is None:
            sys.stdout.writelines(lines)
            return
        try:
            out.write_text("".join(lines), encoding="utf-8")
        except OSError as reason:
            raise InvalidInput(f"--out must be a file that can be written: {reason}.") from None
        console.print(f"{len(given)} rows: {out}", highlight=False, soft_wrap=True)


def _inputs(known: SavedModel, source: str, max_gb: float) -> Any:
    """The rows of the data, in the order of the model's columns."""
    given = read(source, None, [], max_gb, only=known.names)
    missing = [name for name in known.names if name not in given.names]
    if missing:
        raise InvalidInput(
            f"{given.title} must have the columns that the model was trained with; it has no {missing[0]!r}"
            f"{f' and {len(missing) - 1} others' if len(missing) > 1 else ''}."
        )
    return given.x[:, [given.names.index(name) for name in known.names]]


def _csv_lines(known: SavedModel, probabilities: Any) -> Iterator[str]:
    import csv
    import io

    def line(cells: Sequence[object]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerow(cells)
        return buffer.getvalue()

    yield line(["predicted", *(f"p({label})" for label in known.classes)])
    for row in probabilities:
        yield line([known.classes[int(row.argmax())], *(f"{p:.6g}" for p in row)])


def _compare(data: Data, test_fraction: float, seed: int, out: Path) -> dict[str, Any]:
    """Fit three models on the same rows, write model, journal and report, and say how well they do."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    from tuneloss.core.progress import progress_bar
    from tuneloss.report.runs_info import read_runs
    from tuneloss.report.runs_page import write_runs_report
    from tuneloss.sklearn.saved import SavedModel

    assert data.y is not None
    classes = np.unique(data.y)
    n_test = min(max(round(test_fraction * len(data.y)), len(classes)), len(data.y) - 2 * len(classes))
    x, x_test, y, y_test = train_test_split(data.x, data.y, test_size=n_test, stratify=data.y, random_state=seed)
    scaler = StandardScaler().fit(x)
    x, x_test = scaler.transform(x), scaler.transform(x_test)
    if not (np.isfinite(x).all() and np.isfinite(x_test).all()):
        raise InvalidInput(f"Inputs must have squares that are numbers; {data.title} has values that are too large.")
    tuned, tested = _tuned(seed, x_test, y_test)
    n_folds = int(min(5, np.unique(y, return_counts=True)[1].min()))
    models = {
        PLAIN: LogisticRegression(C=np.inf, max_iter=1000),
        L2_PATH: LogisticRegressionCV(
            cv=n_folds, l1_ratios=(0,), scoring="neg_log_loss", max_iter=1000, use_legacy_attributes=False
        ),
        TUNED: tuned,
    }
    results = {}
    with progress_bar("fitting", 2 + tuned.max_runs) as advance:
        tested.on_run = lambda n, loss: advance(2 + n, f"{TUNED}: run {n}, validation log loss {loss:.4f}")
        for i, (name, model) in enumerate(models.items()):
            advance(i, name)
            start = time.perf_counter()
            with nullcontext() if name == TUNED else _quiet():
                model.fit(x, y)
            results[name] = _quality(model, x_test, y_test) | {"seconds": time.perf_counter() - start}
        advance(2 + tuned.max_runs, "done")
    sizes = f"{len(y)} rows to train, {len(y_test)} to test, {x.shape[1]} inputs, {len(classes)} classes"
    title = f"{data.title}: {sizes}"
    about = {"title": title, "weights": tuned.loss_weights_, "results": results[TUNED]}
    saved = SavedModel(data.names, scaler.mean_, scaler.scale_, tuned.coef_, tuned.intercept_, tuned.classes_, about)
    try:
        model_path = saved.save(out / "model.npz")
        journal = _write_journal(out / "runs.jsonl", title, tuned, tested.quality, results)
        report = write_runs_report(read_runs(journal), out / "report.html")
    except OSError as reason:
        raise InvalidInput(f"--out must be a folder in which files can be written: {reason}.") from None
    return {
        "models": results,
        "weights": tuned.loss_weights_,
        "model": str(model_path),
        "runs": str(journal),
        "report": str(report),
    }


class _Tested:
    """Notes how well the models of each run do on the test rows."""

    def __init__(self, x_test: Any, y_test: Any) -> None:
        self._x, self._y = x_test, y_test
        self.quality: list[dict[str, float]] = []
        self.on_run: Any = lambda n, loss: None

    def __call__(self, run: Any, folds: Sequence[Any], classes: Any) -> None:
        from tuneloss.sklearn.softmax import predicted

        codes = np.searchsorted(classes, self._y)
        losses, wrong = [], []
        for fold, one in zip(folds, run.fits, strict=True):
            log_p = predicted(fold.data, one.params, self._x)
            losses.append(-log_p[np.arange(len(codes)), codes].mean())
            wrong.append((log_p.argmax(axis=1) != codes).mean())
        self.quality.append({"test log loss": float(np.mean(losses)), "test error": float(np.mean(wrong))})
        self.on_run(len(self.quality), run.error / float(run.sample_weight.sum()))


def _tuned(seed: int, x_test: Any, y_test: Any) -> tuple[TunedLogisticRegression, _Tested]:
    from tuneloss.sklearn import TunedLogisticRegression

    tested = _Tested(x_test, y_test)
    model = TunedLogisticRegression(random_state=seed)
    model._on_run = lambda run, folds: tested(run, folds, model.classes_)  # type: ignore[method-assign]
    return model, tested


def _quality(model: Any, x_test: Any, y_test: Any) -> dict[str, float]:
    from sklearn.metrics import log_loss

    p = model.predict_proba(x_test)
    wrong = float(np.mean(model.classes_[p.argmax(axis=1)] != y_test))
    return {"test log loss": float(log_loss(y_test, p, labels=model.classes_)), "test error": wrong}


def _write_journal(
    path: Path,
    title: str,
    model: TunedLogisticRegression,
    quality: Sequence[dict[str, float]],
    results: dict[str, dict[str, float]],
) -> Path:
    """The runs of the search as a journal; one that is there is replaced."""
    from tuneloss.sklearn.search import whole_box

    remove_journal(path)
    reference = {name: {m: v for m, v in values.items() if m != "seconds"} for name, values in results.items()}
    header = {"title": title, "reference": reference, "chosen": model.best_run_, "epsilon": "inf"}
    journal = Journal(path, {"box": whole_box().state_dict(), **header})
    for i, (run, known) in enumerate(zip(model.history_, quality, strict=True)):
        journal.append(Run(i, run["weights"], run["observation"], info=known).to_dict())
    return path


def _cells(values: dict[str, float]) -> list[str]:
    return [f"{values['test log loss']:.4f}", f"{100 * values['test error']:.1f}%", f"{values['seconds']:.1f}"]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of the models that are compared with: one without a regularizer need not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
