"""LearnLoss on several folds of cross-validation at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.core.box import Box
from tuneloss.core.cost import cost_matrix, epsilon_value
from tuneloss.core.learn import (
    Fit,
    LearnedLoss,
    check_all_or_none,
    check_objective,
    check_observations,
    counts_of,
    unsolved,
)
from tuneloss.core.observation import Observation, best_first, best_index
from tuneloss.core.solver.program import CAP, Scaling, scaling
from tuneloss.core.solver.reachability import ROUNDING, always_below_0, highs, largest
from tuneloss.errors import InvalidInput
from tuneloss.types import Array, Epsilon, Objective

TOLERANCE = 1e-9  # of rows of unit length


def learn_loss_on_folds(
    folds: Sequence[Sequence[Observation]],
    box: Box,
    *,
    objective: Objective = "calibrated",
    epsilon: Epsilon = "balanced",
    sample_weight: Sequence[ArrayLike] | None = None,
) -> LearnedLoss:
    """`learn_loss` where models of different folds, which have other examples, are not compared with each other.

    The costs of all folds add. Each fold has an argmin of its own, and rows that hold within it. Not every choice of
    one observation a fold can be selected by the same weights: so, fold after fold, it is the best one that weights
    which keep the choices made so far can select.

    folds: observations, fold by fold. sample_weight: numbers >= 0, fold by fold.
    Returns what `learn_loss` does; `argmin` is an index in the first fold.

    >>> box = Box.from_dict({"l2": (0.0, 10.0), "logloss": 1.0})
    >>> model = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])  # 2 * l2 + logloss
    >>> learn_loss_on_folds([[model], [model]], box).weights.round(6)
    array([2., 1.])
    """
    check_objective(objective)
    if not isinstance(folds, Sequence) or not folds or any(isinstance(fold, Observation) for fold in folds):
        raise InvalidInput("`folds` must be a list with a list of observations for each fold, at least one.")
    for fold in folds:
        check_observations(fold, box)
    weights = [None] * len(folds) if sample_weight is None else list(sample_weight)
    counts = np.concatenate([counts_of(fold, own) for fold, own in zip(folds, weights, strict=True)])
    counted = [o for o, count in zip((o for fold in folds for o in fold), counts, strict=True) if count > 0]
    check_all_or_none(counted, "gram")
    number = epsilon_value(epsilon, counted, counts[counts > 0])
    cost = cost_matrix(counted, number, counts[counts > 0])
    features = [np.array([o.features for o in fold]) for fold in folds]
    fit = Fit(cost, box, scaling(cost, np.vstack(features), box), number)
    best = [best_index(fold) for fold in folds]
    rows = np.vstack([own[guess] - own for own, guess in zip(features, best, strict=True)])
    learned = fit.solve(rows, objective, CAP, quick=True)
    if learned is not None:  # a solved QP shows by itself that each fold's best can be selected
        return replace(learned, argmin=best[0])
    rows, first = np.zeros((0, len(box))), 0
    for position, (fold, own) in enumerate(zip(folds, features, strict=True)):
        for guess in best_first(fold):
            held = np.vstack([rows, own[guess] - own])
            if can_hold(held, box, fit.scales):
                rows, first = held, guess if position == 0 else first
                break
    learned = fit.solve(rows, objective, CAP)
    if learned is None:
        raise unsolved(len(counts), len(box))
    return replace(learned, argmin=first)


def can_hold(rows: Array, box: Box, scales: Scaling) -> bool:
    """Whether some weights in the box have rows . weights <= 0, by an LP: maximise v <= 1 subject to rows . w <= -v.

    PIQP proposes weights, and a mixture of rows that may be above 0 under all weights; HiGHS is asked if neither holds.
    """
    scaled = rows / scales.unit
    length = np.linalg.norm(scaled, axis=1)
    scaled = scaled[length > 0] / length[length > 0, None]
    if not len(scaled):
        return True
    k = len(box)
    lower, upper = (np.zeros(k), np.ones(k)) if box.is_simplex else map(scales.weights, (box.lower, box.upper))
    upper = np.minimum(upper, scales.highest(lower, upper, CAP))  # as in the program to come
    total = np.append(np.ones(k), 0.0)[None] if box.is_simplex else None
    margin = np.column_stack([scaled, np.ones(len(scaled))])
    ends = np.append(lower, -np.inf), np.append(upper, 1.0)
    x, multipliers = largest(margin, total, *ends)
    weights, mixture = np.clip(x[:-1], lower, upper), multipliers @ scaled
    if (weights.any() or not box.is_simplex) and _all_below(scaled, weights):  # on a simplex, up to a factor
        return True
    doubt = (len(scaled) + 4) * ROUNDING * (multipliers @ np.abs(scaled))
    if box.is_simplex and (mixture > doubt).all():
        return False
    if not box.is_simplex and always_below_0(-mixture[None], doubt[None], lower, upper)[0]:
        return False
    found = highs(np.append(np.zeros(k), -1.0), margin, total, *ends)
    return found.x is not None and _all_below(scaled, np.clip(found.x[:-1], lower, upper))


def _all_below(rows: Array, weights: Array) -> bool:
    """Whether rows . weights <= 0, as far as numbers tell."""
    return bool((rows @ weights).max() <= TOLERANCE * float(np.abs(weights).max()))
