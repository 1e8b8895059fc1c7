"""What a report is made from: one record a training run, and a comparison of methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuneloss.core.box import Box


@dataclass(frozen=True)
class RunRecord:
    """One training run of one method: the weights it used and how good its model is.

    `repeat` and `run` count from 1. Losses are means per example. A run that failed has NaN for its numbers
    and `failed` says why.
    """

    method: str
    repeat: int
    run: int
    weights: Mapping[str, float]
    validation_loss: float
    test_loss: float
    test_error: float
    failed: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Runs of one or more methods on the same problem; the first method is the one in question.

    Every method has runs 1..n_runs in each of repeats 1..n_repeats.
    """

    title: str
    about: str
    box: Box
    methods: tuple[str, ...]
    n_runs: int
    n_repeats: int
    runs: tuple[RunRecord, ...]

    def of(self, method: str, repeat: int) -> tuple[RunRecord, ...]:
        """One method's runs in one repeat, in order."""
        found = [r for r in self.runs if r.method == method and r.repeat == repeat]
        return tuple(sorted(found, key=lambda record: record.run))
