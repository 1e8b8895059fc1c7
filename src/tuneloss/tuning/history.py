"""The history of an online run: one record per step, kept as packed numbers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from tuneloss.core.learn import LearnedLoss
from tuneloss.core.observation import Observation

SINGLE_NUMBERS = ("step", "error", "metric", "scale", "cost", "argmin", "seconds")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of an online run.

    Parameters
    ----------
    step : int
        Which call of `OnlineTuner.step` this was, from 1.
    error, metric, features : float, float or None, dict
        The model at this step, as observed.
    weights : dict
        The weights that the model was trained with up to this step.
    learned : dict or None
        The weights learned at this step; None if nothing was learned.
    scale, cost, argmin : float, float, int; or None
        Fields of the learned loss, as in `LearnedLoss`. `argmin` counts the steps that observed, from 0.
    note : str
        What was needed beyond a plain solve, in words.
    seconds : float
        How long the step took.
    """

    step: int
    error: float
    metric: float | None
    features: dict[str, float]
    weights: dict[str, float]
    learned: dict[str, float] | None
    scale: float | None
    cost: float | None
    argmin: int | None
    note: str
    seconds: float = math.nan

    @classmethod
    def of(
        cls,
        step: int,
        observation: Observation,
        weights: dict[str, float],
        learned: LearnedLoss | None,
        note: str,
        seconds: float,
    ) -> StepRecord:
        """Build the record of an observation and of what was learned from it."""
        return cls(
            step=step,
            error=observation.error,
            metric=observation.metric,
            features=dict(zip(weights, observation.features.tolist(), strict=True)),
            weights=weights,
            learned=None if learned is None else learned.as_dict(),
            scale=None if learned is None else learned.scale,
            cost=None if learned is None else learned.cost,
            argmin=None if learned is None else learned.argmin,
            note=note,
            seconds=seconds,
        )

    @property
    def score(self) -> float:
        """The metric, or the error if there is no metric. It decides which model is better."""
        return self.error if self.metric is None else self.metric

    def observation(self) -> Observation:
        """Return what was observed, without the gram."""
        return Observation(self.error, self.features, metric=self.metric)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> StepRecord:
        """Read the output of `to_dict`."""
        return cls(**record)


class History(Sequence[StepRecord]):
    """The records of all steps, packed: 8 (7 + 3 k) bytes per step for k weights, plus one reference to its note.

    Parameters
    ----------
    names : sequence of str
        The names of the k weights.
    records : sequence of StepRecord, default ()
        The records to begin with.
    """

    def __init__(self, names: Sequence[str], records: Sequence[StepRecord] = ()) -> None:
        self._names = tuple(names)
        self._width = len(SINGLE_NUMBERS) + 3 * len(self._names)
        self._numbers = array("d")  # one row per step; NaN stands for None
        self._notes: list[str] = []
        self._distinct_notes: dict[str, str] = {}  # steps with the same note share one string
        for record in records:
            self.append(record)

    def append(self, record: StepRecord) -> None:
        """Add the record of the next step."""
        single = [getattr(record, field) for field in SINGLE_NUMBERS]
        row = array("d", [math.nan if number is None else float(number) for number in single])
        for numbers in (record.features, record.weights, record.learned or {}):
            row.extend(numbers.get(name, math.nan) for name in self._names)
        del self._numbers[len(self._notes) * self._width :]  # of a record that an interrupt cut short
        self._numbers.extend(row)
        self._notes.append(self._distinct_notes.setdefault(record.note, record.note))

    def __len__(self) -> int:
        return len(self._notes)

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | list[StepRecord]:
        if isinstance(index, slice):
            return [self._record(i) for i in range(*index.indices(len(self)))]
        return self._record(range(len(self))[index])

    def _record(self, index: int) -> StepRecord:
        row = self._numbers[index * self._width : (index + 1) * self._width]
        step, error, metric, scale, cost, argmin, seconds = row[: len(SINGLE_NUMBERS)]
        k = len(self._names)
        features, weights, learned = (
            dict(zip(self._names, row[start : start + k], strict=True))
            for start in range(len(SINGLE_NUMBERS), self._width, k)
        )
        is_learned = not math.isnan(argmin)
        return StepRecord(
            step=int(step),
            error=error,
            metric=None if math.isnan(metric) else metric,
            features=features,
            weights=weights,
            learned=learned if is_learned else None,
            scale=scale if is_learned else None,
            cost=cost if is_learned else None,
            argmin=int(argmin) if is_learned else None,
            note=self._notes[index],
            seconds=seconds,
        )

    def frame(self) -> Any:
        """Return a pandas DataFrame: one row per step, with columns weights/NAME, learned/NAME and features/NAME."""
        import pandas as pd

        rows = []
        for record in self:
            row = record.to_dict()
            for field in ("weights", "learned", "features"):
                row |= {f"{field}/{name}": value for name, value in (row.pop(field) or {}).items()}
            rows.append(row)
        return pd.DataFrame(rows)
