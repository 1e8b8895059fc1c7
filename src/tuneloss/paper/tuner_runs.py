"""Full training runs whose weights a tuner chooses, one run after another (section 4.2 of the paper)."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tuneloss import Box
from tuneloss.baselines import RandomSearch
from tuneloss.errors import RunFailed
from tuneloss.paper.datasets import DIGITS, LARGE, SMALL, Labels, Split, fresh_split
from tuneloss.paper.hypergradient import hypergradient
from tuneloss.paper.results import Record
from tuneloss.paper.terms import Masks, appendix_box, draw_masks, log_probabilities, observe, observe_error
from tuneloss.paper.trainer import train
from tuneloss.paper.tuners import READ_HYPERGRADIENTS, READ_TERMS, Tuner, make_tuner
from tuneloss.tuning.sampling import center
from tuneloss.types import Array

EPOCHS, EPOCHS_ON_DIGITS = 30, 100  # per run; the paper does not state a number, and digits have few examples
DRAWS = 8  # draws of dropout masks per observation
REPEATS = dict.fromkeys(SMALL, 100) | dict.fromkeys(LARGE, 20)  # fewer on large data sets, which take long
OTHER_REPEATS = 10  # on any other data set
MEASURES = ("validation_loss", "validation_error", "test_loss", "test_error")  # fields of a record


@dataclass(frozen=True)
class Setting:
    """How a unit trains its models.

    Parameters
    ----------
    tuner : str
        Name of the tuner, one of `TUNERS`.
    options : tuple of (str, object) pairs
        Options of the tuner.
    epochs : int, optional
        Epochs per run; by default `EPOCHS`, or `EPOCHS_ON_DIGITS` on digits.
    first : {"draw", "middle", "lower", "tuner"}
        The first weights: a log-uniform draw that all tuners share, the middle of the box, its lower end, or the
        first proposal of the tuner.
    warm : bool, default False
        Whether a run starts from the params of the run before it, instead of zeros.
    means : bool, default False
        Whether the ranges of appendix B are taken as ranges for means over examples, instead of sums.
    draws : int
        Number of dropout masks per observation, for a tuner that uses more than the error.
    """

    tuner: str
    options: tuple[tuple[str, Any], ...] = ()
    epochs: int | None = None
    first: Literal["draw", "middle", "lower", "tuner"] = "draw"
    warm: bool = False
    means: bool = False
    draws: int = DRAWS


@dataclass(frozen=True, eq=False)
class Seeds:
    """The seeds of one repeat.

    Parameters
    ----------
    split, masks, first, tuner : numpy.random.SeedSequence
        The seeds of its split, dropout masks, first weights and tuner.
    noise : sequence of numpy.random.SeedSequence
        One seed per run, for the noise of training.
    """

    split: np.random.SeedSequence
    masks: np.random.SeedSequence
    first: np.random.SeedSequence
    tuner: np.random.SeedSequence
    noise: Sequence[np.random.SeedSequence]


@dataclass(frozen=True)
class TunerRuns:
    """One repeat of one tuner on one data set: a `Unit` with one record per run.

    All tuners of a repeat share the split, the dropout masks, the first weights and the noise of each run. They differ
    in the weights that they propose after the first run.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    dataset : str
        Name of the data set.
    tuner : str
        Name under which the records are kept: that of the tuner, or of a variant.
    repeat : int
        Number of the repeat, from 0.
    runs : int
        Number of training runs.
    setting : Setting, optional
        How models are trained; by default with the tuner of that name.
    """

    experiment: str
    dataset: str
    tuner: str
    repeat: int
    runs: int
    setting: Setting | None = None

    @property
    def key(self) -> Record:
        """The fields that identify its records."""
        return {"experiment": self.experiment, "dataset": self.dataset, "tuner": self.tuner, "repeat": self.repeat}

    @property
    def n_records(self) -> int:
        """The number of records: one per run."""
        return self.runs

    def __str__(self) -> str:
        return f"{self.dataset}, {self.tuner}, repeat {self.repeat}"

    def seeds(self) -> Seeds:
        """Return the seeds of this repeat, the same in every experiment."""
        split, masks, first, tuner, *noise = repeat_seeds(self.dataset, self.repeat, 4 + self.runs)
        return Seeds(split, masks, first, tuner, noise)

    def split(self, seeds: Seeds) -> Split:
        """Draw the split of this repeat."""
        return fresh_split(self.dataset, np.random.default_rng(seeds.split))

    def run(self) -> Iterator[Record]:
        """Train run after run, and yield the record of each."""
        setting, seeds = self.setting or Setting(self.tuner), self.seeds()
        split = self.split(seeds)
        masks = None
        if setting.tuner in READ_TERMS + READ_HYPERGRADIENTS:
            masks = draw_masks(split, np.random.default_rng(seeds.masks), draws=setting.draws)
        tuner = _make_tuner(setting, appendix_box(len(split.train_y) if setting.means else 1.0), seeds)
        epochs = setting.epochs or (EPOCHS_ON_DIGITS if self.dataset == DIGITS else EPOCHS)
        params: Array | None = None
        for run, noise in enumerate(seeds.noise):
            began = time.perf_counter()
            weights = tuner.ask()
            record = {**self.key, "run": run, "weights": {n: float(f"{w:.6g}") for n, w in weights.items()}}
            try:
                start = params if setting.warm else None
                params = train(split, weights, np.random.default_rng(noise), epochs=epochs, start=start)
            except RunFailed as reason:
                tuner.tell(weights, failed=str(reason))
                record |= dict.fromkeys(MEASURES)
                seconds = round(time.perf_counter() - began, 3)
                yield record | {"seconds": seconds, "failed": str(reason)}
                continue
            tuner.tell(weights, **_outcome(setting.tuner, params, split, masks, weights))
            record |= evaluate(params, split)
            yield record | {"seconds": round(time.perf_counter() - began, 3)}


def _outcome(
    tuner: str, params: Array, split: Split, masks: Masks | None, weights: Mapping[str, float]
) -> dict[str, Any]:
    """Return what a tuner is told of a model, beside its weights."""
    if masks is None:
        return {"observation": observe_error(params, split)}
    if tuner in READ_HYPERGRADIENTS:
        derivative = hypergradient(params, split, masks, weights)
        return {"observation": observe_error(params, split), "derivative": derivative}
    return {"observation": observe(params, split, masks)}


def _make_tuner(setting: Setting, box: Box, seeds: Seeds) -> Tuner:
    """Build the tuner of a setting, with its first weights."""
    firsts = {
        "draw": RandomSearch(box, seed=as_seed(seeds.first)).ask(),
        "middle": box.as_dict(center(box)),
        "lower": box.as_dict(box.lower),
        "tuner": None,
    }
    return make_tuner(setting.tuner, box, as_seed(seeds.tuner), firsts[setting.first], **dict(setting.options))


def repeat_seeds(dataset: str, repeat: int, n: int) -> list[np.random.SeedSequence]:
    """Return n seeds of one repeat, the same in every experiment; the first is that of its split."""
    return np.random.SeedSequence([zlib.crc32(dataset.encode()), repeat]).spawn(n)


def evaluate(params: Array, split: Split) -> Record:
    """Compute mean log loss and error rate on validation and test examples: the fields in `MEASURES`."""
    validation = loss_and_error(params, split.validation_x, split.validation_y)
    test = loss_and_error(params, split.test_x, split.test_y)
    return {name: round(value, 6) for name, value in zip(MEASURES, (*validation, *test), strict=True)}


def loss_and_error(params: Array, x: Array, y: Labels) -> tuple[float, float]:
    """Compute the mean log loss and the share of wrong labels."""
    log_p = log_probabilities(params, x)
    return -float(log_p[np.arange(len(y)), y].mean()), float((log_p.argmax(axis=1) != y).mean())


def as_seed(seeds: np.random.SeedSequence) -> int:
    """Return an integer seed, for code that takes no `SeedSequence`."""
    return int(seeds.generate_state(1)[0])


def each_repeat(datasets: Sequence[str], repeats: int | None) -> Iterator[tuple[int, str]]:
    """Yield each repeat with each data set, repeat by repeat, so that an interrupted experiment compares all tuners.

    By default, there are 100 repeats on the small sets, 20 on the large ones and 10 on any other.
    """
    numbers = {name: repeats or REPEATS.get(name, OTHER_REPEATS) for name in datasets}
    for repeat in range(max(numbers.values(), default=0)):
        yield from ((repeat, name) for name in datasets if repeat < numbers[name])
