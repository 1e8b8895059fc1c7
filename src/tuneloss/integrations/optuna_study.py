"""What the sampler knows of one Optuna study: a tuner that was told its trials, and how they came out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from tuneloss.tuning.ask_tell import LossTuner
from tuneloss.tuning.proposals import Proposal
from tuneloss.types import Array


class Outcome(NamedTuple):
    """The outcome of a trial.

    Parameters
    ----------
    began, ended : datetime
        When the trial began and ended.
    score : float
        Its metric, or else its error.
    is_learned : bool
        Whether the tuner proposed its weights.
    """

    began: datetime
    ended: datetime
    score: float
    is_learned: bool


@dataclass
class StudyState:
    """What the sampler knows of one study.

    Parameters
    ----------
    tuner : LossTuner
        A tuner that was told the outcomes of all ended trials.
    outcomes : list of Outcome
        The trials with an observation.
    taken : list of (k,) arrays
        Weights that must not be proposed again.
    n_trials : int
        The number of ended trials that were processed.
    last : (datetime, int) tuple
        When the last of them ended, and its number.
    """

    tuner: LossTuner
    outcomes: list[Outcome] = field(default_factory=list)
    taken: list[Array] = field(default_factory=list)
    n_trials: int = 0
    last: tuple[datetime, int] = (datetime.min, -1)

    def ask(self, in_use: Sequence[Array], n_unknown: int) -> Proposal:
        """Return the next weights, apart from weights in use and from those of `n_unknown` trials about to ask."""
        reserved: list[Array] = []
        try:
            for point in in_use:
                self.tuner.reserve(point)
                reserved.append(point)
            for _ in range(n_unknown + 1):
                proposal = self.tuner.propose()
                reserved.append(proposal.point)
            return proposal
        finally:
            for point in reserved:
                self.tuner.release(point)


def idle_trials(outcomes: Sequence[Outcome]) -> int:
    """Count the learned trials without a gain that began after the best trial had ended."""
    best, best_ended, n_idle = math.inf, datetime.max, 0
    for outcome in sorted(outcomes, key=lambda outcome: outcome.ended):
        if outcome.score < best:
            best, best_ended, n_idle = outcome.score, outcome.ended, 0
        elif outcome.is_learned and outcome.began >= best_ended:
            n_idle += 1
    return n_idle
