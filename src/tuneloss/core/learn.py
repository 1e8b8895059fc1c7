"""LearnLoss: the loss whose argmin over the observations has least error, and that best predicts error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.core.box import Box, check_box
from tuneloss.core.checks import as_numbers
from tuneloss.core.cost import cost_matrix, epsilon_value
from tuneloss.core.observation import Observation, best_first
from tuneloss.core.solver.program import CAP, Form, Scaling, form, scaling
from tuneloss.core.solver.qp import ACCEPTED, Solution, eigenvalues_exceed, smallest, solve, tie_rule_not_met
from tuneloss.core.solver.reachability import SELECTS, Reach
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.types import Array, Epsilon, Objective

SELECTED = (
    1e-8  # the same in the units of the caller, relative to the largest difference in any term's part of the loss
)
UNRELATED = 1e-7  # a solution mu' below this, where 1 would match the error in full, counts as mu = 0


@dataclass(frozen=True, eq=False)
class LearnedLoss:
    """What `learn_loss` returns.

    weights: (k,), exactly inside the box.
    scale: what turns validation error into loss: weights . features is about scale * error.
    cost: the minimised value: cost(weights, scale), divided by scale^2 in the calibrated form.
    argmin: index in `observations` of the model that these weights select.
    residual: of the optimality (KKT) conditions at these weights; at most 1e-7.
    epsilon, objective: the number, and the form, that were used.
    note: in words, whatever else than the plain solve was needed; "" if nothing was.
    """

    weights: Array
    scale: float
    cost: float
    argmin: int
    residual: float
    epsilon: float
    objective: Objective
    names: tuple[str, ...]
    note: str = ""

    def as_dict(self) -> dict[str, float]:
        """The weights by name."""
        return {name: float(w) for name, w in zip(self.names, self.weights, strict=True)}


def learn_loss(
    observations: Sequence[Observation],
    box: Box,
    *,
    objective: Objective = "calibrated",
    epsilon: Epsilon = "balanced",
    sample_weight: ArrayLike | None = None,
    offset: bool = False,
    constrained: bool = True,
) -> LearnedLoss:
    """Learn the loss whose argmin over the observations has least error, and that best predicts error.

    Over weights in the box and scale >= 0 (algorithm LearnLoss):

        cost = sum_i s_i (weights . features_i - scale * error_i)^2
               + epsilon * sum_i s_i |jacobian_i @ weights - scale * gradient_i|^2
        subject to  weights . features_argmin <= weights . features_i   for all i

    where `argmin` is the best observation that any weights in the box can select (Theorem 2): the one of least
    metric (error, if no metric is given), then least error, then the most recent. Of several optimal solutions, the
    one of smallest norm in scaled coordinates (in which P has unit diagonal) is returned: the norm of (weights, scale)
    in the paper's form, of weights / scale in the calibrated one.

    observations: m trained models, all that count with gram or none.
    objective: "paper" minimises cost as it is printed; "calibrated" minimises cost / scale^2, which does not
        stand still at a model trained to convergence, where small scales make the printed cost small.
    epsilon: "balanced", "paper", a number, or math.inf (gradients only); see `epsilon_value`.
    sample_weight: (m,), s_i >= 0: how much each observation counts in the cost and in epsilon. All of them
        always hold in the argmin constraints; one that counts 0 needs no gram.
    offset: True lets loss and scale * error differ by a constant, the same for all models, at no cost: only how they
        change from model to model is matched. For terms on training data, whose level is not that of the error.
    constrained: False leaves the argmin constraints out, and Theorem 3 with them: only the cost decides. For noisy
        errors, as of checkpoints of one run, where the best may be so by luck.

    >>> box = Box.from_dict({"l2": (0.0, 10.0), "logloss": 1.0})
    >>> jacobian = [[2.0, 1.0], [1.0, 1.0]]  # of l2 and logloss; this model's error is 2 * l2 + logloss
    >>> model = Observation.from_gradients(3.0, [1.0, 1.0], gradient=[5.0, 3.0], jacobian=jacobian)
    >>> learn_loss([model], box).weights.round(6)
    array([2., 1.])
    """
    return Learner(box).learn(
        observations,
        objective=objective,
        epsilon=epsilon,
        sample_weight=sample_weight,
        offset=offset,
        constrained=constrained,
    )


class Learner:
    """`learn_loss` again and again, from observations that are added to.

    That no weights in the box select an observation stays true when others are added: it is proved once, and
    remembered. If the first observations are not those of the last time, all is forgotten.
    """

    def __init__(self, box: Box) -> None:
        check_box(box)
        self.box = box
        self._features = np.zeros((0, len(box)))  # of the last time
        self._unreachable: set[int] = set()

    def learn(
        self,
        observations: Sequence[Observation],
        *,
        objective: Objective = "calibrated",
        epsilon: Epsilon = "balanced",
        sample_weight: ArrayLike | None = None,
        offset: bool = False,
        constrained: bool = True,
    ) -> LearnedLoss:
        """As `learn_loss`."""
        check_objective(objective)
        check_observations(observations, self.box)
        counts = counts_of(observations, sample_weight)
        counted = [o for o, count in zip(observations, counts, strict=True) if count > 0]
        check_all_or_none(counted, "gram")
        features = np.array([o.features for o in observations])
        number = epsilon_value(epsilon, counted, counts[counts > 0])
        cost = cost_matrix(counted, number, counts[counts > 0], offset=offset)
        fit = Fit(cost, self.box, scaling(cost, features, self.box), number)
        if constrained:
            return self._best_reachable(fit, best_first(observations), features, objective)
        free = np.zeros((0, len(self.box)))
        learned = fit.solve(free, objective, CAP, quick=True) or fit.solve(free, objective, CAP)
        if learned is None:
            raise unsolved(len(observations), len(self.box))
        return replace(learned, argmin=int(np.argmin(features @ learned.weights)))

    def _best_reachable(self, fit: Fit, order: list[int], features: Array, objective: Objective) -> LearnedLoss:
        """LearnLoss: for i* from 1 to m, in this order, until the program has a solution."""
        if not np.array_equal(features[: len(self._features)], self._features):
            self._unreachable = set()
        self._features = features
        reach = Reach(features, self.box, fit.scales)
        possible = [guess for guess in order if guess not in self._unreachable]
        for position, guess in enumerate(possible):
            rows = features[guess] - features
            # A solved QP shows by itself that its guess is reachable: the first guess mostly needs no LP.
            learned = fit.solve(rows, objective, CAP, quick=True) if position == 0 else None
            reachable = learned is not None or reach.allows(guess)
            if learned is None and reachable is not False:
                learned = fit.solve(rows, objective, CAP)
                if learned is None and reachable and (wider := 2 * reach.least_cap(guess)) > CAP:
                    learned = fit.solve(rows, objective, wider)
                if learned is None and reachable:
                    raise unsolved(len(features), len(self.box), f"Observation {guess} can be selected, but ")
            if learned is not None:
                return replace(learned, argmin=guess)
            if reachable is False:
                self._unreachable.add(guess)
        raise SolverError(f"None of {len(features)} observations was found reachable, though one must be.")


def unsolved(m: int, k: int, what: str = "") -> SolverError:
    return SolverError(
        f"{what}no solver reached a KKT residual of {ACCEPTED:g} for the program of {m} observations and {k} weights. "
        "Please report it with the observations' to_dict(); other bounds or another epsilon may help."
    )


@dataclass(frozen=True)
class Fit:
    """The program of LearnLoss but for its guess of the argmin."""

    cost: Array
    box: Box
    scales: Scaling
    epsilon: float

    def solve(self, rows: Array, objective: Objective, cap: float, *, quick: bool = False) -> LearnedLoss | None:
        """The verified optimum with rows . weights <= 0, or None if none was found (if quick, by the plain solve).

        rows: (m, k), features of the guessed argmin less those of each observation. Which it is, the caller knows.
        """
        calibrated = objective == "calibrated"
        cost = _convex(self.scales.cost(self.cost))
        program = form(objective, cost, rows, self.box, self.scales, cap)
        solution = solve(program.problem, quick=quick)
        learned, why = None, "the calibrated one was not solved to tolerance"
        if solution.residual(program.problem) <= ACCEPTED:
            k = len(self.box)
            tied = smallest(program.problem, solution, k if calibrated else k + 1)
            if calibrated and np.abs(tied.x[:k]).max() < UNRELATED:  # t = 0
                why = "no weights that select this argmin are positively related to error"
            else:
                learned = self._verified(program, rows, tied)
                learned = learned or self._verified(program, rows, tie_rule_not_met(solution))
        if learned is None and calibrated and not quick:
            learned = self.solve(rows, "paper", cap)
            return learned and replace(learned, note=_join(f"paper form used: {why}", learned.note))
        return learned

    def _verified(self, program: Form, rows: Array, solution: Solution) -> LearnedLoss | None:
        """What is returned, if it keeps what was promised: scale, box, argmin and KKT hold for *these* weights."""
        calibrated = program.objective == "calibrated"
        weights, scale = program.weights(solution)
        if not np.isfinite(weights).all() or not np.isfinite(scale) or scale < 0 or (calibrated and scale == 0):
            return None
        returned = program.at(solution, weights, scale)
        residual, selected = returned.residual(program.problem), self.scales.weights(weights)
        if residual > ACCEPTED or (program.argmin @ selected).max(initial=0.0) > SELECTS * np.abs(selected).max():
            return None
        if (rows @ weights).max(initial=0.0) > SELECTED * np.abs(rows * weights).max(initial=0.0):
            return None
        z = np.append(weights / scale, 1.0) if calibrated else np.append(weights, scale)
        return LearnedLoss(
            weights=weights,
            scale=scale,
            cost=_quadratic(self.cost, z),
            argmin=0,
            residual=residual,
            epsilon=self.epsilon,
            objective=program.objective,
            names=self.box.names,
            note=_note(program, weights, solution),
        )


def _quadratic(cost: Array, z: Array) -> float:
    """z' P z; infinite where it is beyond all numbers."""
    size = float(np.abs(z).max())
    with np.errstate(over="ignore"):
        return max(float(z / size @ cost @ (z / size)), 0.0) * size * size


