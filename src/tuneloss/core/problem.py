"""From the input of `learn_loss`, checked, to the problem of LearnLoss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.checks import as_number, as_numbers
from tuneloss.core.box import Box
from tuneloss.core.cost import cost_matrix, epsilon_value
from tuneloss.core.observation import Observation
from tuneloss.core.solver.answer import LearnProblem
from tuneloss.core.solver.program import scaling
from tuneloss.errors import InvalidInput
from tuneloss.types import Array, Epsilon


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
    counts = np.concatenate([_sample_weights(s, len(fold)) for s, fold in zip(by_fold, folds, strict=True)])
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


def _sample_weights(sample_weight: ArrayLike | None, m: int) -> Array:
    """Return the sample weights (m,) of m observations; ones if None is given."""
    counts = np.ones(m) if sample_weight is None else as_numbers(sample_weight, "sample_weight")
    if counts.shape != (m,) or not (np.isfinite(counts) & (counts >= 0)).all() or not counts.any():
        raise InvalidInput(f"`sample_weight` must be {m} finite numbers >= 0, not all 0; found {counts.tolist()}.")
    return counts
