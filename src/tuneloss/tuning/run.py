"""What a journal holds: a header, then one record per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from tuneloss.checks import as_integer, as_number, reading
from tuneloss.core.box import Box
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.hinges import hinge_names
from tuneloss.ranking import best_index
from tuneloss.tuning.history import LearnedStep
from tuneloss.tuning.online import OnlinePolicy
from tuneloss.tuning.records import read_observations
from tuneloss.types import Objective

UNITS = ("run", "epoch", "step")  # what one record of a journal may be called
SCORE = "score"  # a measure in `Header.reference`: the metric, or the validation error if there is none


@dataclass(frozen=True)
class LastLearned:
    """The last answer of LearnLoss in a search that chose its box from its first runs, as `tuneloss fit` does.

    Parameters
    ----------
    weights : mapping of str to float, or None
        The learned weights by name; None if nothing was learned.
    scale : float
        The loss is about ``scale * error`` plus a constant.
    note : str
        What was needed beyond a plain solve, in words.
    """

    weights: Mapping[str, float] | None = None
    scale: float = 0.0
    note: str = ""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], box: Box) -> LastLearned:
        """Read the answer from a header; its weights must be those of the box."""
        weights, scale, note = record["weights"], float(record["scale"]), str(record["note"])
        return cls(None if weights is None else {name: float(weights[name]) for name in box.names}, scale, note)


@dataclass(frozen=True, eq=False)
class Header:
    """The first line of a journal: the box of its runs, and what a report shows beside them.

    Parameters
    ----------
    box : Box
        The box that all runs share.
    title : str, default ""
        The title of the report.
    made_by : str, default ""
        The command or class that wrote the journal, such as "fit"; empty for a `LossTuner`.
    reference : mapping, optional
        Results of other models to compare with: ``{model: {measure: value}}``.
    knots : mapping, optional
        The knots of each learned regularizer: ``{term: positions}``.
    chosen : int, optional
        Index of the run whose weights are used, if that is not the best one.
    note : str, default ""
        Remarks on the chosen weights.
    search : LastLearned, optional
        The last answer of LearnLoss in the search that made the runs. If given, a report does not learn weights again.
    final : mapping of str to float, optional
        The weights that are used in the end: those of a saved model, or those that the last step of an online run set.
    policy : OnlinePolicy, optional
        How an online run learned. If given, the records are the checkpoints of one run.
    unit : {"run", "epoch", "step"}, default "run"
        What one record is called.
    run_id : str, default ""
        Names an online run, so that a journal is overwritten only by the run that wrote it.
    """

    box: Box
    title: str = ""
    made_by: str = ""
    reference: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    knots: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chosen: int | None = None
    note: str = ""
    search: LastLearned | None = None
    final: Mapping[str, float] = field(default_factory=dict)
    policy: OnlinePolicy | None = None
    unit: str = "run"
    run_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; fields without a value are left out."""
        record = {
            "title": self.title,
            "made_by": self.made_by,
            "reference": self.reference,
            "knots": self.knots,
            "note": self.note,
            "search": None if self.search is None else asdict(self.search),
            "final": dict(self.final),
            "policy": None if self.policy is None else self.policy.to_dict(),
            "unit": "" if self.unit == "run" else self.unit,
            "run_id": self.run_id,
        }
        fields = {name: value for name, value in record.items() if value}
        return {"box": self.box.state_dict(), **fields} | ({} if self.chosen is None else {"chosen": self.chosen})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], n_runs: int, where: str = "The first line of a journal") -> Header:
        """Read the header of a journal with `n_runs` records; `where` names it in errors."""
        with reading(where):
            box, chosen = Box.from_state_dict(record["box"]), record.get("chosen")
            knots = {str(term): [float(a) for a in row] for term, row in record.get("knots", {}).items()}
            if chosen is not None and as_integer(chosen, "chosen", 0) >= n_runs:
                raise ValueError(f"chosen is run {chosen} of {n_runs}")
            names = [f"{term}/{name}" for term, row in knots.items() for name in hinge_names(len(row))]
            if not all(knots.values()) or not set(names) <= set(box.names):
                raise ValueError(f"knots of {', '.join(knots)}, but the box does not have weights for all of them")
            reference = record.get("reference", {})
            return cls(
                box,
                title=str(record.get("title", "")),
                made_by=str(record.get("made_by", "")),
                reference={str(m): {str(k): float(v) for k, v in row.items()} for m, row in reference.items()},
                knots=knots,
                chosen=chosen,
                note=str(record.get("note", "")),
                search=LastLearned.from_dict(record["search"], box) if "search" in record else None,
                final={name: float(record["final"][name]) for name in box.names} if "final" in record else {},
                policy=OnlinePolicy.from_dict(record["policy"]) if "policy" in record else None,
                unit=_as_unit(record.get("unit", "run")),
                run_id=str(record.get("run_id", "")),
            )


