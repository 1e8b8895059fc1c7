"""What the learned loss says about the models that it was learned from, and about its terms."""

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

TIED = 1e-6  # models whose losses differ by less than this share of the largest loss count as tied
CANCELLED = 1e-3  # a model has converged if its squared gradient is below this share of its terms' squared gradients
SIMILAR = 0.99  # two terms cannot be told apart if the cosine of their gradients is at least this


def losses_of(observations: Sequence[Observation], learned: LearnedLoss) -> Array:
    """Return the learned loss ``weights . features`` of each model, as an (m,) array."""
    return np.array([o.features @ learned.weights for o in observations])


@dataclass(frozen=True, eq=False)
class Predictions:
    """How well the learned loss predicts the errors of models.

    Parameters
    ----------
    observed : (m,) array
        The errors of the models.
    predicted : (m,) array
        The errors that the learned loss predicts.
    marked : int
        Index of the model that the loss selects, or of the run whose weights are used.
    """

    observed: Array
    predicted: Array
    marked: int

    @property
    def explained(self) -> float:
        """The share of the variance of the errors that is predicted, at most 1. NaN for fewer than three models."""
        if len(self.observed) < 3 or not np.ptp(self.observed) > 0:
            return math.nan
        residual = np.square(self.predicted - self.observed).sum()
        return float(1 - residual / np.square(self.observed - self.observed.mean()).sum())


def predictions(info: RunsInfo) -> Predictions | None:
    """Predict the error of each model as ``weights . features / scale``; None if the scale is not above 0.

    For a tuner, the models are those that the loss was learned from. For a search, they are all models with an
    observation. A search learns from gradients only, which predict differences between errors but not their level. So
    the mean of its predictions is set to the mean of the observed errors.
    """
    return _search_predictions(info) if info.from_search else _loss_predictions(info)


def _loss_predictions(info: RunsInfo) -> Predictions | None:
    """Predict the errors of the models that the loss was learned from."""
    if info.learned is None or not info.learned.scale > 0:
        return None
    predicted = losses_of(info.observations, info.learned) / info.learned.scale
    return Predictions(np.array([o.error for o in info.observations]), predicted, info.learned.argmin)


def _search_predictions(info: RunsInfo) -> Predictions | None:
    """Predict the errors of all models of a search, with the mean of the observed errors."""
    search = info.header.search
    pairs = [(run, run.observation) for run in info.runs if run.observation is not None]
    marked = [i for i, (run, _) in enumerate(pairs) if run is info.best]
    if search is None or search.weights is None or not search.scale > 0 or not marked:
        return None
    weights = np.array([search.weights[name] for name in info.box.names]) / search.scale
    observed = np.array([observation.error for _, observation in pairs])
    level = np.array([observation.features @ weights for _, observation in pairs])
    return Predictions(observed, level + (observed - level).mean(), marked[0])


def alignment(observations: Sequence[Observation], weights: Array) -> Array:
    """Return the cosine between the gradients of loss and error at each model, as an (m,) array.

    Parameters
    ----------
    observations : sequence of Observation
        One per model.
    weights : (k,) array
        Weights of the loss.
    """
    return np.array([_cosine(observation.gram, weights) for observation in observations])


def _cosine(gram: Array | None, weights: Array) -> float:
    """Return the cosine at one model. It is NaN if there are no gradients, or if one of the two is 0."""
    if gram is None:
        return math.nan
    inner, loss, error = weights @ gram[:-1, -1], weights @ gram[:-1, :-1] @ weights, gram[-1, -1]
    size = math.sqrt(max(float(loss), 0.0) * float(error))
    return float(inner) / size if size > 0 else math.nan


def is_converged(run: Run, box: Box) -> bool:
    """Return whether the gradients of the terms cancel under the weights of the run, as at the end of training."""
    o = run.observation
    if o is None or o.gram is None or run.weights is None:
        return False
    weights = np.array([run.weights[name] for name in box.names])
    separate = float(weights**2 @ np.diagonal(o.gram)[:-1])
    return bool(weights @ o.gram[:-1, :-1] @ weights <= CANCELLED * separate)


def bounds_met(weights: Array, box: Box) -> dict[str, str]:
    """Return the free weights that are at a bound, as ``{name: "lower" or "upper"}``."""
    if box.is_simplex:
        return {name: "lower" for name, w in zip(box.names, weights, strict=True) if w <= 0}
    sides = {}
    for name, w, low, high in zip(box.names, weights, box.lower, box.upper, strict=True):
        near = 1e-9 * max(1.0, abs(w))
        if low < high and (w <= low + near or w >= high - near):
            sides[name] = "lower" if w <= low + near else "upper"
    return sides


def tied_models(observations: Sequence[Observation], learned: LearnedLoss) -> list[int]:
    """Return the indices of the models whose loss ties with that of the selected one: the active constraints."""
    losses = losses_of(observations, learned)
    close = losses - losses[learned.argmin] <= TIED * max(float(np.abs(losses).max()), 1e-300)
    return [int(i) for i in np.flatnonzero(close) if i != learned.argmin]


def similar_terms(observations: Sequence[Observation], box: Box) -> list[tuple[str, str, float]]:
    """Return the pairs of terms that cannot be told apart, each with the cosine of their gradients over all models."""
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
            if abs(cosine) >= SIMILAR:
                pairs.append((box.names[i], box.names[j], cosine))
    return pairs


def error_share(info: RunsInfo) -> float:
    """Return the mean of ``scale * error`` divided by the mean loss. It is about 1 if the loss follows the error."""
    if info.learned is None:
        return math.nan
    losses = losses_of(info.observations, info.learned)
    errors = np.array([o.error for o in info.observations])
    return float(info.learned.scale * np.abs(errors).mean() / max(float(np.abs(losses).mean()), 1e-300))
