"""Which form of the cost to learn the next weights in, where both may be taken.

The calibrated form is the better one at models trained to convergence; the paper's, which leans to small weights, where
small weights are best. Which of them a problem likes is seen from its runs: the form that led to the best run so far
learns two of three, and the other every third, so that neither is given up.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneloss.core.box import Box
from tuneloss.core.cost import Epsilon
from tuneloss.core.forms import Objective
from tuneloss.core.learn import learn_loss
from tuneloss.core.runs import Run, best_run
from tuneloss.core.sample import distance
from tuneloss.errors import SolverError


def next_form(history: Sequence[Run], asked: int, box: Box, epsilon: Epsilon) -> Objective:
    """The form to learn in, after so many points were asked for (told ones included)."""
    leads = leading_form(history, box, epsilon)
    if asked % 3 != 2:
        return leads
    return "paper" if leads == "calibrated" else "calibrated"


def leading_form(history: Sequence[Run], box: Box, epsilon: Epsilon) -> Objective:
    """The form whose weights, learned before the best run after the first, are nearer to that run's.

    So nobody has to keep who proposed what, and points that the user chose count as well.
    """
    best = best_run([run for run in history if run.run])  # there is nothing to learn the first run's weights from
    if best is None or best.weights is None or best.run is None:
        return "calibrated"
    before = [run.observation for run in history if run.observation and (run.run is None or run.run < best.run)]
    weights = box.as_array(best.weights)

    def way(form: Objective) -> float:
        return distance(box, learn_loss(before, box, objective=form, epsilon=epsilon).weights, weights)

    try:
        return "paper" if before and way("paper") < way("calibrated") else "calibrated"
    except SolverError:
        return "calibrated"
