"""The cost of a loss, equation (cost), as a quadratic form; and the rules for its epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.types import Array, Epsilon


def epsilon_value(epsilon: Epsilon, observations: Sequence[Observation], sample_weight: Array) -> float:
    """The number that an epsilon rule stands for.

        "balanced"   sum e^2 / sum |g|^2             free of the units of error, parameters and terms
        "paper"      sum |g|^2 / sum |J|_F^2         app. B; changes with those units
        a number     itself; math.inf: gradients only

    Corners: without grams it is 0. With all gradients of the error 0, "balanced" and "paper" are 0 (values
    only). With all errors 0 but not all gradients, "balanced" is infinite (gradients only). With J = 0 for
    all terms "paper" is 0. A term whose gradient is 0 everywhere costs nothing at infinity: the tie rule
    of `learn_loss` then decides its weight; if it is the pinned one, only the others' ratios mean anything.

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
        with np.errstate(over="ignore"):  # then the cost matrix says so in words
            errors = float(sample_weight @ np.square([o.error for o in observations]))
        if gradients == 0:
            return 0.0
        return errors / gradients if errors > 0 else math.inf
    jacobians = float(sample_weight @ [np.trace(gram[:-1, :-1]) for gram in grams])
    return gradients / jacobians if jacobians > 0 else 0.0


def check_epsilon(epsilon: Epsilon) -> None:
    """Raise unless it is a rule, or a number >= 0."""
    known = epsilon in ("balanced", "paper") if isinstance(epsilon, str) else isinstance(epsilon, Real) and epsilon >= 0
    if not known:
        raise InvalidInput(f'`epsilon` must be "balanced", "paper" or a number >= 0; found {epsilon!r}.')


def cost_matrix(
    observations: Sequence[Observation], epsilon: float, sample_weight: Array, *, offset: bool = False
) -> Array:
    """P (k + 1, k + 1) with cost(weights, scale) = z' P z for z = (weights, scale).

        P = sum_i s_i ( [features_i, -e_i] [features_i, -e_i]' + epsilon * [J_i | -g_i]' [J_i | -g_i] )

    With an offset, features and errors are taken less their means: a constant between loss and error is free.

    At epsilon = infinity only the gradients' part, with factor 1. s_i is the sample weight. Squares halve the digits:
    what sets models apart by less than 1e-8 of a term's value, as under a large common offset, is not seen by the cost
    (the argmin rows see it); take such an offset out of the term.
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
            rows = _centred(rows, sample_weight)
        rows *= np.sqrt(sample_weight)[:, None]
        with np.errstate(over="ignore"):
            cost += rows.T @ rows
    if not np.isfinite(cost).all():
        raise _overflow()
    return cost


def check_squares(observations: Sequence[Observation]) -> None:
    """Raise if the cost matrix of one of them would not be finite: its diagonal bounds the rest."""
    grams = [o.gram for o in observations if o.gram is not None]
    with np.errstate(over="ignore"):
        sizes = np.square([o.features for o in observations]).sum(axis=1) + np.square([o.error for o in observations])
        gradients = np.trace(grams, axis1=1, axis2=2) if grams else np.zeros(1)
    if not (np.isfinite(sizes).all() and np.isfinite(gradients).all()):
        raise _overflow()


def _overflow() -> InvalidInput:
    return InvalidInput(
        "The squares of features, errors and gradients must not overflow; found sums beyond 1e308. "
        "Divide the error and each term by a constant."
    )


def _centred(rows: Array, sample_weight: Array) -> Array:
    """The rows (m, k + 1) minus their weighted mean.

    What rounding leaves of a difference that is 0 is made 0: where one model alone counts, or all that count are
    alike, all of it is rounding, and scaled to unit size it would look like data.
    """
    centred = rows - np.average(rows, axis=0, weights=sample_weight)
    rounding = (len(rows) + 4) * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)
    return np.where(np.abs(centred) <= rounding, 0.0, centred)
