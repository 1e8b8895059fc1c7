"""All that a tuner was told, and what every proposal asks of it: found once, when it is told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.tuning.run import Run, best_run
from tuneloss.tuning.sampling import same_points
from tuneloss.types import Array


class Told:
    """Runs that are only added to. Its other attributes are made of `runs`, and are the same whatever the portions.

    runs: all that was told, in order.
    observations: of those that did not fail.
    tried, failed: (n, k), the weights of all runs, and of those that failed.
    best: by metric or error; None before the first run that did not fail.
    n_runs: how many runs there are, failed ones included; several observations may be of one run.
    """

    def __init__(self, box: Box, runs: Sequence[Run] = ()) -> None:
        self._box = box
        self.runs: list[Run] = []
        self._begin()
        self.extend(runs)

    def _begin(self) -> None:
        self.observations: list[Observation] = []
        self._tried, self._failed = Points(len(self._box)), Points(len(self._box))
        self._numbers: list[int] = []  # of the runs tried
        self.best: Run | None = None
        self.n_runs = 0
        self._indexed = 0  # of the runs, how many the rest is made of; -1 while that is changing

    def extend(self, runs: Sequence[Run]) -> None:
        """Add runs; raises, and adds none, if the weights of one are not in the box."""
        points = self._box.as_arrays([run.weights for run in runs if run.weights is not None])
        before = len(self.runs)
        self.runs.extend(runs)
        self._index(points if self._indexed == before else None)

    def catch_up(self) -> None:
        """Finish what an interrupt, such as Ctrl-C, cut short."""
        if self._indexed != len(self.runs):
            self._index(None)

    def _index(self, points: Array | None) -> None:
        """Take in the runs that are not yet, whose weights are these points; None: take in all of them anew."""
        if points is None:
            self._begin()
            points = self._box.as_arrays([run.weights for run in self.runs if run.weights is not None])
        new, self._indexed = self.runs[self._indexed :], -1
        with_weights = [run for run in new if run.weights is not None]
        self.observations.extend(run.observation for run in new if run.observation is not None)
        self._tried.extend(points)
        self._failed.extend(points[[run.failed is not None for run in with_weights]])
        self._numbers.extend(-1 if run.run is None else run.run for run in with_weights)
        self.n_runs = max([self.n_runs, *(run.run + 1 for run in new if run.run is not None)])
        self.best = best_run([*([] if self.best is None else [self.best]), *new])
        self._indexed = len(self.runs)

    @property
    def tried(self) -> Array:
        return self._tried.rows

    @property
    def failed(self) -> Array:
        return self._failed.rows

    def number_of(self, point: Array) -> int | None:
        """The number of the last run with these weights."""
        same = np.flatnonzero(same_points(self.tried, point))
        numbers = [self._numbers[i] for i in same if self._numbers[i] >= 0]
        return numbers[-1] if numbers else None


class Points:
    """Points (n, k) that are only added to, in one array with room for more."""

    def __init__(self, k: int) -> None:
        self._room, self._n = np.zeros((16, k)), 0

    @property
    def rows(self) -> Array:
        return self._room[: self._n]

    def extend(self, points: Array) -> None:
        n = self._n + len(points)
        if n > len(self._room):
            self._room = np.concatenate([self.rows, np.zeros((2 * n - self._n, self._room.shape[1]))])
        self._room[self._n : n] = points
        self._n = n
