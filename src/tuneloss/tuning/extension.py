"""Continue a journal in another box, such as one with a higher bound."""

from __future__ import annotations

from tuneloss.checks import reading
from tuneloss.core.box import Box
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.tuning.box_difference import names_difference
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.run import Header, Run


def extend_journal(journal: Journal, box: Box) -> None:
    """Give a journal another box, which must contain all weights that were tried.

    The new box is appended to the file as one line, as safely as a run. If the journal has this box already, nothing is
    written.

    Parameters
    ----------
    journal : Journal
        The journal, opened with ``extend=True``.
    box : Box
        The new box: the same names in the same order, with other bounds.

    Raises
    ------
    JournalError
        If the box has other names, is a simplex where the old one is not, or lacks weights that were tried.
    """
    with reading(f"The first line of {journal.path}"):
        old = Box.from_state_dict(journal.header["box"])
    if box.names != old.names or box.is_simplex != old.is_simplex:
        raise JournalError(
            f"With `extend=True`, the box must have the weights of the journal {journal.path}, in the same order; "
            f"found {names_difference(box, old)}. Only bounds may change. Begin another journal for other weights."
        )
    for run in Run.from_dicts(journal.records):
        if run.weights is not None:
            _check_inside(journal, run, box)
    journal.change_header(Header(box).to_dict())


def _check_inside(journal: Journal, run: Run, box: Box) -> None:
    """Raise if the weights of a run are not in the box; name the first one that is outside of its range."""
    try:
        box.as_array(run.weights or {})
    except InvalidInput as reason:
        number = "" if run.run is None else f" {run.run + 1}"
        raise JournalError(
            f"With `extend=True`, the box must contain all weights that were tried; those of run{number} in "
            f"{journal.path} are outside. {reason} Widen the box until it contains them."
        ) from None
