"""What all baselines share with `LossTuner`: `ask`, `tell`, `best` and `history`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from tuneloss.checks import as_integer
from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.tuning.run import Run, best_run, check_told
from tuneloss.tuning.sampling import ranges, same_point, sample_box
from tuneloss.types import Array


class Search(ABC):
    """A search that proposes one point of a box at a time. It minimises the metric, or the error if there is no metric.

    Parameters
    ----------
    box : Box
        The allowed weights.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first.
    """

    def __init__(self, box: Box, *, seed: int = 0, start: Mapping[str, float] | None = None) -> None:
        self.box, self.history = box, list[Run]()
        self.rng = np.random.default_rng(as_integer(seed, "seed", 0))
        self._start = None if start is None else box.as_array(start)

    def ask(self) -> dict[str, float]:
        """Return the weights to train with next, by name."""
        if self._start is not None and not self.history:
            return self.box.as_dict(self._start)
        return self.box.as_dict(self.propose())

    @abstractmethod
    def propose(self) -> Array:
        """Return the next point, a (k,) array, based on `history`."""

    def tell(
        self,
        weights: Mapping[str, float],
        observation: Observation | None = None,
        *,
        failed: str | None = None,
    ) -> None:
        """Record the outcome of a run: an observation, or the reason why the run failed.

        Parameters
        ----------
        weights : mapping of str to float
            The weights of the run.
        observation : Observation, optional
            The observation of the trained model.
        failed : str, optional
            The reason why the run failed.

        Raises
        ------
        InvalidInput
            If the weights are not in the box, or unless exactly one of `observation` and `failed` is there.
        """
        self.box.as_array(weights)
        check_told(observation, failed)
        self.history.append(Run(len(self.history), dict(weights), observation, failed))

    @property
    def best(self) -> Run | None:
        """The best run so far, by metric or error; None while all runs have failed."""
        return best_run(self.history)

    def points(self) -> Array:
        """Return the weights of all runs that did not fail, as an (m, k) array."""
        return np.array([self.box.as_array(r.weights) for r in self.history if r.weights and not r.failed])

    def errors(self) -> Array:
        """Return the metric, or else the error, of all runs that did not fail, as an (m,) array."""
        return np.array([run.observation.score for run in self.history if run.observation is not None])

    def new(self, point: Array) -> Array:
        """Return the point, or a random one if it was tried before."""
        tried = [self.box.as_array(run.weights) for run in self.history if run.weights]
        return sample_box(self.box, self.rng) if any(same_point(point, other) for other in tried) else point


class Cube:
    """The free weights of a box as a unit cube. A range that spans a decade or more is on a log scale.

    Parameters
    ----------
    box : Box
        The box.
    """

    def __init__(self, box: Box) -> None:
        self.box, self.ranges = box, ranges(box)
        self.free = ~box.pinned

    def to_cube(self, points: Array) -> Array:
        """Map points of the box, (..., k), to the cube, (..., free)."""
        r = self.ranges
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(points / r.low) / np.log(r.high / r.low)
            plain = (points - r.low) / (r.high - r.low)
        return np.asarray(np.where(r.log, logs, plain)[..., self.free])

    def to_box(self, unit: Array) -> Array:
        """Map points of the cube, (..., free), to the box, (..., k)."""
        r, at = self.ranges, self.free
        points = np.broadcast_to(self.box.lower, (*unit.shape[:-1], len(self.box))).copy()
        low, high = r.low[at], r.high[at]
        with np.errstate(divide="ignore", invalid="ignore"):
            points[..., at] = np.where(r.log[at], low * (high / low) ** unit, low + unit * (high - low))
        return np.clip(points, self.box.lower, self.box.upper)
