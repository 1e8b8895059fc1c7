"""LearnLoss: the loss whose argmin over the observations has the least error, and that best predicts error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.core.box import Box, check_box
from tuneloss.core.cost import make_problem
from tuneloss.core.observation import Observation
from tuneloss.core.solver.answer import Answer, LearnProblem
from tuneloss.core.solver.reachability import Reach, can_hold
from tuneloss.core.tolerances import CAP, KKT_ACCEPTED
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.ranking import best_first, best_index
from tuneloss.types import Array, Epsilon, Objective


@dataclass(frozen=True, eq=False)
class LearnedLoss:
    """The answer of `learn_loss`.

    Parameters
    ----------
    weights : (k,) array
        The learned weights, exactly inside the box.
    scale : float
        Turns validation error into loss: ``weights @ features`` is about ``scale * error``.
    cost : float
        The minimised value: ``cost(weights, scale)``, divided by ``scale**2`` in the calibrated form.
    argmin : int
        Index in `observations` of the model that these weights select.
    residual : float
        Violation of the optimality (KKT) conditions at these weights; at most 1e-7.
    epsilon : float
        The number that was used for epsilon.
    objective : {"calibrated", "paper"}
        The form of the cost that was used.
    names : tuple of str
        The names of the weights.
    note : str
        What was needed beyond a plain solve, in words; "" if nothing was.
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
        """Return the weights by name."""
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
    min_scale: float = 0.0,
) -> LearnedLoss:
    r"""Learn the loss whose argmin over the observations has the least error, and that best predicts error.

    Algorithm LearnLoss minimises, over weights :math:`\lambda` in the box and scales :math:`\alpha \ge 0`,

    .. math::

        \sum_i s_i (\lambda \cdot \phi_i - \alpha e_i)^2 + \epsilon \sum_i s_i |J_i \lambda - \alpha g_i|^2
        \quad\text{subject to}\quad \lambda \cdot \phi_{i^*} \le \lambda \cdot \phi_i \text{ for all } i,

    where observation :math:`i` has error :math:`e_i` with gradient :math:`g_i`, features :math:`\phi_i` with Jacobian
    :math:`J_i`, and sample weight :math:`s_i`. The argmin :math:`i^*` is the best observation that any weights in the
    box can select (Theorem 2). If several solutions are optimal, the one of smallest norm in scaled coordinates is
    returned: the norm of (weights, scale) in the paper's form, of weights / scale in the calibrated form.

    Parameters
    ----------
    observations : sequence of Observation
        The trained models. Either all that count have a gram, or none of them has.
    box : Box
        The weights that are allowed.
    objective : {"calibrated", "paper"}, default "calibrated"
        "paper" minimises the cost as printed. "calibrated" minimises cost / scale². The printed cost is small at small
        scales, so at a model trained to convergence it favours the weights that the model was trained with.
    epsilon : {"balanced", "paper"} or float, default "balanced"
        How much gradients count; ``math.inf`` for gradients only. See `epsilon_value`.
    sample_weight : (m,) array, optional
        How much each observation counts in the cost and in epsilon. The argmin constraints hold for all observations.
        An observation of sample weight 0 needs no gram.
    offset : bool, default False
        Let loss and scale * error differ by a constant that is the same for all models. Use it for terms on training
        data, whose level is not that of the error.
    constrained : bool, default True
        False drops the argmin constraints, and Theorem 3 with them. Use it for noisy errors, such as those of
        checkpoints of one run, where the best model may be best by luck.
    min_scale : float, default 0
        The least scale. At a model trained to convergence all gradients of the loss are small, so a loss of a small
        scale fits by its directions alone. A least scale, such as that of an earlier model, rules this out. If no
        solver succeeds with it, the answer without it is returned, and its note says so.

    Returns
    -------
    LearnedLoss
        Verified: the weights lie in the box, select the argmin, and satisfy the KKT conditions.

    Examples
    --------
    >>> box = Box.from_dict({"l2": (0.0, 10.0), "logloss": 1.0})
    >>> jacobian = [[2.0, 1.0], [1.0, 1.0]]  # of l2 and logloss; this model's error is 2 * l2 + logloss
    >>> model = Observation.from_gradients(3.0, [1.0, 1.0], gradient=[5.0, 3.0], jacobian=jacobian)
    >>> learn_loss([model], box).weights.round(6)
    array([2., 1.])
    """
    learner = Learner(box)
    check_objective(objective)
    return learner.learn(observations, objective, epsilon, sample_weight, offset, constrained, min_scale)


