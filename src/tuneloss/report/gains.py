"""Which weights brought the gain from the first run to the best one, as far as gradients tell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tuneloss.core.observation import Observation
from tuneloss.report.runs_info import RunsInfo
from tuneloss.tuning.slopes import slopes
from tuneloss.types import Array

LARGEST_MISS = 3.0  # factor: if slopes predict a step's gain worse than this, the step says nothing about its weights
LEAST_EXPLAINED = 0.5  # share of the whole gain that such steps must explain


def gain_shares(info: RunsInfo) -> dict[str, float]:
    """Return each free weight's share of the fall of the error from the first run to the best; empty if unknown.

    Between two runs a and b, the error changes by the integral of its slopes along the way. The slopes at both ends are
    estimated from the gradients there (see `tuneloss.tuning.slopes`), and their mean is taken. Weight j then accounts
    for ``mean slope_j * (log weight_j(b) - log weight_j(a))``. The steps are those between runs that were the best so
    far. All shares of a step are scaled such that they add to the step's gain.
    """
    steps = _best_so_far(info)
    if len(steps) < 2:
        return {}
    gain = np.zeros(len(info.box))
    total = steps[0][0].error - steps[-1][0].error
    for (one, before), (other, after) in pairwise(steps):
        parts = _predicted_parts(info, one, before, other, after)
        actual, predicted = one.error - other.error, float(parts.sum())
        if actual > 0 and predicted > 0 and 1 / LARGEST_MISS <= predicted / actual <= LARGEST_MISS:
            gain += parts * (actual / predicted)
    if not total > 0 or gain.sum() < LEAST_EXPLAINED * total:
        return {}
    shares = gain / total
    return {name: float(shares[j]) for j, name in enumerate(info.box.names) if not info.box.pinned[j]}


def _best_so_far(info: RunsInfo) -> list[tuple[Observation, Array]]:
    """Return the models that were better than all before, up to the best, if all have gradients and no metric."""
    steps: list[tuple[Observation, Array]] = []
    for run in info.runs:
        o = run.observation
        if o is None or run.weights is None or run.run is None:
            continue
        if o.gram is None or o.metric is not None:
            return []
        if not steps or o.error < steps[-1][0].error:
            steps.append((o, np.array([run.weights[name] for name in info.box.names])))
        if run is info.best:
            break
    return steps


def _predicted_parts(info: RunsInfo, one: Observation, before: Array, other: Observation, after: Array) -> Array:
    """Return how much each weight lowers the error on the way from one run to the other, by the slopes at both."""
    first, second = (slopes(o, w, info.box.pinned) for o, w in ((one, before), (other, after)))
    positive = (before > 0) & (after > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_logs = (first * before + second * after) / 2 * np.log(after / before)
    by_weights = (first + second) / 2 * (after - before)
    parts = -np.where(positive, by_logs, by_weights)
    return np.where(np.isfinite(parts), parts, 0.0)
