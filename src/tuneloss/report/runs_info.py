"""The numbers of one tuner's runs: what was learned, and how well it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.learn import LearnedLoss, learn_loss
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, JournalError, SolverError
from tuneloss.hinges import PiecewiseLinear, hinge_names
from tuneloss.tuning.journal import read_lines
from tuneloss.tuning.run import Header, Run, best_run
from tuneloss.types import Array

MARGIN = 0.05  # of the span of the knots, drawn beyond them


@dataclass(frozen=True, eq=False)
class RunsInfo:
    """Runs of one box, and what LearnLoss learns from them.

    Parameters
    ----------
    header : Header
        The header of the journal.
    runs : tuple of Run
        All runs, in the order in which they were told.
    observed : tuple of Run
        The runs that LearnLoss uses: those with gradients, or all runs if none has gradients.
    learned : LearnedLoss, optional
        None if there is no observation, no solution, or if the header holds the answer to a search.
    """

    header: Header
    runs: tuple[Run, ...]
    observed: tuple[Run, ...]
    learned: LearnedLoss | None

    @property
    def box(self) -> Box:
        """The box that all runs share."""
        return self.header.box

    @property
    def best(self) -> Run | None:
        """The run that was chosen, if the journal names one; else the best told."""
        return self.runs[self.header.chosen] if self.header.chosen is not None else best_run(self.runs)

    @property
    def hinges(self) -> dict[str, str]:
        """The term of each hinge, by the name of the hinge's weight: hinges mean something only together."""
        return {name: term for term in self.header.knots for name in self.hinges_of(term)}

    def hinges_of(self, term: str) -> list[str]:
        """Name the weights of a learned regularizer, in their order."""
        return [f"{term}/{hinge}" for hinge in hinge_names(len(self.header.knots[term]))]

    @property
    def said(self) -> Mapping[str, float]:
        """The weights that LearnLoss says; none if it has no answer."""
        if self.header.search is not None:
            return self.header.search.weights or {}
        return self.learned.as_dict() if self.learned is not None else {}

    @property
    def measure(self) -> str:
        """What decides which of two models is better."""
        told = [run.observation for run in self.runs if run.observation is not None]
        return "metric" if told and told[0].metric is not None else "validation error"

    @property
    def observations(self) -> list[Observation]:
        """Of the runs in `observed`."""
        return [run.observation for run in self.observed if run.observation is not None]


def read_runs(path: Path) -> RunsInfo:
    """Read the runs of a journal; nothing is written."""
    first, records = read_lines(path)
    if "box" not in first:
        raise JournalError(f"The journal {path} must begin with its box; found none. It is another file.")
    try:
        return _as_info(path, first, records)
    except (OverflowError, RecursionError) as reason:  # a number or a nesting beyond what Python converts
        raise JournalError(f"The journal {path} must hold plain numbers and text; found that {reason}.") from None


def _as_info(path: Path, first: dict[str, Any], records: Sequence[dict[str, Any]]) -> RunsInfo:
    header = Header.from_dict(first, len(records), f"The first line of {path}")
    runs = [Run.from_dict(record) for record in records]
    for number, run in enumerate(runs, start=2):
        _check_terms(f"Line {number} of {path}", run, header.box)
    return runs_info(replace(header, title=header.title or path.stem), runs)


def _check_terms(where: str, run: Run, box: Box) -> None:
    """Raise unless a run is of the box's terms."""
    missing = [name for name in box.names if run.weights is not None and name not in run.weights]
    if missing:
        raise JournalError(f"{where} must have a weight for each term of the box; it has none for {missing[0]!r}.")
    if run.observation is not None and run.observation.features.size != len(box):
        n = run.observation.features.size
        raise JournalError(f"{where} must have a value for each of the box's {len(box)} terms; it has {n}.")


def runs_info(header: Header, runs: Sequence[Run]) -> RunsInfo:
    """What there is to say of these runs."""
    if not runs:
        raise InvalidInput("A report needs at least one run; found none. Tell the tuner the first one.")
    known = [run for run in runs if run.observation is not None]
    with_gram = [run for run in known if run.observation is not None and run.observation.gram is not None]
    observed = tuple(with_gram or known)
    found = [run.observation for run in observed if run.observation is not None]
    learned = None
    if found and header.search is None:
        with suppress(SolverError), np.errstate(all="ignore"):  # it verifies its answer, however extreme the numbers
            learned = learn_loss(found, header.box, epsilon="balanced" if with_gram else 0.0)
    return RunsInfo(header, tuple(runs), observed, learned)


def run_name(run: Run) -> str:
    """Runs count from 1; models of the initial set have no number."""
    return "initial" if run.run is None else str(run.run + 1)


def contributions(info: RunsInfo) -> dict[str, float]:
    """Each term's weight times its value, at the best model; of a learned regularizer the sum over its hinges."""
    best, found = info.best, dict[str, float]()
    if best is None or best.weights is None or best.observation is None:
        return found
    for name, value in zip(info.box.names, best.observation.features, strict=True):
        term = info.hinges.get(name, name)
        found[term] = found.get(term, 0.0) + best.weights[name] * float(value)
    return found


def regularizer(info: RunsInfo, term: str) -> tuple[Array, Array] | None:
    """Return points of a learned regularizer at the best run, to draw lines through; its least value is 0.

    Returns
    -------
    tuple of two (p + 2,) arrays, or None
        The knots and a point a little beyond each end, and the values there. None if the best run lacks a weight, or if
        the knots of the journal are not finite or do not increase.
    """
    best, names = info.best, info.hinges_of(term)
    if best is None or best.weights is None or not all(name in best.weights for name in names):
        return None
    with suppress(InvalidInput):
        r = PiecewiseLinear.from_weights(info.header.knots[term], [best.weights[name] for name in names])
        x, values = r.points(margin=MARGIN)
        return x, values - values.min()
    return None
