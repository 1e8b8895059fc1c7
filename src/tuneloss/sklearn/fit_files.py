"""The files of `tuneloss fit`: a model, the journal of its search, and a report.

All three are written to a draft folder and moved into place at the end. So a fit that fails leaves old files unchanged.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuneloss.data import Dataset
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.files import draft_folder, write_whole
from tuneloss.sklearn.comparison import MAJORITY, MEASURES, TUNED, ModelComparison, TrainTestRows
from tuneloss.sklearn.model_file import load_model, write_model
from tuneloss.sklearn.paths import is_plain
from tuneloss.sklearn.saved_model import SavedModel
from tuneloss.tuning.journal import journal_bytes, read_lines, replace_journal
from tuneloss.tuning.run import Header, LastLearned, Run

MADE_BY = "fit"  # names the writer in the header of the journal
MODEL_FILE, RUNS_FILE, REPORT_FILE = "model.npz", "runs.jsonl", "report.html"


def check_replaceable(out: Path) -> None:
    """Raise `InvalidInput` if a fit would replace a file that no earlier fit wrote.

    Parameters
    ----------
    out : Path
        The folder to write to. It need not exist.
    """
    for name, is_ours in {RUNS_FILE: _is_journal, MODEL_FILE: _is_model, REPORT_FILE: _is_report}.items():
        path = out / name
        if os.path.lexists(path) and not is_ours(path):
            raise InvalidInput(
                f"`tuneloss fit` replaces only files that it wrote; found {path}, which this version did not write. "
                "Choose another folder: `out`"
            )


def _is_journal(path: Path) -> bool:
    """Return whether the header names a fit as the writer."""
    try:
        header, *_ = read_lines(path)
    except JournalError:
        return False
    return header.get("made_by") == MADE_BY


def _is_model(path: Path) -> bool:
    """Return whether the file is a saved model."""
    try:
        load_model(path)
    except InvalidInput:
        return False
    return True


def _is_report(path: Path) -> bool:
    """Return whether a journal lies beside the page, since a page does not name its writer."""
    return path.is_file() and path.with_name(RUNS_FILE).exists()


def write_fit(out: Path, dataset: Dataset, rows: TrainTestRows, comparison: ModelComparison) -> dict[str, Path]:
    """Write the model, the journal and the report to a folder.

    Parameters
    ----------
    out : Path
        An existing folder. `check_replaceable` says whether its files may be replaced.
    dataset : Dataset
        The data, as `read_dataset` returns it.
    rows : TrainTestRows
        Its rows, as `hold_out` returns them.
    comparison : ModelComparison
        The fitted models, as `compare_models` returns them.

    Returns
    -------
    dict of str to Path
        The paths of "model", "runs" and "report".

    Raises
    ------
    InvalidInput
        If a file cannot be written.
    KeyboardInterrupt
        If the user stops it. The message says whether some of the files may already be new.
    """
    from tuneloss.report.runs_info import runs_info
    from tuneloss.report.runs_page import write_runs_report

    title = f"{dataset.title}: {rows}"
    header, tuned = _header(title, comparison), comparison.tuned
    pairs = zip(tuned.history_, comparison.run_scores, strict=True)
    runs = [Run(i, run["weights"], run["observation"], info=scores) for i, (run, scores) in enumerate(pairs)]
    about = {"title": title, "weights": tuned.loss_weights_, "results": comparison.scores[TUNED]}
    model = SavedModel(rows.preparation, tuned.coef_, tuned.intercept_, tuned.classes_, about)
    try:
        with draft_folder(out, "fit") as draft:
            write_model(model, draft / MODEL_FILE)
            write_whole(draft / RUNS_FILE, journal_bytes(header.to_dict(), [run.to_dict() for run in runs]))
            write_runs_report(runs_info(header, runs), draft / REPORT_FILE)
            _move(draft, out)
    except OSError as reason:
        raise InvalidInput(f"`out` must be a folder in which files can be written: {reason}.") from None
    return {"model": out / MODEL_FILE, "runs": out / RUNS_FILE, "report": out / REPORT_FILE}


def _move(draft: Path, out: Path) -> None:
    """Move the files of the draft into place."""
    state = f"some files in {out} may be new"
    try:
        replace_journal(out / RUNS_FILE, draft / RUNS_FILE)
        for name in (MODEL_FILE, REPORT_FILE):
            os.replace(draft / name, out / name)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(state) from None
    except OSError as reason:
        raise InvalidInput(f"`out` must be a folder in which files can be replaced: {reason}; {state}.") from None


def _header(title: str, comparison: ModelComparison) -> Header:
    """Return the header of the journal."""
    tuned = comparison.tuned
    weights = tuned.history_[tuned.best_run_]["weights"]
    penalty = "l2" if weights["l2"] > 0 else "l1"
    growth = tuned.loss_weights_[penalty] / weights[penalty]
    alone = f"{penalty.upper()} alone is used: no run with learned weights was clearly better. "
    note = alone if is_plain(weights) else ""
    note += f"The saved model was fitted to all training examples, with L1 and L2 {growth:.4g} times as large."
    note += " Every class counts the same, in training and in all scores." if comparison.is_balanced else ""
    learned = tuned.learned_
    search = LastLearned() if learned is None else LastLearned(learned.as_dict(), learned.scale, learned.note)
    models = {name: values for name, values in comparison.scores.items() if name != MAJORITY}  # it would dwarf the rest
    reference = {name: {m: values[m] for m in MEASURES} for name, values in models.items()}
    final = dict(tuned.loss_weights_)
    return Header(tuned.box_, title, MADE_BY, reference, chosen=tuned.best_run_, note=note, search=search, final=final)
