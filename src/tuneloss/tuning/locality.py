"""How much the observations of one run count: the recent ones, since early ones have large gradients."""

from __future__ import annotations

import math

import numpy as np

from tuneloss.core.observation import Observation
from tuneloss.types import Array

FORGOTTEN = 1e-3  # an observation that decay lets count less than this does not count


def span(window: int | None, decay: float | None) -> int | None:
    """How many of the last observations count in the cost at all; None for all of them.

    >>> span(None, 0.5), span(3, 0.5), span(None, None)
    (10, 3, None)
    """
    ends = [] if window is None else [window]
    if decay is not None and decay < 1:
        ends.append(1 + int(math.log(FORGOTTEN) / math.log(decay) + 1e-9))
    return min(ends, default=None)


def recent(m: int, window: int | None, decay: float | None) -> Array:
    """How much each of m observations counts in the cost, the newest last.

    >>> recent(4, 3, 0.5)
    array([0.  , 0.25, 0.5 , 1.  ])
    """
    age = np.arange(m - 1, -1, -1)
    counts = np.ones(m) if decay is None else decay ** age.astype(float)
    return np.where(age < (span(window, decay) or m), counts, 0.0)


def without_gram(observation: Observation) -> Observation:
    """What the argmin constraints need of an observation that does not count in the cost any more."""
    return Observation(observation.error, observation.features, metric=observation.metric, names=observation.names)
