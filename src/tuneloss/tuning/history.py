"""The history of an online run: one record per step, kept as packed numbers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

from tuneloss.checks import as_integer, as_number
from tuneloss.core.observation import Observation
from tuneloss.tuning.online import OnlineStep

SINGLE_NUMBERS = (
    *("step", "error", "metric", "scale", "cost", "argmin", "seconds"),
    *("kept", "n_counted", "least_scale", "cosine_before", "cosine_after"),
)
WHOLE_NUMBERS = ("step", "argmin", "n_counted")


@dataclass(frozen=True)
class LearnedStep:
    """How one step of an online run set the weights, as a journal keeps it.

    Parameters
    ----------
    number : int
        Which call of `OnlineTuner.step` this was, from 1.
    learned : dict or None
        The answer of LearnLoss; None if nothing was learned.
    scale, kept, n_counted, least_scale, cosine_before, cosine_after, note
        As in `StepRecord`.
    """

    number: int
    learned: dict[str, float] | None = None
    scale: float | None = None
    kept: float | None = None
    n_counted: int | None = None
    least_scale: float | None = None
    cosine_before: float | None = None
    cosine_after: float | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; fields without a value are left out."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> LearnedStep:
        """Read the output of `to_dict`."""
        learned, n_counted = record.get("learned"), record.get("n_counted")
        singles = ("scale", "kept", "least_scale", "cosine_before", "cosine_after")
        return cls(
            as_integer(record["number"], "number", 0),
            None if learned is None else {str(name): as_number(w, "learned") for name, w in learned.items()},
            n_counted=None if n_counted is None else as_integer(n_counted, "n_counted", 0),
            note=str(record.get("note", "")),
            **{name: as_number(record[name], name) for name in singles if record.get(name) is not None},
        )

    def next_weights(self, weights: Mapping[str, float]) -> dict[str, float] | None:
        """Return the weights that the step set, given those before it; None if it learned nothing, or cannot tell."""
        if self.learned is None or self.kept is None or self.learned.keys() != weights.keys():
            return None
        return {name: self.kept * w + (1 - self.kept) * self.learned[name] for name, w in weights.items()}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of an online run.

    Parameters
    ----------
    step : int
        Which call of `OnlineTuner.step` this was, from 1.
    error : float
        The validation error of the model at this step.
    metric : float or None
        The metric of the model at this step; None without one.
    features : dict
        The values of the terms at this step.
    weights : dict
        The weights that the model was trained with up to this step.
    learned : dict or None
        The weights learned at this step; None if nothing was learned.
    scale : float or None
        The scale of the learned loss, as in `LearnedLoss`.
    cost : float or None
        The cost of the learned loss, as in `LearnedLoss`.
    argmin : int or None
        The model that the learned loss selects. It counts the steps that observed, from 0.
    note : str
        What was needed beyond a plain solve, in words.
    seconds : float
        How long the step took.
    kept : float or None
        The share of the old weights in the weights that this step set; the rest is `learned`.
    n_counted : int or None
        How many of the last checkpoints counted in the cost.
    least_scale : float or None
        The least scale that was imposed to hold the scale; None if the scale was free.
    cosine_before : float or None
        The cosine of the gradients of loss and error at this model, under the old weights.
    cosine_after : float or None
        The same, under the weights that this step set.
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
    kept: float | None = None
    n_counted: int | None = None
    least_scale: float | None = None
    cosine_before: float | None = None
    cosine_after: float | None = None

    @classmethod
    def of(
        cls, number: int, observation: Observation, weights: dict[str, float], step: OnlineStep, seconds: float
    ) -> StepRecord:
        """Build the record of an observation and of what was learned from it."""
        learned = step.learned
        before, after = (None if math.isnan(cosine) else cosine for cosine in step.cosines or (math.nan, math.nan))
        return cls(
            step=number,
            error=observation.error,
            metric=observation.metric,
            features=dict(zip(weights, observation.features.tolist(), strict=True)),
            weights=weights,
            learned=None if learned is None else learned.as_dict(),
            scale=None if learned is None else learned.scale,
            cost=None if learned is None else learned.cost,
            argmin=None if learned is None else learned.argmin,
            note=step.note,
            seconds=seconds,
            kept=step.kept,
            n_counted=step.n_counted,
            least_scale=step.least_scale,
            cosine_before=before,
            cosine_after=after,
        )

    def learned_step(self) -> LearnedStep:
        """Return what a journal keeps of this step beside the observation."""
        shared = {field.name: getattr(self, field.name) for field in fields(LearnedStep) if field.name != "number"}
        return LearnedStep(self.step, **shared)

    @property
    def score(self) -> float:
        """The metric, or the error if there is no metric. It decides which model is better."""
        return self.error if self.metric is None else self.metric

    def metrics(self) -> dict[str, float]:
        """Return the record as one flat dict of numbers, as trackers take them.

        Returns
        -------
        dict of str to float
            ``error``; ``metric``, if there is one; ``weight/<name>`` and ``term/<name>`` for each weight; ``scale``,
            which is nan if nothing was learned; ``seconds``.

        Examples
        --------
        >>> StepRecord(1, 0.5, None, {"l2": 4.0}, {"l2": 0.1}, None, None, None, None, "", seconds=2.0).metrics()
        {'error': 0.5, 'weight/l2': 0.1, 'term/l2': 4.0, 'scale': nan, 'seconds': 2.0}
        """
        return {
            "error": self.error,
            **({} if self.metric is None else {"metric": self.metric}),
            **{f"weight/{name}": weight for name, weight in self.weights.items()},
            **{f"term/{name}": value for name, value in self.features.items()},
            "scale": math.nan if self.scale is None else self.scale,
            "seconds": self.seconds,
        }

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
    """The records of all steps, packed: 8 (12 + 3 k) bytes per step for k weights, plus one reference to its note.

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
        single: dict[str, Any] = {
            name: None if math.isnan(number) else int(number) if name in WHOLE_NUMBERS else number
            for name, number in zip(SINGLE_NUMBERS, row, strict=False)
        }
        single["seconds"] = math.nan if single["seconds"] is None else single["seconds"]
        k = len(self._names)
        features, weights, learned = (
            dict(zip(self._names, row[start : start + k], strict=True))
            for start in range(len(SINGLE_NUMBERS), self._width, k)
        )
        return StepRecord(
            **single,
            features=features,
            weights=weights,
            learned=None if single["argmin"] is None else learned,
            note=self._notes[index],
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
