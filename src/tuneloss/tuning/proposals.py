"""The next weights to train with, given all runs so far."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.cost import check_epsilon
from tuneloss.core.learn import LearnedLoss, Learner, check_objective
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.tuning.ledger import Ledger
from tuneloss.tuning.sampling import center, distance, nearby, same_point, sample_box
from tuneloss.types import Array, Epsilon, Objective

Fallback = Literal["nearby", "random", "repeat"]
FAILED_RADIUS = 0.05  # fraction of a range: proposals nearer than this to a failed run are avoided
MAX_TRIES = 100  # candidates that the fallback draws before it gives up
PERIOD = 3  # with both forms, the form that does not lead proposes once in this many runs


@dataclass(frozen=True, eq=False)
class Proposal:
    """Weights to train with.

    Parameters
    ----------
    point : (k,) array
        The weights.
    form : {"calibrated", "paper"}, optional
        The form of the cost that they were learned in; None if they were not learned.
    """

    point: Array
    form: Objective | None = None


class Proposer:
    """The strategy of `LossTuner`: its parameters are documented there."""

    def __init__(
        self,
        box: Box,
        *,
        seed: int,
        objective: Objective | Literal["both"],
        epsilon: Epsilon,
        start: Sequence[Array],
        fallback: Fallback,
    ) -> None:
        if fallback not in ("nearby", "random", "repeat"):
            raise InvalidInput(f'`fallback` must be "nearby", "random" or "repeat"; found {fallback!r}.')
        check_objective(objective, ("calibrated", "paper", "both"))
        check_epsilon(epsilon)
        self.box, self.seed, self.start = box, seed, list(start)
        self.objective, self.epsilon, self.fallback = objective, epsilon, fallback
        self.learned: LearnedLoss | None = None
        self._learner = Learner(box)

    def propose(self, ledger: Ledger, pending: Sequence[Proposal]) -> Proposal:
        """Return the next proposal, given the runs that were told and the proposals that are pending."""
        tried = np.vstack([ledger.tried, *(proposal.point for proposal in pending)])
        for point in self.start:
            if not same_point(tried, point):
                return Proposal(point)
        rng = np.random.default_rng([self.seed, len(ledger.runs), len(pending)])
        if not ledger.observations:
            return Proposal(self._untried(center(self.box), tried, ledger.failed, "random", rng))
        proposal = self._learn(ledger, n_pending=len(pending), rng=rng)
        if self.fallback == "repeat":
            return proposal
        return Proposal(self._untried(proposal.point, tried, ledger.failed, self.fallback, rng), proposal.form)

    def _learn(self, ledger: Ledger, n_pending: int, rng: np.random.Generator) -> Proposal:
        """Learn from all observations; with pending proposals, from a Bayesian bootstrap of them."""
        sample_weight = rng.standard_exponential(len(ledger.observations)) if n_pending else None
        form = self._form(ledger, ledger.n_runs + n_pending)
        try:
            self.learned = self._learner.learn(
                ledger.observations, objective=form, epsilon=self.epsilon, sample_weight=sample_weight
            )
        except SolverError as reason:
            warnings.warn(f"The next weights are near the best so far, since {reason}", RuntimeWarning, stacklevel=5)
            best = ledger.best
            return Proposal(
                center(self.box) if best is None or best.weights is None else self.box.as_array(best.weights)
            )
        return Proposal(self.learned.weights, form)

    def _form(self, ledger: Ledger, n_asked: int) -> Objective:
        """Return the form of the cost to learn in.

        The calibrated form is better at models trained to convergence, the paper's form where small weights are best.
        Which one suits a problem shows in its runs. So with "both", the form that proposed the best learned run leads,
        and the other form proposes every third run.
        """
        if self.objective != "both":
            return self.objective
        leader = (ledger.best_learned and ledger.best_learned.form) or "calibrated"
        if n_asked % PERIOD != PERIOD - 1:
            return leader
        return "paper" if leader == "calibrated" else "calibrated"

    def _untried(
        self, point: Array, tried: Array, failed: Array, fallback: Fallback, rng: np.random.Generator
    ) -> Array:
        """Return the point, or one that the fallback draws, such that it was not tried and is not near a failed one."""
        candidate = point
        for _ in range(MAX_TRIES):
            if not same_point(tried, candidate) and distance(self.box, candidate, failed) > FAILED_RADIUS:
                return candidate
            candidate = nearby(self.box, point, rng) if fallback == "nearby" else sample_box(self.box, rng)
        return candidate  # the box is a point, or full of failures
