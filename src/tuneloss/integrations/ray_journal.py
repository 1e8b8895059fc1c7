"""The journal of a Ray search: one line per trial that was told, which `LossTuner` can read as a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.extras import needs
from tuneloss.integrations.optuna_records import KEY, origin
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.run import Header, Run

with needs("ray", "optuna"):
    from optuna.distributions import BaseDistribution, distribution_to_json
    from optuna.trial import FrozenTrial, TrialState, create_trial

Space = dict[str, BaseDistribution]
FIELD = "trial"  # of a record: what Optuna and Ray know of the run


@dataclass(frozen=True)
class Told:
    """A trial that has ended.

    Parameters
    ----------
    trial_id : str
        Its name in Ray.
    trial : optuna.trial.FrozenTrial
        What Optuna knows of it.
    weights : dict of str to float
        All weights of the box.
    """

    trial_id: str
    trial: FrozenTrial
    weights: dict[str, float]

    def to_record(self, number: int) -> dict[str, Any]:
        """Return the trial as JSON types; `number` is that of its run."""
        trial = self.trial
        try:
            observation = Observation.from_dict(trial.user_attrs[KEY])
        except (KeyError, InvalidInput):
            observation = None
        failed = None if observation else f"trial {self.trial_id} ended as {trial.state.name}, without an observation"
        by = origin(trial.system_attrs, len(self.weights))
        return Run(number, self.weights, observation, failed, **by).to_dict() | {
            FIELD: {
                "id": self.trial_id,
                "state": trial.state.name,
                "value": trial.value,
                "params": trial.params,
                "proposal": trial.system_attrs.get(KEY),
                "began": _as_text(trial.datetime_start),
                "ended": _as_text(trial.datetime_complete),
            }
        }

    @classmethod
    def from_record(cls, record: dict[str, Any], space: Space) -> Told:
        """Read the output of `to_record`."""
        run, own = Run.from_dict(record), record[FIELD]
        trial = create_trial(
            state=TrialState[own["state"]],
            value=own["value"],
            params=own["params"],
            distributions={name: space[name] for name in own["params"]},
            user_attrs={} if run.observation is None else {KEY: run.observation.to_dict()},
            system_attrs={KEY: own["proposal"]},
        )
        trial.datetime_start, trial.datetime_complete = _as_time(own["began"]), _as_time(own["ended"])
        return cls(str(own["id"]), trial, dict(run.weights or {}))


@dataclass(frozen=True)
class SearchJournal:
    """The trials of a search in a file. It is opened anew each time, since Ray copies its searchers by pickle.

    Parameters
    ----------
    path : str
        The file.
    box : Box
        The box of the search.
    space : dict
        The parameters of a trial, with the free weights of the box.
    """

    path: str
    box: Box
    space: Space

    def append(self, told: Told) -> None:
        """Add a trial. When this returns, it is on disk."""
        journal = self._open()
        journal.append(told.to_record(len(journal.records)))

    def read(self) -> list[Told]:
        """Return the trials in the order in which they were told. A file that does not exist yet is created."""
        return [self._read_one(number, record) for number, record in enumerate(self._open().records)]

    def _read_one(self, number: int, record: dict[str, Any]) -> Told:
        try:
            return Told.from_record(record, self.space)
        except (KeyError, TypeError, ValueError) as reason:
            raise JournalError(
                f"Each record of the journal {self.path} must be a trial of this Ray search; record {number} is not "
                f"({type(reason).__name__}: {reason}). Name another file."
            ) from None

    def _open(self) -> Journal:
        others = sorted(set(self.space) - set(self.box.names))
        try:
            parameters = {name: distribution_to_json(self.space[name]) for name in others}
        except TypeError as reason:
            raise InvalidInput(
                "With a journal, choices in `param_space` must be text, numbers, truth values or None; found others "
                f"({reason}). Choose among names, or leave the journal out."
            ) from None
        header = Header(self.box).to_dict() | {"parameters": parameters}
        journal = Journal(self.path, header, extend=True)
        found = {name: journal.header.get(name) for name in header}
        if found != header:
            raise JournalError(
                f"The journal {self.path} must be of a Ray search with the same box and `param_space`; found {found}, "
                f"not {header}. Name another file."
            )
        return journal


def _as_text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _as_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
