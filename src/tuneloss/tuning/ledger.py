"""All runs that a tuner was told, indexed for its proposals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.tuning.run import Run, best_run
from tuneloss.tuning.sampling import same_points
from tuneloss.types import Array


class Ledger:
    """An append-only list of runs with an index. The index is the same whether runs are added singly or together.

    Parameters
    ----------
    box : Box
        The weights that are allowed.
    runs : sequence of Run, default ()
        The runs to begin with.

    Attributes
    ----------
    runs : list of Run
        All runs, in the order in which they were told.
    observations : list of Observation
        The observations of all runs that did not fail.
    best : Run or None
        The best run by metric or error.
    best_learned : Run or None
        The best of the runs whose weights were learned.
    n_runs : int
        The number of runs, failed ones included. Several observations may belong to one run.
    """

    def __init__(self, box: Box, runs: Sequence[Run] = ()) -> None:
        self._box = box
        self.runs: list[Run] = []
        self._clear_index()
        self.extend(runs)

    def _clear_index(self) -> None:
        self.observations: list[Observation] = []
        self._tried, self._failed = Points(len(self._box)), Points(len(self._box))
        self._runs_tried: list[Run] = []  # one per point in `tried`
        self.best: Run | None = None
        self.best_learned: Run | None = None
        self.n_runs = 0
        self._n_indexed = 0  # the number of `runs` in the index; -1 while it changes

    def extend(self, runs: Sequence[Run]) -> None:
        """Add runs; raise, and add none of them, if the weights of one are not in the box."""
        points = self._box.as_arrays([run.weights for run in runs if run.weights is not None])
        is_current = self._n_indexed == len(self.runs)
        self.runs.extend(runs)
        self._index(points if is_current else None)

    def catch_up(self) -> None:
        """Finish what an interrupt, such as Ctrl-C, cut short."""
        if self._n_indexed != len(self.runs):
            self._index(None)

    def _index(self, points: Array | None) -> None:
        """Index the runs that are not indexed yet, whose weights are `points`. With None, index all runs again."""
        if points is None:
            self._clear_index()
            points = self._box.as_arrays([run.weights for run in self.runs if run.weights is not None])
        new, self._n_indexed = self.runs[self._n_indexed :], -1
        with_weights = [run for run in new if run.weights is not None]
        self.observations.extend(run.observation for run in new if run.observation is not None)
        self._tried.extend(points)
        self._failed.extend(points[[run.failed is not None for run in with_weights]])
        self._runs_tried.extend(with_weights)
        self.n_runs = max([self.n_runs, *(run.run + 1 for run in new if run.run is not None)])
        self.best = _best_of(self.best, new)
        self.best_learned = _best_of(self.best_learned, [run for run in new if run.form is not None])
        self._n_indexed = len(self.runs)

    @property
    def tried(self) -> Array:
        """The weights (n, k) of all runs."""
        return self._tried.rows

    @property
    def failed(self) -> Array:
        """The weights (n, k) of the runs that failed."""
        return self._failed.rows

    def run_with(self, point: Array) -> Run | None:
        """Return the last run with these weights; None if there is none."""
        same = np.flatnonzero(same_points(self.tried, point))
        return self._runs_tried[same[-1]] if same.size else None


class Points:
    """An append-only list of points (n, k), kept in one array with room for more."""

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


def _best_of(best: Run | None, new: Sequence[Run]) -> Run | None:
    return best_run(new if best is None else [best, *new])
