"""All runs that a tuner was told, indexed for its proposals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuneloss.checks import as_finite
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
    tried, failed : (n, k) array
        The weights of all runs, and those of the runs that failed.
    """

    def __init__(self, box: Box, runs: Sequence[Run] = ()) -> None:
        self._box = box
        self.runs: list[Run] = []
        self._clear_index()
        self.extend(runs)

    def _clear_index(self) -> None:
        self.observations: list[Observation] = []
        self.tried = self.failed = np.zeros((0, len(self._box)))
        self._runs_tried: list[Run] = []  # one per point in `tried`
        self.best: Run | None = None
        self.best_learned: Run | None = None
        self.n_runs = 0
        self._n_indexed = 0  # the number of `runs` in the index; -1 while it changes

    def extend(self, runs: Sequence[Run]) -> None:
        """Add runs; raise, and add none of them, if the weights of one are not in the box."""
        points = self._points(runs)
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
            points = self._points(self.runs)
        new, self._n_indexed = self.runs[self._n_indexed :], -1
        with_weights = [run for run in new if run.weights is not None]
        self.observations.extend(run.observation for run in new if run.observation is not None)
        self.tried = np.vstack([self.tried, points])
        self.failed = np.vstack([self.failed, points[[run.failed is not None for run in with_weights]]])
        self._runs_tried.extend(with_weights)
        self.n_runs = max([self.n_runs, *(run.run + 1 for run in new if run.run is not None)])
        self.best = best_run([*([self.best] if self.best else []), *new])
        learned = [run for run in new if run.form is not None]
        self.best_learned = best_run([*([self.best_learned] if self.best_learned else []), *learned])
        self._n_indexed = len(self.runs)

    def _points(self, runs: Sequence[Run]) -> Array:
        """Return the weights (n, k) of the runs that have any; raise InvalidInput if one is not of the box."""
        weights = [run.weights for run in runs if run.weights is not None]
        names, in_any_order = self._box.names, set(self._box.names)
        for point in weights:
            if point.keys() != in_any_order:
                self._box.check_names(tuple(point), "weights")
        rows = [[point[name] for name in names] for point in weights]
        return self._box.inside(as_finite(rows, "weights").reshape(len(rows), len(names)))

    def only_best(self) -> Array:
        """Return sample weights (m,) of the observations: 1 for that of the best run, 0 for all others."""
        best = None if self.best is None else self.best.observation
        weights = np.zeros(len(self.observations))
        weights[max(i for i, observation in enumerate(self.observations) if observation is best)] = 1.0
        return weights

    def run_with(self, point: Array) -> Run | None:
        """Return the last run with these weights; None if there is none."""
        same = np.flatnonzero(same_points(self.tried, point))
        return self._runs_tried[same[-1]] if same.size else None
