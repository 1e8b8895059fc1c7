"""The numbers of a comparison: best-so-far curves, final values with intervals, weights against the box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from tuneloss.report.records import Comparison, RunRecord
from tuneloss.tuning.sampling import ranges
from tuneloss.types import Array

Measure = Literal["validation_loss", "test_loss", "test_error"]
MEASURES: dict[Measure, str] = {
    "validation_loss": "validation log loss",
    "test_loss": "test log loss",
    "test_error": "test error",
}


@dataclass(frozen=True)
class Interval:
    """A mean over repeats and half the width of its 95% interval (NaN from one repeat)."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.4f}" if math.isnan(self.half) else f"{self.mean:.4f} ± {self.half:.4f}"

    def shown(self, measure: Measure) -> str:
        """As text: four digits for a loss, per cent for an error rate."""
        if measure != "test_error":
            return str(self)
        half = "" if math.isnan(self.half) else f" ± {100 * self.half:.1f}"
        return f"{100 * self.mean:.1f}{half}%"


@dataclass(frozen=True)
class Curve:
    """Best-so-far of one method by run: mean and half width (n_runs,), all values (n_repeats, n_runs)."""

    method: str
    mean: Array
    half: Array
    values: Array


@dataclass(frozen=True)
class WeightRange:
    """One free weight against its bounds: values (n_repeats, n_runs) by method; `log` if it is sampled so."""

    name: str
    lower: float
    upper: float
    log: bool
    values: dict[str, Array]


def interval(values: ArrayLike) -> Interval:
    """Student's 95% interval for the mean of independent values (n,).

    >>> str(interval([1.0, 2.0, 3.0]))
    '2.0000 ± 2.4841'
    """
    v = np.asarray(values, dtype=float)
    if v.size < 2:
        return Interval(float(v.mean()), math.nan)
    half = stdtrit(v.size - 1, 0.975) * v.std(ddof=1) / math.sqrt(v.size)
    return Interval(float(v.mean()), float(half))


def best_run(runs: tuple[RunRecord, ...]) -> RunRecord:
    """The run of least validation loss, the first of equals; a failed run only if all failed."""
    return min(runs, key=lambda record: math.inf if record.failed else record.validation_loss)


def best_so_far_info(comparison: Comparison, measure: Measure) -> list[Curve]:
    """For each method, the measure of the model with best validation loss so far, after each run."""
    curves = []
    for method in comparison.methods:
        values = np.array([_best_so_far(comparison.of(method, r + 1), measure) for r in range(comparison.n_repeats)])
        intervals = [interval(column) for column in values.T]
        mean, half = (np.array([getattr(i, name) for i in intervals]) for name in ("mean", "half"))
        curves.append(Curve(method, mean, half, values))
    return curves


def final_info(comparison: Comparison) -> dict[str, dict[Measure, Interval]]:
    """Each method's measures after its last run, and under "difference" the first method less the second.

    The difference is paired: each repeat has one data split and one first run, common to the methods.
    """
    last = {m: [curve.values[:, -1] for curve in best_so_far_info(comparison, m)] for m in MEASURES}
    found = {method: {m: interval(last[m][i]) for m in MEASURES} for i, method in enumerate(comparison.methods)}
    if len(comparison.methods) > 1:
        found["difference"] = {m: interval(last[m][0] - last[m][1]) for m in MEASURES}
    return found


def weights_info(comparison: Comparison) -> list[WeightRange]:
    """Every weight that is not pinned, by method, repeat and run, with its bounds."""
    box, log = comparison.box, ranges(comparison.box).log
    found = []
    for j in np.flatnonzero(~box.pinned):
        name, low, high = box.names[j], float(box.lower[j]), float(box.upper[j])
        values = {
            method: np.array(
                [[r.weights[name] for r in comparison.of(method, i + 1)] for i in range(comparison.n_repeats)]
            )
            for method in comparison.methods
        }
        found.append(WeightRange(name, low, high, bool(log[j]), values))
    return found


def words(comparison: Comparison) -> list[str]:
    """What was learned, in plain sentences: the result, then where the best weights lie in the box."""
    method = comparison.methods[0]
    final = final_info(comparison)
    loss, error = final[method]["test_loss"], final[method]["test_error"].shown("test_error")
    sentences = [f"After {comparison.n_runs} runs, {method}'s model has test log loss {loss}, test error {error}."]
    if "difference" in final:
        other = comparison.methods[1]
        sentences.append(f"With as many runs, {other} has test log loss {final[other]['test_loss']}.")
        sentences.append(_verdict(final["difference"]["test_loss"], comparison))
    best = best_run(comparison.of(method, 1))
    where = [_place(best.weights[w.name], w) for w in weights_info(comparison)]
    of = "" if comparison.n_repeats == 1 else " of repeat 1"
    sentences.append(f"{method}'s best run{of} is number {best.run}, with {', '.join(where)}.")
    return sentences


def _verdict(difference: Interval, comparison: Comparison) -> str:
    first, second = comparison.methods[:2]
    if math.isnan(difference.half):
        side = "below" if difference.mean < 0 else "above"
        return f"{first} is {abs(difference.mean):.4f} {side} {second}; one repeat cannot tell this from luck."
    if abs(difference.mean) <= difference.half:
        return f"The paired difference, {difference}, is within what chance explains (95%)."
    side = "lower" if difference.mean < 0 else "higher"
    return f"{first} is {side} by {Interval(abs(difference.mean), difference.half)} (paired, 95% interval)."


def _place(value: float, weight: WeightRange) -> str:
    for bound, which in ((weight.lower, "lower"), (weight.upper, "upper")):
        if abs(value - bound) <= 1e-3 * max(abs(bound), 0.0 if weight.log else weight.upper - weight.lower):
            return f"{weight.name} = {value:.3g} (at its {which} bound)"
    return f"{weight.name} = {value:.3g}"


def _best_so_far(runs: tuple[RunRecord, ...], measure: Measure) -> list[float]:
    return [float(getattr(best_run(runs[: i + 1]), measure)) for i in range(len(runs))]
