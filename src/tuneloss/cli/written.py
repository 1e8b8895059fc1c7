"""The files of `tuneloss fit`: which of those in a folder it may replace, and how they are written."""

from __future__ import annotations

import os
from pathlib import Path

from tuneloss.cli.compare import MEASURES, TUNED, Compared, Rows
from tuneloss.cli.data import Data
from tuneloss.cli.shown import stoppable
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.files import draft_folder
from tuneloss.tuning.journal import Journal, read_lines, replace_journal
from tuneloss.tuning.run import Header, LastLearned, Run

MADE_BY = "fit"  # in the header of its journal
MODEL, RUNS, REPORT = "model.npz", "runs.jsonl", "report.html"


def check_replaceable(out: Path) -> None:
    """Raise if the folder has a file of a name that `tuneloss fit` writes, but that it did not write."""
    for name, ours in {RUNS: _is_our_journal, MODEL: _is_our_model, REPORT: _is_beside_runs}.items():
        path = out / name
        if os.path.lexists(path) and not ours(path):
            raise InvalidInput(
                f"`tuneloss fit` replaces only what it wrote; found {path}, which is something else. "
                "Choose another folder: --out"
            )


def _is_our_journal(path: Path) -> bool:
    """Whether the header says that `tuneloss fit` wrote it."""
    try:
        header, _ = read_lines(path)
    except JournalError:
        return False
    return header.get("made_by") == MADE_BY


def _is_our_model(path: Path) -> bool:
    from tuneloss.sklearn.model_file import load_model

    try:
        load_model(path)
    except InvalidInput:
        return False
    return True


def _is_beside_runs(path: Path) -> bool:
    """A page does not say who wrote it; but `tuneloss fit` writes it beside its journal."""
    return path.is_file() and path.with_name(RUNS).exists()


def write(out: Path, data: Data, rows: Rows, found: Compared) -> dict[str, Path]:
    """Write model, runs and report into the folder; the path of each.

    They are made elsewhere first, and moved one after another at the end: what ends before that leaves the old ones.
    """
    from tuneloss.report.runs_info import read_runs
    from tuneloss.report.runs_page import write_runs_report
    from tuneloss.sklearn.model_file import SavedModel

    tuned, title = found.tuned, f"{data.title}: {rows}"
    about = {"title": title, "weights": tuned.loss_weights_, "results": found.results[TUNED]}
    saved = SavedModel(data.names, rows.mean, rows.scale, tuned.coef_, tuned.intercept_, tuned.classes_, about)
    try:
        with draft_folder(out, "fit") as draft:
            saved.save(draft / MODEL)
            _write_journal(draft / RUNS, title, found)
            write_runs_report(read_runs(draft / RUNS), draft / REPORT)
            _move(draft, out)
    except OSError as reason:
        raise InvalidInput(f"--out must be a folder in which files can be written: {reason}.") from None
    return {"model": out / MODEL, "runs": out / RUNS, "report": out / REPORT}


def _move(draft: Path, out: Path) -> None:
    kept = f"some files in {out} may be new"
    try:
        with stoppable(kept):
            replace_journal(out / RUNS, draft / RUNS)
            for name in (MODEL, REPORT):
                os.replace(draft / name, out / name)
    except OSError as reason:
        raise InvalidInput(f"--out must be a folder in which files can be replaced: {reason}; {kept}.") from None


def _write_journal(path: Path, title: str, found: Compared) -> None:
    """The runs of the search as a journal."""
    from tuneloss.sklearn.search import is_l2_only

    reference = {name: {m: values[m] for m in MEASURES} for name, values in found.results.items()}
    chosen = found.tuned.best_run_
    weights = found.tuned.history_[chosen]["weights"]
    growth = found.tuned.loss_weights_["l2"] / weights["l2"]
    note = "L2 alone is used: no run with learned weights was clearly better. " if is_l2_only(weights) else ""
    note += f"The saved model was fitted to all training examples, with l1 and l2 {growth:.4g} times as large."
    learned = found.tuned.learned_
    search = LastLearned() if learned is None else LastLearned(learned.as_dict(), learned.scale, learned.note)
    header = Header(found.tuned.box_, title, MADE_BY, reference, chosen=chosen, note=note, search=search)
    journal = Journal(path, header.to_dict())
    for i, (run, known) in enumerate(zip(found.tuned.history_, found.by_run, strict=True)):
        journal.append(Run(i, run["weights"], run["observation"], info=known).to_dict())
