"""How much the observations of one run count: the recent ones, since early ones have large gradients."""

from __future__ import annotations

import numpy as np

from tuneloss.core.checks import Array
from tuneloss.core.observation import Observation

FORGOTTEN = 1e-3  # an observation that decay lets count less than this does not count


def recent(m: int, window: int | None, decay: float | None) -> Array:
    """How much each of m observations counts in the cost, the newest last.

    >>> recent(4, 3, 0.5)
    array([0.  , 0.25, 0.5 , 1.  ])
    """
    age = np.arange(m - 1, -1, -1)
    counts = np.ones(m) if decay is None else decay ** age.astype(float)
    return np.where((counts >= FORGOTTEN) & (age < (window or m)), counts, 0.0)


def without_old_grams(observations: list[Observation], window: int | None, decay: float | None) -> list[Observation]:
    """Those that will not count again keep their values, for the argmin constraints, and lose their gram."""
    counts = recent(len(observations) + 1, window, decay)[:-1]
    return [
        o if count > 0 or o.gram is None else Observation(o.error, o.features, metric=o.metric, names=o.names)
        for o, count in zip(observations, counts, strict=True)
    ]
