"""An online run as a journal, of which `tuneloss report` makes a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tuneloss.core.observation import Observation
from tuneloss.errors import JournalError
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.tuning.history import Record
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.run import Header, Run


def write_journal(
    path: str | os.PathLike[str], loss: LinearLoss, history: Sequence[Record], observations: Sequence[Observation]
) -> Path:
    """Each step as a run, with its gram where that is still held; and where the knots of learned regularizers are.

    path: a file that is not there yet. observations: of the last steps; those before have their record's numbers only.
    """
    if Path(path).exists():
        raise JournalError(f"The journal of an online run must be a new file; found {path}. Name another one.")
    knots = {name: positions.tolist() for name, (positions, _) in loss.regularizers().items()}
    header = Header(loss.box, "One run, tuned as it trained", made_by="OnlineTuner", knots=knots)
    journal = Journal(path, header.to_dict())
    first = len(history) - len(observations)
    for i, record in enumerate(history):
        seen = observations[i - first] if i >= first else record.observation()
        journal.append(Run(i, record.weights, seen).to_dict())
    return journal.path
