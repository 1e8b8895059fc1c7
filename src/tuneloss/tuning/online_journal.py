"""The journal of an online run: all of its steps in one file, which the run may write again and again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuneloss.checks import as_number
from tuneloss.core.observation import Observation
from tuneloss.errors import JournalError
from tuneloss.files import write_whole
from tuneloss.tuning.history import StepRecord
from tuneloss.tuning.journal import journal_bytes, read_lines
from tuneloss.tuning.run import SCORE, Header, Run

MADE_BY = "OnlineTuner"  # names the writer in the header of a journal


def scores_to_compare(compare: Mapping[str, float] | None) -> dict[str, dict[str, float]]:
    """Return the scores of other runs as `Header.reference` holds them.

    Examples
    --------
    >>> scores_to_compare({"the same run without tuning": 0.46})
    {'the same run without tuning': {'score': 0.46}}
    """
    return {str(name): {SCORE: as_number(score, f"compare[{name!r}]")} for name, score in (compare or {}).items()}


def write_online_journal(
    path: Path, header: Header, history: Sequence[StepRecord], observations: Sequence[Observation]
) -> Path:
    """Write the journal of an online run, in one step that a kill cannot cut.

    Parameters
    ----------
    path : Path
        The file. If it exists, the same run must have written it.
    header : Header
        The header, with the `run_id` of the run.
    history : sequence of StepRecord
        All steps.
    observations : sequence of Observation
        The observations of the last steps, with their grams.

    Raises
    ------
    JournalError
        If something else wrote the file, or if it cannot be written.
    """
    if os.path.lexists(path) and not _is_of_run(path, header.run_id):
        raise JournalError(
            f"The journal of an online run must be a new file, or one that this run wrote; found {path}. Name another "
            "one."
        )
    runs = online_runs(history, observations)
    try:
        write_whole(path, journal_bytes(header.to_dict(), [run.to_dict() for run in runs]))
    except OSError as reason:
        raise JournalError(f"The journal {path} must be a file that can be written: {reason}.") from reason
    return path


def online_runs(history: Sequence[StepRecord], observations: Sequence[Observation]) -> list[Run]:
    """Return the steps of an online run as the records of a journal; the parameters are as above."""
    first = len(history) - len(observations)
    runs = []
    for i, record in enumerate(history):
        observation = observations[i - first] if i >= first else record.observation()
        runs.append(Run(i, record.weights, observation, step=record.learned_step()))
    return runs


def is_online(header: Header) -> bool:
    """Return whether the records of a journal are the checkpoints of one run. Earlier versions wrote no policy."""
    return header.policy is not None or header.made_by == MADE_BY


def _is_of_run(path: Path, run_id: str) -> bool:
    """Return whether a run wrote the journal at a path."""
    try:
        header, *_ = read_lines(path)
    except JournalError:
        return False
    return header.get("made_by") == MADE_BY and header.get("run_id") == run_id
