"""What the learned loss says of the models that it was learned from, and of its terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.learn import LearnedLoss
from tuneloss.core.observation import Observation
from tuneloss.report.runs_info import RunsInfo
from tuneloss.tuning.run import Run
from tuneloss.types import Array

TIED = 1e-6  # of the loss: an observation this near to the argmin is one of the active constraints
CANCELLED = 1e-3  # of the squared gradients of the terms: what is left of their sum at a model trained to the end
ALIKE = 0.99  # the cosine from which on two terms' gradients cannot be told apart


def losses_of(observations: Sequence[Observation], learned: LearnedLoss) -> Array:
    """The learned loss of each model: weights . features."""
    return np.array([o.features @ learned.weights for o in observations])


@dataclass(frozen=True, eq=False)
class Predictions:
    """Errors of models (m,), what the learned loss says they are (m,), and which of the models is marked."""

    observed: Array
    predicted: Array
    marked: int

    @property
    def explained(self) -> float:
        """How much of the spread of errors is predicted, at most 1; NaN for less than three models."""
        if len(self.observed) < 3 or not np.ptp(self.observed) > 0:
            return math.nan
        left = np.square(self.predicted - self.observed).sum()
        return float(1 - left / np.square(self.observed - self.observed.mean()).sum())


def predictions(info: RunsInfo) -> Predictions | None:
    """weights . features / scale of the models that the loss was learned from; None if there is no scale.

    A search learns from gradients alone, so that only differences are predicted: there it is all its models, and the
    mean is that of the observed errors. Marked is the argmin; of a search the run whose weights are used.
    """
    if info.header.search is None:
        if info.learned is None or not info.learned.scale > 0:
            return None
        observed = np.array([o.error for o in info.observations])
        return Predictions(
            observed, losses_of(info.observations, info.learned) / info.learned.scale, info.learned.argmin
        )
    runs = [run for run in info.runs if run.observation is not None]
    if info.header.search.weights is None or not info.header.search.scale > 0 or info.best not in runs:
        return None
    weights = np.array([info.header.search.weights[name] for name in info.box.names]) / info.header.search.scale
    observed = np.array([run.observation.error for run in runs if run.observation is not None])
    level = np.array([run.observation.features @ weights for run in runs if run.observation is not None])
    return Predictions(observed, level + (observed - level).mean(), runs.index(info.best))


def alignment(observations: Sequence[Observation], weights: Array) -> Array:
    """The cosine between the gradient of the loss with these weights and that of the error, at each model."""
    found = []
    for o in observations:
        if o.gram is None:
            found.append(math.nan)
            continue
        inner, own, other = weights @ o.gram[:-1, -1], weights @ o.gram[:-1, :-1] @ weights, o.gram[-1, -1]
        size = math.sqrt(max(float(own), 0.0) * float(other))
        found.append(float(inner) / size if size > 0 else math.nan)
    return np.array(found)


def is_converged(run: Run, box: Box) -> bool:
    """Whether the gradients of the terms cancel under the run's own weights, as at the end of training."""
    o = run.observation
    if o is None or o.gram is None or run.weights is None:
        return False
    weights = np.array([run.weights[name] for name in box.names])
    apart = float(weights**2 @ np.diagonal(o.gram)[:-1])
    return bool(weights @ o.gram[:-1, :-1] @ weights <= CANCELLED * apart)


def bounds_met(weights: Array, box: Box) -> dict[str, str]:
    """Which free weights are at their lower or upper bound."""
    if box.is_simplex:
        return {name: "lower" for name, w in zip(box.names, weights, strict=True) if w <= 0}
    found = {}
    for name, w, low, high in zip(box.names, weights, box.lower, box.upper, strict=True):
        near = 1e-9 * max(1.0, abs(w))
        if low < high and (w <= low + near or w >= high - near):
            found[name] = "lower" if w <= low + near else "upper"
    return found


def rivals(observations: Sequence[Observation], learned: LearnedLoss) -> list[int]:
    """The other observations that the learned loss likes as well as its argmin: the active constraints."""
    losses = losses_of(observations, learned)
    close = losses - losses[learned.argmin] <= TIED * max(float(np.abs(losses).max()), 1e-300)
    return [int(i) for i in np.flatnonzero(close) if i != learned.argmin]


def alike(observations: Sequence[Observation], box: Box) -> list[tuple[str, str, float]]:
    """Pairs of terms that cannot be told apart: the cosine between their gradients, over all models together."""
    grams = [o.gram[:-1, :-1] for o in observations if o.gram is not None]
    if not grams:
        return []
    total = np.sum(grams, axis=0)
    size = np.sqrt(np.diagonal(total))
    free = np.flatnonzero((size > 0) & ~(box.pinned & (box.lower == 0)))
    pairs = []
    for position, i in enumerate(free):
        for j in free[position + 1 :]:
            cosine = float(total[i, j] / (size[i] * size[j]))
            if abs(cosine) >= ALIKE:
                pairs.append((box.names[i], box.names[j], cosine))
    return pairs


def matched_share(info: RunsInfo) -> float:
    """scale * error as a part of the loss, over all models: about 1 where the loss follows the error."""
    if info.learned is None:
        return math.nan
    losses = losses_of(info.observations, info.learned)
    errors = np.array([o.error for o in info.observations])
    return float(info.learned.scale * np.abs(errors).mean() / max(float(np.abs(losses).mean()), 1e-300))
