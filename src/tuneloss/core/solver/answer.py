"""From a guess of the argmin to weights that are verified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.solver.program import Form, Scaling, form
from tuneloss.core.solver.qp import Solution, smallest, solve, tie_rule_not_met
from tuneloss.core.tolerances import CAP, KKT_ACCEPTED, LEAST_SCALE, SELECTS, SELECTS_SCALED, UNRELATED
from tuneloss.types import Array, Objective

UNBOUNDED = "without the least scale"  # the beginning of a note


@dataclass(frozen=True, eq=False)
class Answer:
    """Verified weights; the fields are those of `LearnedLoss`."""

    weights: Array
    scale: float
    cost: float
    residual: float
    objective: Objective
    note: str


@dataclass(frozen=True, eq=False)
class LearnProblem:
    """The problem of LearnLoss. It lacks only a guess of the argmin, for which it finds weights."""

    features: list[Array]  # (m, k), fold by fold
    epsilon: float  # the number that the epsilon rule stands for
    cost: Array  # (k + 1, k + 1), in the caller's units
    box: Box
    scales: Scaling
    min_scale: float = 0.0

    def find(self, rows: Array, objective: Objective, *, cap: float = CAP, quick: bool = False) -> Answer | None:
        """Return the verified optimum with ``rows @ weights <= 0``, or None if none was found.

        Parameters
        ----------
        rows : (m, k) array
            The features of the guessed argmin minus those of each observation.
        objective : {"calibrated", "paper"}
            The form of the cost. The calibrated form falls back to the paper's, and says so in the note.
        cap : float, default CAP
            What replaces an infinite bound: see `form`.
        quick : bool, default False
            Whether to try the plain solve only.
        """
        free = self._find(rows, objective, cap, 0.0, quick=quick)
        if free is None or free.scale >= self.min_scale:
            return free
        bounded = None
        if free.objective == "paper" or self.min_scale <= LEAST_SCALE * free.scale:
            bounded = self._find(rows, objective, cap, self.min_scale, quick=quick)
        if bounded is None and not quick:
            reason = f"{UNBOUNDED}, {self.min_scale:.3g}, which was not reached"
            return replace(free, note="; ".join(filter(None, [reason, free.note])))
        return bounded

    def _find(self, rows: Array, objective: Objective, cap: float, min_scale: float, *, quick: bool) -> Answer | None:
        is_calibrated = objective == "calibrated"
        program = form(objective, self.scales.cost(self.cost), rows, self.box, self.scales, cap, min_scale)
        solution = solve(program.problem, quick=quick)
        answer, reason = None, "the calibrated one was not solved to tolerance"
        if solution.residual(program.problem) <= KKT_ACCEPTED:
            k = len(self.box)
            tied = smallest(program.problem, solution, k if is_calibrated else k + 1)
            if is_calibrated and np.abs(tied.x[:k]).max() < UNRELATED:  # t = 0
                reason = "no weights that select this argmin are positively related to error"
            else:
                answer = self._verified(program, rows, tied)
                answer = answer or self._verified(program, rows, tie_rule_not_met(solution))
        if answer is None and is_calibrated and not quick:
            answer = self._find(rows, "paper", cap, min_scale, quick=False)
            return answer and replace(answer, note="; ".join(filter(None, [f"paper form used: {reason}", answer.note])))
        return answer

    def _verified(self, program: Form, rows: Array, solution: Solution) -> Answer | None:
        """Return the answer if its final weights satisfy scale, box, argmin and KKT conditions; else None."""
        is_calibrated = program.objective == "calibrated"
        weights, scale = program.weights(solution)
        if not (np.isfinite(weights).all() and np.isfinite(scale)) or scale < 0 or (is_calibrated and scale == 0):
            return None
        residual = program.at(solution, weights, scale).residual(program.problem)
        if residual > KKT_ACCEPTED:
            return None
        scaled = self.scales.weights(weights)  # they select the guess in scaled units and in the caller's
        if (program.argmin @ scaled).max(initial=0.0) > SELECTS_SCALED * np.abs(scaled).max():
            return None
        if not (rows @ weights).max(initial=0.0) <= SELECTS * np.abs(rows * weights).max(initial=0.0):
            return None
        z = np.append(weights / scale, 1.0) if is_calibrated else np.append(weights, scale)
        size = float(np.abs(z).max())
        with np.errstate(over="ignore"):  # then the cost is infinite
            cost = max(float(z / size @ self.cost @ (z / size)), 0.0) * size * size
        notes = []
        if at_cap := list(compress(self.box.names, scaled >= 0.999 * program.capped)):
            notes.append(
                f"weights capped at {CAP:g} times the pinned term or more, in scaled units: {', '.join(at_cap)}"
            )
        if solution.solver != "PIQP":
            notes.append(f"solved by {solution.solver}")
        return Answer(weights, scale, cost, residual, program.objective, "; ".join(notes))
