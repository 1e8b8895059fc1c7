"""Which form of the cost to learn the next weights in, where both may be taken.

The calibrated form is the better one at models trained to convergence; the paper's, which leans to small weights, where
small weights are best. Which of them a problem likes is seen from its runs: the form that led to the best run so far
learns two of three, and the other every third, so that neither is given up.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneloss.core.box import Box
from tuneloss.core.learn import learn_loss
from tuneloss.core.observation import Observation
from tuneloss.errors import SolverError
from tuneloss.tuning.run import Run, best_run
from tuneloss.tuning.sampling import distance
from tuneloss.types import Array, Epsilon, Objective


def next_form(
    history: Sequence[Run], asked: int, box: Box, epsilon: Epsilon, known: dict[int, Objective] | None = None
) -> Objective:
    """The form to learn in, after so many points were asked for (told ones included). known: of `leading_form`."""
    leads = leading_form(history, box, epsilon, known)
    if asked % 3 != 2:
        return leads
    return "paper" if leads == "calibrated" else "calibrated"


def leading_form(
    history: Sequence[Run], box: Box, epsilon: Epsilon, known: dict[int, Objective] | None = None
) -> Objective:
    """The form whose weights, learned from all that was told before the best run, are nearer to that run's.

    The best run of those that something was told before. So nobody has to keep who proposed what; points of others,
    such as the user's, count for the form that they are nearer to, however far away.

    known: the forms found so far, by the place of the run among the observations, which are only added to.
    """
    known = {} if known is None else known
    told = [(run, run.observation) for run in history if run.observation is not None]
    best = best_run([run for run, _ in told if run.run != told[0][0].run])
    if best is None or best.weights is None:
        return "calibrated"
    start = next(i for i, (run, _) in enumerate(told) if run.run == best.run)
    if start not in known:
        before = [observation for _, observation in told[:start]]
        known[start] = _nearer(before, box.as_array(best.weights), box, epsilon)
    return known[start]


def _nearer(before: Sequence[Observation], weights: Array, box: Box, epsilon: Epsilon) -> Objective:
    """The form whose learned weights are nearer to these; the calibrated one in doubt."""

    def away(form: Objective) -> float:
        return distance(box, learn_loss(before, box, objective=form, epsilon=epsilon).weights, weights)

    try:
        return "paper" if away("paper") < away("calibrated") else "calibrated"
    except SolverError:
        return "calibrated"
