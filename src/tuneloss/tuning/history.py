"""What an online tuner tells of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuneloss.core.learn import LearnedLoss
from tuneloss.core.observation import Observation


@dataclass(slots=True)
class Record:
    """One step of an online tuner.

    step: the number of the call of `step`, from 1.
    error, metric, features: of the model at this step, as observed.
    weights: those it was trained with up to here.
    learned: those learned here, to train with next; None if nothing was learned.
    scale, cost, argmin: of the learned loss, see `LearnedLoss`; argmin counts steps that observed, from 0.
    note: in words, whatever else than the plain solve was needed.
    seconds: how long the step took.
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
        cls, step: int, seen: Observation, weights: dict[str, float], learned: LearnedLoss | None, note: str
    ) -> Record:
        """The record of an observation and of what was learned with it."""
        return cls(
            step=step,
            error=seen.error,
            metric=seen.metric,
            features=dict(zip(weights, seen.features.tolist(), strict=True)),
            weights=weights,
            learned=None if learned is None else learned.as_dict(),
            scale=None if learned is None else learned.scale,
            cost=None if learned is None else learned.cost,
            argmin=None if learned is None else learned.argmin,
            note=note,
        )

    @property
    def score(self) -> float:
        """What decides which of two models is better: the metric, or the error."""
        return self.error if self.metric is None else self.metric

    def observation(self) -> Observation:
        """What was observed, without the gram."""
        return Observation(self.error, self.features, metric=self.metric)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Record:
        """The inverse of `to_dict`."""
        return cls(**record)


def frame(history: Sequence[Record]) -> Any:
    """A pandas DataFrame: a row a step, with columns weights/NAME, learned/NAME and features/NAME."""
    import pandas as pd

    rows = []
    for record in history:
        row = record.to_dict()
        for field in ("weights", "learned", "features"):
            row |= {f"{field}/{name}": value for name, value in (row.pop(field) or {}).items()}
        rows.append(row)
    return pd.DataFrame(rows)
