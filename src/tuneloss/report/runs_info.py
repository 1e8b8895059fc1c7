"""The runs of one tuner, read from its journal, and what LearnLoss learns from them."""

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
from tuneloss.report.words import score_column, share_text
from tuneloss.tuning.journal import read_lines
from tuneloss.tuning.online_journal import is_online
from tuneloss.tuning.run import Header, Run, best_run
from tuneloss.types import Array, Epsilon

FIT_ERROR = "test error"  # the name that `tuneloss fit` gives to the share of test rows of which the class is wrong
MARGIN = 0.05  # how far a curve is drawn beyond its knots, relative to their span


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
        The answer of LearnLoss. None if there is no observation or no solution, if the header holds the answer of a
        search, or if the runs are checkpoints of an online run, whose steps hold their own answers.
    journal : str
        The name of the journal, for code that continues it.
    """

    header: Header
    runs: tuple[Run, ...]
    observed: tuple[Run, ...]
    learned: LearnedLoss | None
    journal: str = "runs.jsonl"

    @property
    def box(self) -> Box:
        """The box that all runs share."""
        return self.header.box

    @property
    def best(self) -> Run | None:
        """The run that the journal names as chosen; if it names none, the best run."""
        return self.runs[self.header.chosen] if self.header.chosen is not None else best_run(self.runs)

    @property
    def hinges(self) -> dict[str, str]:
        """The term that each hinge belongs to, by the name of the hinge's weight."""
        return {name: term for term in self.header.knots for name in self.hinges_of(term)}

    def hinges_of(self, term: str) -> list[str]:
        """Return the names of the weights of a learned regularizer, in their order."""
        return [f"{term}/{hinge}" for hinge in hinge_names(len(self.header.knots[term]))]

    @property
    def learned_weights(self) -> Mapping[str, float]:
        """The answer of LearnLoss, by name; empty if it has none."""
        if self.header.search is not None:
            return self.header.search.weights or {}
        return self.learned.as_dict() if self.learned is not None else {}

    @property
    def from_search(self) -> bool:
        """Whether `tuneloss fit` made the runs. It sets its own box, and the header holds the answer of LearnLoss."""
        return self.header.search is not None

    def is_share(self, measure: str) -> bool:
        """Whether a measure is a share of rows. Other users may mean something else by the same name."""
        return self.from_search and measure == FIT_ERROR

    def measure_texts(self, measure: str, values: Sequence[float]) -> list[str]:
        """Return values of a measure as text: shares in per cent, others with the same number of decimals."""
        return [share_text(value) for value in values] if self.is_share(measure) else score_column(values)

    @property
    def is_online(self) -> bool:
        """Whether the runs are checkpoints of one run."""
        return is_online(self.header)

    @property
    def unit(self) -> str:
        """What one run is called: "run", "epoch" or "step"."""
        return self.header.unit

    @property
    def used_weights(self) -> Mapping[str, float]:
        """The weights that are used in the end: those that the header names, or those of the best run."""
        return self.header.final or (self.best.weights if self.best is not None and self.best.weights else {})

    @property
    def best_or_chosen(self) -> str:
        """The word for the run `best`: "best" or "chosen"."""
        return "best" if self.header.chosen is None else "chosen"

    @property
    def measure(self) -> str:
        """The name of the number that decides which of two models is better."""
        observations = [run.observation for run in self.runs if run.observation is not None]
        return "metric" if observations and observations[0].metric is not None else "validation error"

    @property
    def observations(self) -> list[Observation]:
        """The observations of the runs in `observed`."""
        return [run.observation for run in self.observed if run.observation is not None]

    @property
    def has_gradients(self) -> bool:
        """Whether LearnLoss had gradients to learn from."""
        return any(observation.gram is not None for observation in self.observations)

    @property
    def first_weights(self) -> Mapping[str, float] | None:
        """The weights of the first run that had any."""
        return next((run.weights for run in self.runs if run.weights is not None), None)


