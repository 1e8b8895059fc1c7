"""The next weights to train with, given all runs so far."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.cost import check_epsilon
from tuneloss.core.learn import LearnedLoss, Learner, check_objective
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.tuning.ledger import Ledger
from tuneloss.tuning.local_steps import LocalSteps
from tuneloss.tuning.sampling import center, distance, nearby, same_point, sample_box
from tuneloss.types import Array, Epsilon, Objective

# What counts as a rounding error in a weight: it is this near, relative, to a number of so few significant digits.
ROUNDING, DIGITS = 1e-14, 10

Fallback = Literal["nearby", "random", "repeat"]
Choice = Objective | Literal["auto"]
FAILED_RADIUS = 0.05  # fraction of a range: proposals nearer than this to a failed run are avoided
MAX_TRIES = 100  # candidates that the fallback draws before it gives up

# Turns after the first weights, as in the table of `Proposer`.
NARROW_OPENING = ("leader", "other form", "leader", "leader")
WIDE_OPENING = ("signs", "leader", "local", "signs")
CYCLE = ("model", "signs", "local", "other")
CYCLE_OF_MANY = ("local", "signs", "other")  # a Gaussian process of more than MANY free weights knows too little
MANY = 10
WITHOUT_SLOPES = ("leader", "model", "other form", "model")
WITHOUT_MODEL = ("leader", "other form", "leader")

ANYWHERE = 1 / 3  # probability that the model proposes from the whole box, and not only near the best run
MOST_POOR = 3  # poor proposals in a row that count, so that a way has at least every 8th of its turns


@dataclass(frozen=True, eq=False)
class Proposal:
    """Weights to train with.

    Parameters
    ----------
    point : (k,) array
        The weights.
    form : {"calibrated", "paper"}, optional
        The form of the cost that they were learned in; None if they were not learned.
    way : str, default ""
        How they were proposed: "start" before the first observation; "center", the center of the box; "learned" by
        LearnLoss from all observations; "local", "signs" and "model" as in the table of `Proposer`; "nearby" and
        "random" if the fallback moved them.
    """

    point: Array
    form: Objective | None = None
    way: str = ""


class Proposer:
    """The strategy of `LossTuner`: its parameters are documented there.

    With ``objective="auto"``, ways to propose take turns:

    ============ ==========================================================================================
    turn         proposal
    ============ ==========================================================================================
    leader       LearnLoss from all observations, in the form that proposed the best learned run
    other form   LearnLoss from all observations, in the other form
    local        LearnLoss from the best run alone, in the calibrated form; a step that goes on in the same
                 direction is extended. If the paper's form proposed the best run: that form, from all
    other        LearnLoss from all observations, in the paper's form. If the paper's form proposed the best
                 run: LearnLoss from the best run alone, as for "local"
    signs        a step from the best run against the signs of its estimated slopes
    model        expected improvement of a Gaussian process: near the best run, but anywhere in the box in every
                 third turn on average, and where there are no slopes
    ============ ==========================================================================================

    The first four turns are the opening; start points and failed runs count. In narrow ranges it belongs to LearnLoss;
    but if the error still falls in the direction that led to the best run, a step by signs goes farther. If a range
    spans more than four decades, learned steps are too short, so a step by signs comes first. Then the last four turns
    of the table repeat. Without gradients there are no slopes: every other turn is the model's, and the two forms of
    LearnLoss have the rest; but if a range spans more than four decades, the center of the box comes first. With more
    than ten free weights, and on a simplex, there is no model.

    After the opening (without slopes, after the first turn), the model takes the turn of a way that would repeat
    weights, or that rests. A way rests if its last proposals were poor, that is, worse than the median of all runs.
    After c poor proposals in a row, it has every 2^c-th of its turns.
    """

    def __init__(
        self,
        box: Box,
        *,
        seed: int,
        objective: Choice,
        epsilon: Epsilon,
        start: Sequence[Array],
        fallback: Fallback,
    ) -> None:
        if fallback not in get_args(Fallback):
            raise InvalidInput(f'`fallback` must be "nearby", "random" or "repeat"; found {fallback!r}.')
        check_objective(objective, ("auto", "calibrated", "paper"))
        check_epsilon(epsilon)
        self.box, self.seed, self.start = box, seed, list(start)
        self.objective, self.epsilon, self.fallback = objective, epsilon, fallback
        self.learned: LearnedLoss | None = None
        self._learner = Learner(box)
        self._steps = None if box.is_simplex or box.pinned.all() else LocalSteps(box)

    def propose(self, ledger: Ledger, pending: Sequence[Proposal]) -> Proposal:
        """Return the next proposal, given the runs that were told and the proposals that are pending."""
        tried = np.vstack([ledger.tried, *(proposal.point for proposal in pending)])
        for point in self.start:
            if not same_point(tried, point):
                return Proposal(point, way="start")
        rng = np.random.default_rng([self.seed, len(ledger.runs), len(pending)])
        if not ledger.observations:
            first = center(self.box)
            point = self._untried(first, tried, ledger.failed, "random", rng)
            return Proposal(short_decimals(self.box, point), way="center" if point is first else "random")
        proposal = self._take_turn(ledger, pending, tried, rng)
        point, way = proposal.point, proposal.way
        if self.fallback != "repeat":
            point = self._untried(point, tried, ledger.failed, self.fallback, rng)
            way = way if point is proposal.point else self.fallback
        return Proposal(short_decimals(self.box, point), proposal.form, way)

    def _take_turn(
        self, ledger: Ledger, pending: Sequence[Proposal], tried: Array, rng: np.random.Generator
    ) -> Proposal:
        """Propose in the way whose turn it is, or by the model where that way rests or repeats weights."""
        # With pending proposals, learn from a Bayesian bootstrap of the observations.
        sample_weight = rng.standard_exponential(len(ledger.observations)) if pending else None
        if self.objective != "auto":
            return self._in_turn(self.objective, ledger, sample_weight)
        if self._steps is not None:
            self._steps.follow(ledger.runs)
        turn, n_cycles = self._turn(ledger.n_runs + len(pending) - 1, tried)
        may_replace = self._has_model and n_cycles >= 0
        if turn != "model" and not (may_replace and _rests(ledger, self._way(turn, ledger), n_cycles)):
            proposal = self._in_turn(turn, ledger, sample_weight)
            if not may_replace or self.fallback == "repeat" or not same_point(tried, proposal.point):
                return proposal
        assert self._steps is not None  # as `_has_model` has checked
        anywhere = not self._steps.has_slope or rng.random() < ANYWHERE
        points = [proposal.point for proposal in pending]
        return Proposal(self._steps.by_model(points, ledger.failed, anywhere, rng), way="model")

    @property
    def _has_model(self) -> bool:
        """Whether there is a Gaussian process: it needs two runs, and no more than `MANY` free weights."""
        return self._steps is not None and self._steps.n_points > 1 and (~self.box.pinned).sum() <= MANY

    def _turn(self, n_turns: int, tried: Array) -> tuple[str, int]:
        """Return whose turn it is after `n_turns` turns, and how often all ways had theirs; -1 in the opening."""
        steps = self._steps
        if steps is None or not steps.has_slope:
            is_early, is_bounded = n_turns < max(1, len(self.start)), np.isfinite(self.box.upper).all()
            is_wide = steps is not None and steps.is_wide
            if is_early and is_bounded and is_wide and not same_point(tried, center(self.box)):
                return "center", -1
            cycle = WITHOUT_SLOPES if self._has_model else WITHOUT_MODEL
            return cycle[n_turns % len(cycle)], n_turns // len(cycle) if n_turns > 0 else -1
        opening = WIDE_OPENING if steps.is_wide else NARROW_OPENING
        if n_turns < len(opening):
            return "signs" if steps.goes_on and not steps.is_wide else opening[n_turns], -1
        cycle = CYCLE if self._has_model else CYCLE_OF_MANY
        n_cycles, place = divmod(n_turns - len(opening), len(cycle))
        return cycle[place], n_cycles

    def _way(self, turn: str, ledger: Ledger) -> str:
        """Return the way in which a turn proposes, as it is kept with the run."""
        if turn in ("local", "other"):
            paper_leads = ledger.best is not None and ledger.best.form == "paper"
            return "learned" if paper_leads == (turn == "local") else "local"
        return turn if turn in ("signs", "center") else "learned"

    def _in_turn(self, turn: str, ledger: Ledger, sample_weight: Array | None) -> Proposal:
        """Propose in one of the ways of the table, except the model, or in one form of the cost."""
        leader = (ledger.best_learned and ledger.best_learned.form) or "calibrated"
        forms: dict[str, Objective] = {"calibrated": "calibrated", "paper": "paper", "leader": leader}
        forms["other form"] = "paper" if leader == "calibrated" else "calibrated"
        if turn in forms:
            return self._learn(ledger, forms[turn], sample_weight)
        if turn == "center":
            return Proposal(center(self.box), way=turn)
        steps = self._steps
        assert steps is not None  # the other turns need slopes
        if turn == "signs":
            return Proposal(steps.by_signs(), way=turn)
        if self._way(turn, ledger) == "learned":
            return self._learn(ledger, "paper", sample_weight)
        proposal = self._learn(ledger, "calibrated", ledger.only_best())
        return Proposal(steps.beyond(proposal.point), proposal.form, "local")

    def _learn(self, ledger: Ledger, form: Objective, sample_weight: Array | None) -> Proposal:
        """Learn from all observations, which count as `sample_weight` says."""
        try:
            self.learned = self._learner.learn(
                ledger.observations, objective=form, epsilon=self.epsilon, sample_weight=sample_weight
            )
        except SolverError as reason:
            warnings.warn(f"LearnLoss found no weights for this proposal, since {reason}", RuntimeWarning, stacklevel=7)
            best = ledger.best
            return Proposal(
                center(self.box) if best is None or best.weights is None else self.box.as_array(best.weights)
            )
        return Proposal(self.learned.weights, form, "learned")

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


def _rests(ledger: Ledger, way: str, n_cycles: int) -> bool:
    """Return whether a way leaves out its turn, since its last proposals were worse than the median of all runs.

    Failed runs are worse than any other. Of several models of a run, its checkpoints, the best one counts.
    """
    best: dict[int, float] = {}
    ways: dict[int, str] = {}
    for run in ledger.runs:
        if run.run is not None:
            score = math.inf if run.observation is None else run.observation.score
            best[run.run] = min(score, best.get(run.run, math.inf))
            ways[run.run] = run.way
    scores = sorted(best.values())
    median, n_poor = scores[(len(scores) - 1) // 2], 0
    for number in reversed(best):
        if ways[number] == way:
            if best[number] <= median and math.isfinite(best[number]):
                break
            n_poor += 1
    every = 1 << min(n_poor, MOST_POOR)  # 2^c
    return n_cycles % every > 0


def short_decimals(box: Box, point: Array) -> Array:
    """Return weights (k,) without rounding errors such as that of 0.10000000000000006. Bounds stay exact.

    Other numbers stay as they are. So does a simplex, whose sum would change.

    Examples
    --------
    >>> box = Box([0.0, 0.0, 1 / 3], [1.0, 1.0, 1 / 3], ["l1", "l2", "fit"])
    >>> short_decimals(box, np.array([0.10000000000000006, 2 / 7, 1 / 3])).tolist()
    [0.1, 0.2857142857142857, 0.3333333333333333]
    """
    if box.is_simplex:
        return point
    short = np.clip([float(f"{weight:.{DIGITS}g}") for weight in point], box.lower, box.upper)
    is_error = np.abs(point - short) <= ROUNDING * np.abs(short)
    at_a_bound = (point == box.lower) | (point == box.upper)
    return np.where(is_error & ~at_a_bound, short, point)