def learn_loss_on_folds(
    folds: Sequence[Sequence[Observation]],
    box: Box,
    *,
    objective: Objective = "calibrated",
    epsilon: Epsilon = "balanced",
    sample_weight: Sequence[ArrayLike] | None = None,
) -> LearnedLoss:
    """Learn a loss from the folds of cross-validation. Models of different folds are not compared.

    The costs of all folds add up. Each fold has its own argmin. Not every choice of one observation per fold can be
    selected by the same weights. So, fold by fold, the argmin is the best observation that some weights can select
    together with the choices made before.

    Parameters
    ----------
    folds : sequence of sequences of Observation
        The observations, fold by fold.
    box : Box
        The weights that are allowed.
    objective, epsilon
        As for `learn_loss`.
    sample_weight : sequence of arrays, optional
        The sample weights, fold by fold.

    Returns
    -------
    LearnedLoss
        Its `argmin` is an index in the first fold.

    Examples
    --------
    >>> box = Box.from_dict({"l2": (0.0, 10.0), "logloss": 1.0})
    >>> model = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])  # 2 * l2 + logloss
    >>> learn_loss_on_folds([[model], [model]], box).weights.round(6)
    array([2., 1.])
    """
    if not isinstance(folds, Sequence) or not folds or any(isinstance(fold, Observation) for fold in folds):
        raise InvalidInput("`folds` must be a list with a list of observations for each fold, at least one.")
    check_objective(objective)
    check_box(box)
    problem = make_problem(folds, box, epsilon, sample_weight)
    best = [best_index(fold) for fold in folds]
    rows = np.vstack([features[i] - features for features, i in zip(problem.features, best, strict=True)])
    answer = problem.find(rows, objective, quick=True)
    if answer is not None:  # a solved program proves that the best of each fold can be selected
        return _learned(problem, answer, best[0])
    rows, argmin = np.zeros((0, len(box))), 0
    for position, (fold, features) in enumerate(zip(folds, problem.features, strict=True)):
        for guess in best_first(fold):
            candidate = np.vstack([rows, features[guess] - features])
            if can_hold(candidate, box, problem.scales):
                rows, argmin = candidate, guess if position == 0 else argmin
                break
    return _learned(problem, problem.find(rows, objective), argmin)


class Learner:
    """Repeats `learn_loss` for a list of observations that grows.

    An observation that no weights in the box can select remains unreachable when others are added. The learner proves
    this once and remembers it. It forgets everything if the list does not begin with the observations of the last call.
    """

    def __init__(self, box: Box) -> None:
        check_box(box)
        self.box = box
        self._features = np.zeros((0, len(box)))  # of the last call
        self._unreachable: set[int] = set()

    def learn(
        self,
        observations: Sequence[Observation],
        objective: Objective = "calibrated",
        epsilon: Epsilon = "balanced",
        sample_weight: ArrayLike | None = None,
        offset: bool = False,
        constrained: bool = True,
        min_scale: float = 0.0,
    ) -> LearnedLoss:
        """Do what `learn_loss` does; the objective was checked before."""
        problem = make_problem([observations], self.box, epsilon, [sample_weight], offset=offset, min_scale=min_scale)
        if constrained:
            return self._best_reachable(problem, best_first(observations), objective)
        no_rows = np.zeros((0, len(self.box)))
        answer = problem.find(no_rows, objective, quick=True) or problem.find(no_rows, objective)
        return _learned(problem, answer, None)

    def _best_reachable(self, problem: LearnProblem, order: list[int], objective: Objective) -> LearnedLoss:
        """Try guesses of the argmin in this order until the program has a solution (LearnLoss: i* from 1 to m)."""
        (features,) = problem.features
        if not np.array_equal(features[: len(self._features)], self._features):
            self._unreachable = set()
        self._features = features
        guesses = [guess for guess in order if guess not in self._unreachable]
        for guess in guesses[:1]:  # a solved program proves that its guess is reachable, and the first mostly is
            answer = problem.find(features[guess] - features, objective, quick=True)
            if answer is not None:
                return _learned(problem, answer, guess)
        reach = Reach(features, self.box, problem.scales)
        for guess in guesses:
            reachable = reach.allows(guess)
            if reachable is False:
                self._unreachable.add(guess)
                continue
            rows = features[guess] - features
            answer = problem.find(rows, objective)
            if answer is None and reachable and (wider := 2 * reach.least_cap(guess)) > CAP:
                answer = problem.find(rows, objective, cap=wider)
            if answer is not None or reachable:
                return _learned(problem, answer, guess, f"Observation {guess} can be selected, but ")
        raise SolverError(f"None of {len(features)} observations was found reachable, though one must be.")


def _learned(problem: LearnProblem, answer: Answer | None, argmin: int | None, context: str = "") -> LearnedLoss:
    """Return the answer as a `LearnedLoss`; raise if there is none. An argmin of None means what the weights select."""
    if answer is None:
        m, k = sum(map(len, problem.features)), len(problem.box)
        raise SolverError(
            f"{context}no solver reached a KKT residual of {KKT_ACCEPTED:g} for the program of {m} observations and "
            f"{k} weights. Please report it with the observations' to_dict(); other bounds or another epsilon may help."
        )
    if argmin is None:
        argmin = int(np.argmin(problem.features[0] @ answer.weights))
    return LearnedLoss(**vars(answer), argmin=argmin, epsilon=problem.epsilon, names=problem.box.names)


def check_objective(objective: str, allowed: Sequence[str] = ("calibrated", "paper")) -> None:
    """Raise unless this is one of the allowed forms of the cost."""
    if objective not in allowed:
        raise InvalidInput(f"`objective` must be one of {', '.join(map(repr, allowed))}; found {objective!r}.")