def _note(program: Form, weights: Array, solution: Solution) -> str:
    at_cap = program.scales.weights(weights) >= 0.999 * program.capped
    names = [name for name, at in zip(program.box.names, at_cap, strict=True) if at]
    cap = f"weights capped at {CAP:g} times the pinned term or more, in scaled units: {', '.join(names)}"
    second = f"solved by {solution.solver}" if solution.solver != "PIQP" else ""
    return _join(cap if names else "", second)


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _convex(cost: Array) -> Array:
    """The cost matrix without the negative eigenvalues that rounding may have left."""
    if eigenvalues_exceed(cost, -1e-13 * len(cost)):
        return cost
    values, vectors = np.linalg.eigh(cost)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def check_objective(objective: str, allowed: Sequence[str] = ("calibrated", "paper")) -> None:
    """Raise unless it is one of the two forms, or of those allowed."""
    if objective not in allowed:
        raise InvalidInput(f"`objective` must be one of {', '.join(map(repr, allowed))}; found {objective!r}.")


def check_observations(observations: Sequence[Observation], box: Box) -> None:
    """Raise unless the observations fit each other and the box."""
    check_box(box)
    if not isinstance(observations, Sequence):
        raise InvalidInput(f"`observations` must be a list of Observations; found {type(observations).__name__}.")
    if not len(observations):
        raise InvalidInput("`learn_loss` needs at least one observation; found none. Train one model first.")
    for i, o in enumerate(observations):
        if not isinstance(o, Observation):
            raise InvalidInput(f"`observations` must be Observations; found {type(o).__name__} at index {i}.")
        if o.features.size != len(box):
            raise InvalidInput(
                f"Each observation needs one feature a weight, {len(box)} as in {box}; found {o.features.size} "
                f"at index {i}."
            )
        if o.names is not None and o.names != box.names:
            box.check_names(o.names, f"observation {i}")
            raise InvalidInput(
                f"Features must be in the box's order, {list(box.names)}; found {list(o.names)} at index {i}."
            )
    check_all_or_none(observations, "metric")


def check_all_or_none(observations: Sequence[Observation], field: Literal["gram", "metric"]) -> None:
    """Raise if only some of the observations have it."""
    given = [getattr(o, field) is not None for o in observations]
    if any(given) and not all(given):
        raise InvalidInput(
            f"Either all observations have a {field} or none; found {sum(given)} of {len(given)} with one "
            f"(the first without: index {given.index(False)}). Leave it out, or give it for all."
        )


def counts_of(observations: Sequence[Observation], sample_weight: ArrayLike | None) -> Array:
    """The sample weights (m,), checked."""
    m = len(observations)
    counts = np.ones(m) if sample_weight is None else as_numbers(sample_weight, "sample_weight")
    if counts.shape != (m,) or not (np.isfinite(counts) & (counts >= 0)).all() or not counts.any():
        raise InvalidInput(f"`sample_weight` must be {m} finite numbers >= 0, not all 0; found {counts.tolist()}.")
    return counts
