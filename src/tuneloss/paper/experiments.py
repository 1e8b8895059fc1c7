"""Training runs of the paper's tuning experiments (section 4.2), repeat by repeat, resumable."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tuneloss.baselines.random_search import RandomSearch
from tuneloss.errors import RunFailed
from tuneloss.paper.datasets import DIGITS, Labels, Split, fresh_split
from tuneloss.paper.results import Record, Task, run_missing
from tuneloss.paper.terms import appendix_box, draw_masks, log_probabilities, observe, observe_error
from tuneloss.paper.trainer import train
from tuneloss.paper.tuners import READ_TERMS, make_tuner
from tuneloss.tuning.sampling import center
from tuneloss.types import Array

EPOCHS, EPOCHS_ON_DIGITS = 30, 100  # the paper does not say how many; digits are few
DRAWS = 8  # of dropout masks, in an observation


@dataclass(frozen=True)
class Setting:
    """How the runs of a unit are made.

    tuner, options: the tuner's name, and options of its own.
    epochs: of a run; None for as many as everywhere.
    first: the first weights: one log-uniform "draw", the "middle" of the box, or its "lower" end.
    warm: whether a run starts from the params of the run before it, instead of zeros.
    means: whether the ranges of appendix B are meant for means over examples, instead of sums.
    draws: of dropout masks in an observation, for a tuner that reads more of it than the error.
    """

    tuner: str
    options: tuple[tuple[str, Any], ...] = ()
    epochs: int | None = None
    first: Literal["draw", "middle", "lower"] = "draw"
    warm: bool = False
    means: bool = False
    draws: int = DRAWS


@dataclass(frozen=True)
class Unit:
    """One repeat of one tuner on one data set: so many runs, one after another.

    setting: how runs are made, if not by the tuner of that name as everywhere.
    """

    experiment: str
    dataset: str
    tuner: str
    repeat: int
    runs: int
    setting: Setting | None = None

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.experiment, self.dataset, self.tuner, self.repeat

    def __str__(self) -> str:
        return f"{self.dataset}, {self.tuner}, repeat {self.repeat}"


def run_units(
    path: Path,
    units: Sequence[Unit],
    *,
    folder: str | None = None,
    jobs: int = 1,
    on_unit: Callable[[int, Unit | None], object] = lambda done, unit: None,
) -> list[Record]:
    """The records of all units; those that are in the file with enough runs are not run again.

    on_unit: called with the number of units done, and the last of them; first with those in the file, and None.
    """
    by_key: dict[Hashable, Unit] = {unit.key: unit for unit in units}
    there = run_missing(
        path,
        [Task(unit.key, (unit, folder), unit.runs) for unit in units],
        _whole_unit,
        lambda record: (record["experiment"], record["dataset"], record["tuner"], record["repeat"]),
        jobs=jobs,
        on_task=lambda done, key: on_unit(done, by_key.get(key)),
    )
    return [record for unit in units for record in there[unit.key][: unit.runs]]


def _whole_unit(unit: Unit, folder: str | None) -> list[Record]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # units share the cores
        return list(run_unit(unit, folder))


def run_unit(unit: Unit, folder: str | None = None) -> Iterator[Record]:
    """The runs of one unit, as they end.

    A repeat has its own split, dropout masks, first weights and noise of each run, the same for all tuners: tuners
    differ in what they ask for after the first run.
    """
    data, masks_seed, first, own, *noise = repeat_seeds(unit.dataset, unit.repeat, 4 + unit.runs)
    split = fresh_split(unit.dataset, np.random.default_rng(data), folder)
    how = unit.setting or Setting(unit.tuner)
    masks = None
    if how.tuner in READ_TERMS:
        masks = draw_masks(split, np.random.default_rng(masks_seed), draws=how.draws)
    box = appendix_box(len(split.train_y) if how.means else 1.0)
    firsts = {
        "draw": RandomSearch(box, seed=as_seed(first)).ask(),
        "middle": box.as_dict(center(box)),
        "lower": box.as_dict(box.lower),
    }
    tuner = make_tuner(how.tuner, box, as_seed(own), firsts[how.first], **dict(how.options))
    epochs = how.epochs or (EPOCHS_ON_DIGITS if unit.dataset == DIGITS else EPOCHS)
    params: Array | None = None
    for run in range(unit.runs):
        began = time.perf_counter()
        weights = tuner.ask()
        record = {"experiment": unit.experiment, "dataset": unit.dataset, "tuner": unit.tuner, "repeat": unit.repeat}
        record |= {"run": run, "weights": {n: float(f"{w:.6g}") for n, w in weights.items()}}
        try:
            start = params if how.warm else None
            params = train(split, weights, np.random.default_rng(noise[run]), epochs=epochs, start=start)
        except RunFailed as reason:
            tuner.tell(weights, failed=str(reason))
            record |= dict.fromkeys(("validation_loss", "validation_error", "test_loss", "test_error"))
            yield record | {"seconds": round(time.perf_counter() - began, 3), "failed": str(reason)}
            continue
        tuner.tell(weights, observe_error(params, split) if masks is None else observe(params, split, masks))
        yield record | evaluated(params, split) | {"seconds": round(time.perf_counter() - began, 3)}


def repeat_seeds(dataset: str, repeat: int, n: int) -> list[np.random.SeedSequence]:
    """The seeds of one repeat, the same in every experiment; the first is that of its split."""
    return np.random.SeedSequence([zlib.crc32(dataset.encode()), repeat]).spawn(n)


def evaluated(params: Array, split: Split) -> Record:
    """Mean log loss and error rate on validation and test examples."""
    validation = loss_and_error(params, split.validation_x, split.validation_y)
    test = loss_and_error(params, split.test_x, split.test_y)
    names = ("validation_loss", "validation_error", "test_loss", "test_error")
    return {name: round(value, 6) for name, value in zip(names, (*validation, *test), strict=True)}


def loss_and_error(params: Array, x: Array, y: Labels) -> tuple[float, float]:
    """Mean log loss, and share of wrong labels."""
    log_p = log_probabilities(params, x)
    return -float(log_p[np.arange(len(y)), y].mean()), float((log_p.argmax(axis=1) != y).mean())


def as_seed(seeds: np.random.SeedSequence) -> int:
    """A whole number for what takes no sequence of seeds."""
    return int(seeds.generate_state(1)[0])
