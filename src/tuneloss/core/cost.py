"""The problem of LearnLoss: its input, checked; the cost as a quadratic form; and the rules for epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.checks import as_number, as_numbers
from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.core.solver.answer import LearnProblem
from tuneloss.core.solver.program import scaling
from tuneloss.core.tolerances import ROUNDING
from tuneloss.errors import InvalidInput
from tuneloss.types import Array, Epsilon

OVERFLOW = (
    "The squares of features, errors and gradients must not overflow; found sums beyond 1e308. Divide the error and "
    "each term by a constant."
)


def make_problem(
    folds: Sequence[Sequence[Observation]],
    box: Box,
    epsilon: Epsilon,
    sample_weight: Sequence[ArrayLike | None] | None,
    *,
    offset: bool = False,
    min_scale: float = 0.0,
) -> LearnProblem:
    """Check the input of `learn_loss`, fold by fold, and build the cost."""
    for fold in folds:
        check_observations(fold, box)
    by_fold = [None] * len(folds) if sample_weight is None else list(sample_weight)
    counts_by_fold = []
    for s, fold in zip(by_fold, folds, strict=True):
        m, n = len(fold), np.ones(len(fold)) if s is None else as_numbers(s, "sample_weight")
        if n.shape != (m,) or not (np.isfinite(n) & (n >= 0)).all() or not n.any():
            raise InvalidInput(f"`sample_weight` must be {m} finite numbers >= 0, not all 0; found {n.tolist()}.")
        counts_by_fold.append(n)
    counts = np.concatenate(counts_by_fold)
    observations = [observation for fold in folds for observation in fold]
    counted = [observation for observation, s in zip(observations, counts, strict=True) if s > 0]
    check_all_or_none(counted, "gram")
    number = epsilon_value(epsilon, counted, counts[counts > 0])
    cost = cost_matrix(counted, number, counts[counts > 0], offset=offset)
    features = [np.array([observation.features for observation in fold]) for fold in folds]
    least = as_number(min_scale, "min_scale")
    if least < 0:
        raise InvalidInput(f"`min_scale` must not be negative; found {min_scale}. Give 0 for no bound.")
    return LearnProblem(features, number, cost, box, scaling(cost, np.vstack(features), box), least)


def check_observations(observations: Sequence[Observation], box: Box) -> None:
    """Raise unless the observations have the terms of the box, in its order, and a metric for all or none."""
    if not isinstance(observations, Sequence):
        raise InvalidInput(f"`observations` must be a list of Observations; found {type(observations).__name__}.")
    if not len(observations):
        raise InvalidInput("`learn_loss` needs at least one observation; found none. Train one model first.")
    for i, observation in enumerate(observations):
        if not isinstance(observation, Observation):
            raise InvalidInput(f"`observations` must be Observations; found {type(observation).__name__} at index {i}.")
        if observation.features.size != len(box):
            raise InvalidInput(
                f"Each observation needs one feature per weight, {len(box)} as in {box}; found "
                f"{observation.features.size} at index {i}."
            )
        if observation.names is not None and observation.names != box.names:
            box.check_names(observation.names, f"observation {i}")
            raise InvalidInput(
                f"Features must be in the box's order, {list(box.names)}; found {list(observation.names)} at index {i}."
            )
    check_all_or_none(observations, "metric")


def check_all_or_none(observations: Sequence[Observation], field: Literal["gram", "metric"]) -> None:
    """Raise if only some of the observations have a value for this field."""
    has_value = [getattr(observation, field) is not None for observation in observations]
    if any(has_value) and not all(has_value):
        raise InvalidInput(
            f"Either all observations have a {field} or none; found {sum(has_value)} of {len(has_value)} with one "
            f"(the first without: index {has_value.index(False)}). Leave it out, or give it for all."
        )


def epsilon_value(epsilon: Epsilon, observations: Sequence[Observation], sample_weight: Array) -> float:
    r"""Return the number that an epsilon rule stands for.

    ============ ============================================= ===================================================
    rule         value                                         remark
    ============ ============================================= ===================================================
    "balanced"   :math:`\sum e^2 / \sum |g|^2`                 does not depend on the units of error and parameters
    "paper"      :math:`\sum |g|^2 / \sum |J|_F^2`             appendix B; depends on those units
    a number     itself                                        ``math.inf``: gradients only
    ============ ============================================= ===================================================

    The sums run over the observations that count, with their sample weights (m,). A rule gives 0 if there are no
    grams, or if all gradients of the error are 0; then only values count. "balanced" gives infinity if all errors are 0
    but not all gradients. "paper" gives 0 if J = 0.

    At epsilon = infinity, a term whose gradient is 0 everywhere costs nothing. The tie rule of `learn_loss` then
    decides its weight. If it is the pinned term, only the ratios of the other weights mean anything.

    >>> model = Observation.from_gradients(2.0, [1.0], gradient=[4.0], jacobian=[[1.0]])
    >>> epsilon_value("balanced", [model], np.ones(1)), epsilon_value("paper", [model], np.ones(1))
    (0.25, 16.0)
    """
    check_epsilon(epsilon)
    grams = [o.gram for o in observations if o.gram is not None]
    if not isinstance(epsilon, str):
        if epsilon > 0 and not grams:
            raise InvalidInput(
                f"`epsilon` = {epsilon:g} weighs gradients, but the observations have no gram. Give grams "
                '(`Observation.from_gradients`), or epsilon="balanced", which does without them.'
            )
        return float(epsilon)
    if not grams:
        return 0.0
    gradients = float(sample_weight @ [gram[-1, -1] for gram in grams])
    if epsilon == "balanced":
        with np.errstate(over="ignore"):  # `cost_matrix` then raises an error in words
            errors = float(sample_weight @ np.square([o.error for o in observations]))
        if gradients == 0:
            return 0.0
        return errors / gradients if errors > 0 else math.inf
    jacobians = float(sample_weight @ [np.trace(gram[:-1, :-1]) for gram in grams])
    return gradients / jacobians if jacobians > 0 else 0.0


def check_epsilon(epsilon: Epsilon) -> None:
    """Raise unless this is a rule, or a number >= 0."""
    is_rule = isinstance(epsilon, str) and epsilon in ("balanced", "paper")
    if not is_rule and not (isinstance(epsilon, Real) and epsilon >= 0):
        raise InvalidInput(f'`epsilon` must be "balanced", "paper" or a number >= 0; found {epsilon!r}.')


def cost_matrix(
    observations: Sequence[Observation], epsilon: float, sample_weight: Array, *, offset: bool = False
) -> Array:
    """Return P (k + 1, k + 1) with cost(weights, scale) = z' P z for z = (weights, scale).

    With sample weights s_i::

        P = sum_i s_i ( [features_i, -e_i] [features_i, -e_i]' + epsilon * [J_i | -g_i]' [J_i | -g_i] )

    At epsilon = infinity, P is the part of the gradients only, with factor 1. With an offset, the means of features and
    errors are subtracted first, so that a constant difference between loss and error costs nothing.

    Squaring halves the number of correct digits. So the cost does not see differences between models that are below
    1e-8 of a term's value, for example if the term has a large constant part; the argmin rows do see them. Subtract
    such a constant from the term.
    """
    k = observations[0].features.size
    cost = np.zeros((k + 1, k + 1))
    if epsilon > 0:
        for s, observation in zip(sample_weight, observations, strict=True):
            if observation.gram is not None:
                cost += observation.gram if s == 1 else s * observation.gram
        with np.errstate(over="ignore", invalid="ignore"):
            cost *= 1.0 if math.isinf(epsilon) else epsilon
        cost[k, :k] *= -1
        cost[:k, k] *= -1
    if not math.isinf(epsilon):
        rows = np.column_stack([np.array([o.features for o in observations]), [-o.error for o in observations]])
        if offset:
            # If only one model counts, or all are alike, differences are nothing but rounding. Scaled to unit size,
            # rounding would look like data. So it is set to 0.
            rounding = (len(rows) + 4) * ROUNDING * np.abs(rows).max(axis=0)
            rows = rows - np.average(rows, axis=0, weights=sample_weight)
            rows = np.where(np.abs(rows) <= rounding, 0.0, rows)
        rows *= np.sqrt(sample_weight)[:, None]
        with np.errstate(over="ignore"):
            cost += rows.T @ rows
    if not np.isfinite(cost).all():
        raise InvalidInput(OVERFLOW)
    return cost


def check_squares(observations: Sequence[Observation]) -> None:
    """Raise if the cost matrix of one observation would not be finite; its diagonal bounds the rest."""
    grams = [o.gram for o in observations if o.gram is not None]
    with np.errstate(over="ignore"):
        sizes = np.square([o.features for o in observations]).sum(axis=1) + np.square([o.error for o in observations])
        gradients = np.trace(grams, axis1=1, axis2=2) if grams else np.zeros(1)
    if not (np.isfinite(sizes).all() and np.isfinite(gradients).all()):
        raise InvalidInput(OVERFLOW)