@dataclass(frozen=True, eq=False)
class Run:
    """One model that a tuner was told of.

    Parameters
    ----------
    run : int or None
        The number of the run, from 0; several observations of one run share it. None for a model of the initial set.
    weights : dict or None
        The loss weights that the model was trained with, by name; None for a model of the initial set.
    observation : Observation or None
        The trained model; None if the run failed.
    failed : str or None
        Why the run failed.
    info : dict
        Other numbers of the model, by name, such as its test error. A report shows them; learning ignores them.
    form : {"calibrated", "paper"} or None
        The form of the cost in which LearnLoss proposed the weights; None if it did not.
    way : str, default ""
        How a tuner proposed the weights, as in `Proposal`; empty if it did not propose them.
    step : LearnedStep or None
        How the next weights were learned, if the model is a checkpoint of an online run.
    """

    run: int | None
    weights: dict[str, float] | None
    observation: Observation | None
    failed: str | None = None
    info: dict[str, float] = field(default_factory=dict)
    form: Objective | None = None
    way: str = ""
    step: LearnedStep | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        observation = None if self.observation is None else self.observation.to_dict()
        record = {"run": self.run, "weights": self.weights, "observation": observation, "failed": self.failed}
        further = {
            "info": self.info,
            "form": self.form,
            "way": self.way,
            "step": None if self.step is None else self.step.to_dict(),
        }
        return record | {name: value for name, value in further.items() if value}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Run:
        """Read the output of `to_dict`; `info`, `form`, `way` and `step` may be missing."""
        return cls.from_dicts([record])[0]

    @classmethod
    def from_dicts(cls, records: Sequence[Mapping[str, Any]]) -> list[Run]:
        """Read many records at once, which is faster than one by one."""
        with reading("A run's record"):
            payloads = [record["observation"] for record in records]
            observations = iter(read_observations([payload for payload in payloads if payload is not None]))
            return [
                cls(
                    None if record["run"] is None else as_integer(record["run"], "run", 0),
                    _as_weights(record["weights"]),
                    None if payload is None else next(observations),
                    None if record["failed"] is None else str(record["failed"]),
                    as_info(record.get("info")),
                    as_form(record.get("form")),
                    str(record.get("way", "")),
                    LearnedStep.from_dict(record["step"]) if "step" in record else None,
                )
                for record, payload in zip(records, payloads, strict=True)
            ]


def _as_unit(unit: Any) -> str:
    if unit not in UNITS:
        raise InvalidInput(f"`unit` must be one of {', '.join(UNITS)}; found {unit!r}.")
    return str(unit)


def as_form(form: Any) -> Objective | None:
    """Return a form of the cost, or None; raise InvalidInput if it is neither."""
    if form not in (None, "calibrated", "paper"):
        raise InvalidInput(f'`form` must be "calibrated", "paper" or None; found {form!r}.')
    return cast("Objective | None", form)


def _as_weights(weights: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if weights is None else {str(name): float(value) for name, value in weights.items()}


def as_info(info: Mapping[str, float] | None) -> dict[str, float]:
    """Return finite numbers by name, {} for None; raise InvalidInput if they are something else."""
    if info is not None and not isinstance(info, Mapping):
        raise InvalidInput(f"`info` must be numbers by name, {{name: number}}; found {type(info).__name__}.")
    return {str(name): as_number(value, f"info[{name!r}]") for name, value in (info or {}).items()}


def check_told(observation: Observation | None, failed: str | None) -> None:
    """Raise unless there is either an observation or the reason why there is none."""
    if (observation is None) == (failed is None):
        raise InvalidInput(
            "`tell` needs an observation or a reason `failed=...`, and not both; found "
            f"{'neither' if failed is None else 'both'}."
        )
    if failed is not None and not (isinstance(failed, str) and failed):
        raise InvalidInput(f"`failed` must say in words why the run failed; found {failed!r}.")


def best_run(history: Sequence[Run]) -> Run | None:
    """Return the best run by `best_index`; None if no run has an observation."""
    runs = [(run, run.observation) for run in history if run.weights is not None and run.observation is not None]
    return runs[best_index([observation for _, observation in runs])][0] if runs else None