def read_runs(path: Path) -> RunsInfo:
    """Read the runs of a journal, without changing the file.

    Parameters
    ----------
    path : Path
        The journal.

    Raises
    ------
    JournalError, InvalidInput
        If the file is not a journal, or if its runs do not fit its box.
    """
    first, records, _ = read_lines(path)
    if "box" not in first:
        raise JournalError(f"The journal {path} must begin with its box; found none. This file is not a journal.")
    try:
        return _as_info(path, first, records)
    except (OverflowError, RecursionError) as reason:  # a number or a nesting beyond what Python converts
        raise JournalError(f"The journal {path} must hold plain numbers and text; found that {reason}.") from None


def _as_info(path: Path, first: dict[str, Any], records: Sequence[dict[str, Any]]) -> RunsInfo:
    """Check the lines of a journal, and learn from its runs."""
    header = Header.from_dict(first, len(records), f"The first line of {path}")
    runs = [Run.from_dict(record) for record in records]
    for number, run in enumerate(runs, start=2):
        _check_terms(f"Line {number} of {path}", run, header.box)
    return replace(runs_info(replace(header, title=header.title or path.stem), runs), journal=path.name)


def _check_terms(where: str, run: Run, box: Box) -> None:
    """Raise unless a run has a weight and a value for each term of the box."""
    missing = [name for name in box.names if run.weights is not None and name not in run.weights]
    if missing:
        raise JournalError(f"{where} must have a weight for each term of the box; it has none for {missing[0]!r}.")
    if run.observation is not None and run.observation.features.size != len(box):
        n = run.observation.features.size
        raise JournalError(f"{where} must have a value for each of the box's {len(box)} terms; it has {n}.")


def runs_info(header: Header, runs: Sequence[Run]) -> RunsInfo:
    """Apply LearnLoss to the runs of a tuner, and return the runs with its answer.

    What a search or an online run learned is not learned again: their journals hold it.

    Parameters
    ----------
    header : Header
        The header of the journal.
    runs : sequence of Run
        At least one run.

    Raises
    ------
    InvalidInput
        If there is no run.
    """
    if not runs:
        raise InvalidInput("A report needs at least one run; found none. Tell the tuner the first run.")
    with_observation = [(run, run.observation) for run in runs if run.observation is not None]
    with_gram = [(run, observation) for run, observation in with_observation if observation.gram is not None]
    pairs = with_gram or with_observation
    learned = None
    if pairs and header.search is None and not is_online(header):
        epsilon: Epsilon = "balanced" if with_gram else 0.0
        with suppress(SolverError), np.errstate(all="ignore"):  # extreme numbers do no harm: an answer is verified
            learned = learn_loss([observation for _, observation in pairs], header.box, epsilon=epsilon)
    return RunsInfo(header, tuple(runs), tuple(run for run, _ in pairs), learned)


def run_name(run: Run) -> str:
    """Return the number of a run, from 1, or that of an epoch; models of the initial set have no number."""
    if run.step is not None:
        return str(run.step.number)
    return "initial" if run.run is None else str(run.run + 1)


def contributions(info: RunsInfo) -> dict[str, float]:
    """Return what each term contributes to the loss of the best model: its weight times its value.

    The contribution of a learned regularizer is the sum over its hinges.
    """
    best, parts = info.best, dict[str, float]()
    if best is None or best.weights is None or best.observation is None:
        return parts
    for name, value in zip(info.box.names, best.observation.features, strict=True):
        term = info.hinges.get(name, name)
        parts[term] = parts.get(term, 0.0) + best.weights[name] * float(value)
    return parts


def regularizer(info: RunsInfo, term: str) -> tuple[Array, Array] | None:
    """Return points of the regularizer that the best run learned, to draw lines through. Its least value is 0.

    Parameters
    ----------
    info : RunsInfo
        The runs.
    term : str
        The name of the regularizer.

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
