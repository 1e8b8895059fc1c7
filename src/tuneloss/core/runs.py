"""The record of what a tuner was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuneloss.core.checks import as_integer, as_number, reading
from tuneloss.core.learn import guesses
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Run:
    """One thing told: the weights of a run (None for a model of the initial set) and what came of it.

    run: number of the run, from 0; several observations of one run share it; None for the initial set.
    info: other numbers of the model, by name, such as its test error: for a report, not for learning.
    """

    run: int | None
    weights: dict[str, float] | None
    observation: Observation | None
    failed: str | None = None
    info: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON."""
        observation = None if self.observation is None else self.observation.to_dict()
        record = {"run": self.run, "weights": self.weights, "observation": observation, "failed": self.failed}
        return record | {"info": self.info} if self.info else record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Run:
        """The inverse of `to_dict`."""
        return cls.from_dicts([record])[0]

    @classmethod
    def from_dicts(cls, records: Sequence[Mapping[str, Any]]) -> list[Run]:
        """The same for many records at once."""
        with reading("A run's record"):
            told = [record["observation"] for record in records]
            observations = iter(Observation.from_dicts([seen for seen in told if seen is not None]))
            return [
                cls(
                    None if record["run"] is None else as_integer(record["run"], "run", 0),
                    _as_weights(record["weights"]),
                    None if seen is None else next(observations),
                    None if record["failed"] is None else str(record["failed"]),
                    as_info(record.get("info")),
                )
                for record, seen in zip(records, told, strict=True)
            ]


def _as_weights(weights: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if weights is None else {str(name): float(value) for name, value in weights.items()}


def as_info(info: Mapping[str, float] | None) -> dict[str, float]:
    """Finite numbers by name."""
    if info is not None and not isinstance(info, Mapping):
        raise InvalidInput(f"`info` must be numbers by name, {{name: number}}; found {type(info).__name__}.")
    return {str(name): as_number(value, f"info[{name!r}]") for name, value in (info or {}).items()}


def check_told(observation: Observation | None, failed: str | None) -> None:
    """Raise unless there is either an observation, or in words why there is none."""
    if (observation is None) == (failed is None):
        raise InvalidInput(
            "`tell` needs an observation or a reason `failed=...`, and not both; found "
            f"{'neither' if failed is None else 'both'}."
        )
    if failed is not None and not (isinstance(failed, str) and failed):
        raise InvalidInput(f"`failed` must say in words why the run failed; found {failed!r}.")


def best_run(history: Sequence[Run]) -> Run | None:
    """The run of least metric (error, if no metric is given), then least error, then the most recent."""
    runs = [(run, run.observation) for run in history if run.weights is not None and run.observation is not None]
    return runs[guesses([observation for _, observation in runs])[0]][0] if runs else None
