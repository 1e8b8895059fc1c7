"""The files of `tuneloss fit`: a model, the journal of its search, and a report.

All three are written to a draft folder and moved into place at the end. So a fit that fails leaves old files unchanged.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuneloss.data import Dataset
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.files import draft_folder, write_whole
from tuneloss.sklearn.comparison import TUNED, ModelComparison, TrainTestRows
from tuneloss.sklearn.fit_journal import MADE_BY, fit_header, fit_runs
from tuneloss.sklearn.model_file import load_model, write_model
from tuneloss.sklearn.saved_model import SavedModel
from tuneloss.sklearn.saving import learned_loss
from tuneloss.tuning.journal import journal_bytes, read_lines, replace_journal

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
    header, runs, tuned = fit_header(title, comparison), fit_runs(comparison), comparison.tuned
    about = {"title": title, **learned_loss(tuned), "results": comparison.scores[TUNED]}
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
