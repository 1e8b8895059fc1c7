"""Rules that several observations must keep together: the same terms, a gram for all or none, sample weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.core.box import Box, check_box
from tuneloss.core.checks import as_numbers
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.types import Array


def check_observations(observations: Sequence[Observation], box: Box) -> None:
    """Raise unless the observations fit each other and the box."""
    check_box(box)
    if not isinstance(observations, Sequence):
        raise InvalidInput(f"`observations` must be a list of Observations; found {type(observations).__name__}.")
    if not len(observations):
        raise InvalidInput("`learn_loss` needs at least one observation; found none. Train one model first.")
    for i, observation in enumerate(observations):
        _check_terms(observation, i, box)
    check_all_or_none(observations, "metric")


def _check_terms(observation: Observation, i: int, box: Box) -> None:
    """Raise unless observation i has the terms of the box, in its order."""
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


def check_all_or_none(observations: Sequence[Observation], field: Literal["gram", "metric"]) -> None:
    """Raise if only some of the observations have a value for this field."""
    has_value = [getattr(observation, field) is not None for observation in observations]
    if any(has_value) and not all(has_value):
        raise InvalidInput(
            f"Either all observations have a {field} or none; found {sum(has_value)} of {len(has_value)} with one "
            f"(the first without: index {has_value.index(False)}). Leave it out, or give it for all."
        )


def check_sample_weight(sample_weight: ArrayLike | None, m: int) -> Array:
    """Return the sample weights (m,) of m observations; ones if None is given."""
    counts = np.ones(m) if sample_weight is None else as_numbers(sample_weight, "sample_weight")
    if counts.shape != (m,) or not (np.isfinite(counts) & (counts >= 0)).all() or not counts.any():
        raise InvalidInput(f"`sample_weight` must be {m} finite numbers >= 0, not all 0; found {counts.tolist()}.")
    return counts
