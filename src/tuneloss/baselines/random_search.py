"""Random search: the baseline that every tuner must beat."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.core.runs import Run, best_run, check_told
from tuneloss.core.sample import sample_box


class RandomSearch:
    """Independent draws from the box: log-uniform where a range spans a decade or more, else uniform.

    It has the ask, tell, best and history of `LossTuner`, and does not learn from what it is told.

    >>> box = Box.from_dict({"l2": (0.1, 100.0), "logloss": 1.0})
    >>> search = RandomSearch(box, seed=0)
    >>> sorted(search.ask())
    ['l2', 'logloss']
    """

    def __init__(self, box: Box, *, seed: int = 0) -> None:
        self.box = box
        self.history: list[Run] = []
        self._rng = np.random.default_rng(seed)

    def ask(self) -> dict[str, float]:
        """Weights to train with."""
        return self.box.as_dict(sample_box(self.box, self._rng))

    def tell(
        self,
        weights: Mapping[str, float],
        observation: Observation | None = None,
        *,
        failed: str | None = None,
    ) -> None:
        """What came of a run: an observation, or why it failed."""
        self.box.as_array(weights)
        check_told(observation, failed)
        self.history.append(Run(len(self.history), dict(weights), observation, failed))

    @property
    def best(self) -> Run | None:
        """The best run told so far, by metric or error; None before the first that did not fail."""
        return best_run(self.history)
