"""Which of several models is better: by metric, then by error, then the later one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Scored(Protocol):
    """A model that can be compared with others."""

    @property
    def error(self) -> float: ...
    @property
    def score(self) -> float: ...


def best_first(models: Sequence[Scored]) -> list[int]:
    """Return indices from the best model to the worst.

    The better model has the lower score (its metric, or its error if it has no metric). Ties are broken by the lower
    error, then by the later position.

    >>> from tuneloss import Observation
    >>> best_first([Observation(2.0, [1.0]), Observation(1.0, [1.0]), Observation(1.0, [1.0])])
    [2, 1, 0]
    """
    errors, scores = np.array([model.error for model in models]), np.array([model.score for model in models])
    return [int(i) for i in np.lexsort((-np.arange(len(errors)), errors, scores))]


def best_index(models: Sequence[Scored]) -> int:
    """Return the index of the best model: the first of `best_first`."""
    return best_first(models)[0]
