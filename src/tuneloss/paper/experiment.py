"""What all experiments share: units of work that yield records, and tables and figures made from records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from tuneloss.errors import InvalidInput
from tuneloss.paper.datasets import DIGITS
from tuneloss.paper.results import Append, Record, read_records, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OnUnit = Callable[[int, "Unit | None"], object]
RecordsByKey = dict[tuple[Hashable, ...], list[Record]]


class Unit(Protocol):
    """A part of an experiment that runs as a whole, in one process."""

    @property
    def key(self) -> Record:
        """The fields that all records of this unit share, with their values. No two units have the same key."""

    @property
    def n_records(self) -> int:
        """The number of records that it yields."""

    def run(self) -> Iterable[Record]:
        """Run it and return its records, each with the fields of `key`."""


@dataclass(frozen=True)
class Table:
    """A table as text.

    Parameters
    ----------
    header : sequence of str
        The titles of the columns.
    rows : sequence of sequences of str
        The cells of each row.
    title : str
        A line to print above the table; none by default.
    note : str
        A line to print below the table; none by default.
    marked : int, optional
        The index of a row to highlight.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    marked: int | None = None


class Experiment(ABC):
    """A table or figure of the paper: the units to run, and what is made from their records.

    Subclasses are dataclasses whose fields are the sizes of the experiment.

    Attributes
    ----------
    NAME : str
        The name of its command and of its file of records.
    BESIDE : tuple of str
        Other experiments whose records it shows too, if they exist.
    QUICK : dict
        The fields of a run that takes at most two minutes.
    """

    NAME: ClassVar[str]
    BESIDE: ClassVar[tuple[str, ...]] = ()
    QUICK: ClassVar[dict[str, int]] = {}

    def units(self) -> Sequence[Unit]:
        """Return the units to run, in this order; none by default."""
        return []

    @abstractmethod
    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return the tables to show, made from records."""

    def figure(self, records: Sequence[Record]) -> Figure | None:
        """Return the figure to save, if there is one."""
        return None


@dataclass(frozen=True)
class Results:
    """The files of records of several experiments, in one folder.

    Parameters
    ----------
    folder : Path
        The folder.
    quick : bool, default False
        Whether the experiments are quick. Quick experiments have separate files.
    """

    folder: Path
    quick: bool = False

    def path(self, experiment: str, datasets: Iterable[str]) -> Path:
        """Return the file of an experiment. Quick runs, and runs on digits alone, have separate files."""
        apart = "-quick" if self.quick else "-digits" if set(datasets) == {DIGITS} else ""
        return self.folder / f"{experiment}{apart}.jsonl"

    def paths(self, units: Iterable[Unit]) -> dict[Path, list[Unit]]:
        """Group units by the file of their records."""
        groups: dict[str, list[Unit]] = {}
        for unit in units:
            groups.setdefault(unit.key["experiment"], []).append(unit)
        return {self.path(name, (unit.key["dataset"] for unit in group)): group for name, group in groups.items()}


def run_experiment(
    experiment: Experiment, results: Results, *, jobs: int = 1, on_unit: OnUnit = lambda done, unit: None
) -> list[Record]:
    """Run the units whose records are missing, and return all records that the experiment shows.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    results : Results
        The files of records, which are read and extended.
    jobs : int, default 1
        Number of units to run at once.
    on_unit : callable
        Called as ``on_unit(done, unit)`` with the number of units done and the last of them. The unit is None for units
        that were done before.

    Returns
    -------
    list of dict
        The records of all units, and those of the experiments in `BESIDE` that exist.
    """
    records, units, before = list[Record](), experiment.units(), 0

    def on_unit_of_group(done: int, unit: Unit | None) -> None:
        on_unit(before + done, unit)

    for path, group in results.paths(units).items():
        records += run_units(group, path, jobs=jobs, on_unit=on_unit_of_group)
        before += len(group)
    datasets = {unit.key["dataset"] for unit in units}
    return records + [record for name in experiment.BESIDE for record in read_records(results.path(name, datasets))]


def recorded(experiment: Experiment, results: Results) -> list[Record]:
    """Return the records of all units that are complete. Nothing is run.

    Raises
    ------
    InvalidInput
        If no unit is complete.
    """
    records = list[Record]()
    groups = results.paths(experiment.units())
    for path, group in groups.items():
        found = _read(path, group)
        missing = set(map(_key, _missing(group, found)))
        complete = [unit for unit in group if _key(unit) not in missing]
        records += [record for unit in complete for record in found[_key(unit)][: unit.n_records]]
    if not records:
        paths = " and ".join(map(str, groups))
        raise InvalidInput(f"{paths} must have records of these sets, tuners, repeats and runs; found none.")
    return records


def run_units(
    units: Sequence[Unit], path: Path | None = None, *, jobs: int = 1, on_unit: OnUnit = lambda done, unit: None
) -> list[Record]:
    """Run units side by side, except those whose records are all in the file.

    The records of a unit are appended to the file together. If the file has the records of a shorter version of the
    unit, only the further records are appended.

    Parameters
    ----------
    units : sequence of Unit
        The units. Their keys must have the same fields.
    path : Path, optional
        A file of JSON lines. Without it, nothing is written.
    jobs : int, default 1
        Number of units to run at once, on this machine or on a cluster (see `side_by_side`).
    on_unit : callable
        Called as ``on_unit(done, unit)`` with the number of units done and the last of them; first with the number of
        units in the file, and None.

    Returns
    -------
    list of dict
        The records of all units, in the order of the units.
    """
    if len({_key(unit) for unit in units}) < len(units):
        raise InvalidInput(f"Units must have different keys; found {[unit.key for unit in units]}.")
    records = _read(path, units)
    missing = _missing(units, records)
    on_unit(len(units) - len(missing), None)
    if missing:
        opened: AbstractContextManager[Append] = nullcontext(lambda new: None) if path is None else writing(path)
        with opened as append:
            records = _read(path, units)  # another process may have written since
            missing = _missing(units, records)
            n_before = len(units) - len(missing)
            for done, (unit, new) in enumerate(side_by_side(missing, jobs), start=n_before + 1):
                append(new[len(records.get(_key(unit), [])) :])
                records[_key(unit)] = new
                on_unit(done, unit)
    return [record for unit in units for record in records[_key(unit)][: unit.n_records]]


def side_by_side(units: Sequence[Unit], jobs: int) -> Iterator[tuple[Unit, list[Record]]]:
    """Run units at once, and yield each with its records as it ends.

    joblib runs the units, and `joblib.parallel_config` gives them to another backend, such as a Ray or Dask cluster. A
    backend that returns nothing before all units have ended gets as many units at a time as it runs at once, always in
    the same workers.

    Parameters
    ----------
    units : sequence of Unit
        The units.
    jobs : int
        Number of units to run at once.
    """
    import joblib

    calls = [joblib.delayed(_run_one)(unit) for unit in units]
    try:
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    except ValueError:  # this backend returns lists only
        at_once = max(1, joblib.effective_n_jobs(jobs))
        with joblib.Parallel(n_jobs=jobs) as parallel:  # all rounds share its workers, whose start takes seconds on Ray
            for start in range(0, len(calls), at_once):
                yield from parallel(calls[start : start + at_once])
    else:
        yield from parallel(calls)


def _run_one(unit: Unit) -> tuple[Unit, list[Record]]:
    """Run a unit in this process."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # units share the cores
        return unit, list(unit.run())


def _missing(units: Sequence[Unit], records: RecordsByKey) -> list[Unit]:
    """Return the units that do not have all of their records yet."""
    return [unit for unit in units if len(records.get(_key(unit), [])) < unit.n_records]


def _key(unit: Unit) -> tuple[Hashable, ...]:
    """Return the key of a unit as a tuple of its values."""
    return tuple(unit.key.values())


def _read(path: Path | None, units: Sequence[Unit]) -> RecordsByKey:
    """Return the records of a file, by their values for the fields of the units' keys."""
    records: RecordsByKey = {}
    if path is None or not units:
        return records
    for number, record in enumerate(read_records(path), start=1):
        try:
            records.setdefault(tuple(record[name] for name in units[0].key), []).append(record)
        except KeyError as name:
            raise InvalidInput(
                f"{path} must hold records of this experiment; line {number} has no {name}. Name another folder."
            ) from None
        except TypeError as reason:  # a value of the key is a list or a dict
            raise InvalidInput(
                f"{path} must hold records of this experiment; line {number} has another type of value ({reason}). "
                "Name another folder."
            ) from None
    return records
