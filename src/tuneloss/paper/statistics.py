"""Statistics of records: the best model so far, means over repeats with 95% intervals, differences by repeat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from tuneloss.paper.results import Record
from tuneloss.types import Array

ByRepeat = dict[int, list[Record]]


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% confidence interval, mean ± half.

    Parameters
    ----------
    mean : float
        Mean over independent repeats.
    half : float
        Half the width of the interval; NaN if there was only one repeat.

    Examples
    --------
    >>> error = Interval(0.1234, 0.0101)
    >>> str(error), error.text(2), error.percent()
    ('0.1234 ± 0.0101', '0.12 ± 0.01', '12.3 ± 1.0%')
    """

    mean: float
    half: float

    def __str__(self) -> str:
        return self.text()

    def text(self, digits: int = 4, factor: float = 1.0) -> str:
        """Format mean and half, both times `factor`, with `digits` decimals; only the mean if there is no interval."""
        mean = f"{factor * self.mean:.{digits}f}"
        return mean if math.isnan(self.half) else f"{mean} ± {factor * self.half:.{digits}f}"

    def percent(self, digits: int = 1) -> str:
        """Format a rate in per cent."""
        return f"{self.text(digits, factor=100)}%"


def interval(values: ArrayLike) -> Interval:
    """Compute Student's 95% interval for the mean of independent values.

    Parameters
    ----------
    values : (n,) array
        At least one value. To compare two methods on the same repeats, pass the differences by repeat.

    Returns
    -------
    Interval

    Examples
    --------
    >>> str(interval([1.0, 2.0, 3.0]))
    '2.0000 ± 2.4841'
    """
    v = np.asarray(values, dtype=float)
    if v.size < 2:
        return Interval(float(v.mean()), math.nan)
    half = stdtrit(v.size - 1, 0.975) * v.std(ddof=1) / math.sqrt(v.size)
    return Interval(float(v.mean()), float(half))


def paired_difference(values: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """Return the interval of values minus others over the repeats that both have; None if there are none."""
    differences = [value - others[repeat] for repeat, value in values.items() if repeat in others]
    return interval(differences) if differences else None


def by_repeat(records: Sequence[Record], dataset: str, tuner: str) -> ByRepeat:
    """Group the records of one tuner on one data set by repeat, in the order of repeats."""
    groups: ByRepeat = {}
    for record in records:
        if record["dataset"] == dataset and record["tuner"] == tuner:
            groups.setdefault(record["repeat"], []).append(record)
    return dict(sorted(groups.items()))


def best_so_far(runs: Sequence[Record], by: str = "validation_loss") -> list[Record | None]:
    """Return, after each run, the run of least `by` so far; None while all runs have failed.

    Of equal runs the first is returned, so that the curve moves only when a run is better. Ties are frequent, because a
    validation error is a count. `tuneloss.ranking.best_first` returns the last of equal models instead.
    """
    best, curve = None, []
    for run in sorted(runs, key=lambda run: int(run["run"])):
        if run[by] is not None and (best is None or run[by] < best[by]):
            best = run
        curve.append(best)
    return curve


def measure_so_far(runs: Sequence[Record], measure: str, by: str = "validation_loss") -> Array:
    """Return, after each run, `measure` of the run of least `by` so far (runs,); NaN while all runs have failed."""
    return np.array([math.nan if best is None else best[measure] for best in best_so_far(runs, by)], dtype=float)


def last_measure(repeats: ByRepeat, measure: str, by: str = "validation_loss") -> dict[int, float]:
    """Return `measure` of the run of least `by` among all runs, by repeat."""
    return {repeat: float(measure_so_far(runs, measure, by)[-1]) for repeat, runs in repeats.items()}


@dataclass(frozen=True, eq=False)
class Curve:
    """A measure of the best model so far, by the number of runs.

    Parameters
    ----------
    mean, half : (runs,) array
        Mean over repeats and half of its 95% interval, after each run.
    repeats : int
        Number of repeats.
    """

    mean: Array
    half: Array
    repeats: int


def curve(repeats: ByRepeat, measure: str, by: str = "validation_loss") -> Curve:
    """Compute the curve of `measure`, up to the last run that all repeats have."""
    n = min(map(len, repeats.values()))
    values = np.array([measure_so_far(runs, measure, by)[:n] for runs in repeats.values()])
    intervals = [interval(column) for column in values.T]
    return Curve(np.array([i.mean for i in intervals]), np.array([i.half for i in intervals]), len(values))
