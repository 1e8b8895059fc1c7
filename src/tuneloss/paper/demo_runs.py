"""The training runs of the demo: softmax regression on 100 digits, tuned between runs or inside one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tuneloss import Box
from tuneloss.paper.datasets import Split, digits
from tuneloss.paper.results import Record
from tuneloss.paper.terms import appendix_box, draw_masks, observe
from tuneloss.paper.trainer import AdaGrad
from tuneloss.paper.tuner_runs import Seeds, TunerRuns, evaluate
from tuneloss.tuning.online import OnlineLearner, OnlinePolicy

N_TRAIN = 100  # training examples: so few that regularization matters
DRAWS = 32  # draws of dropout masks per observation


@dataclass(frozen=True)
class DemoRuns(TunerRuns):
    """One repeat of a method that tunes between runs.

    Parameters
    ----------
    seed : int, default 0
        The seed of the demo, from which all seeds of the repeat are derived.
    pixel_unit : float, default 2.0
        See `tuneloss.paper.datasets.digits`.
    """

    seed: int = 0
    pixel_unit: float = 2.0

    def seeds(self) -> Seeds:
        """Return the seeds of this repeat.

        Random search has the seed of the first weights, so that both methods start with the same weights.
        """
        seeds = np.random.SeedSequence(self.seed).spawn(self.repeat + 1)[self.repeat]
        split, masks, first, tuner, training = seeds.spawn(5)
        return Seeds(split, masks, first, first if self.tuner == "random" else tuner, training.spawn(self.runs))

    def split(self, seeds: Seeds) -> Split:
        """Draw a split of the digits."""
        return digits(np.random.default_rng(seeds.split), n_train=N_TRAIN, pixel_unit=self.pixel_unit)


@dataclass(frozen=True)
class OneRun(DemoRuns):
    """One repeat of a single training run, with one record per epoch.

    The tuner "online" learns new weights after each epoch, with the options that `OnlineTuner` has by default. Any
    other name stands for the same run without a tuner: all weights but that of the log loss stay 0.

    The field `runs` is the number of epochs.
    """

    def run(self) -> Iterator[Record]:
        """Train epoch after epoch, and yield the record of each."""
        seeds, box = self.seeds(), box_from_zero()
        split = self.split(seeds)
        masks = draw_masks(split, np.random.default_rng(seeds.masks), draws=DRAWS)
        trainer = AdaGrad(split, np.random.default_rng(seeds.noise[0]))
        learner, weights = OnlineLearner(box, OnlinePolicy()), box.lower
        for epoch in range(self.runs):
            began = time.perf_counter()
            trainer.epoch(weights)
            params = trainer.params.T.astype(float)
            named = {name: float(f"{weight:.6g}") for name, weight in box.as_dict(weights).items()}
            record = {**self.key, "run": epoch, "weights": named}
            if self.tuner == "online":
                weights = learner.step(observe(params, split, masks), weights).weights
            yield record | evaluate(params, split) | {"seconds": round(time.perf_counter() - began, 3)}


def box_from_zero() -> Box:
    """Return the box of appendix B with all lower bounds at 0: inside one run, a term may be left out."""
    box = appendix_box()
    ranges = zip(box.names, box.upper.tolist(), box.pinned, strict=True)
    return Box.from_dict({name: upper if pinned else (0.0, upper) for name, upper, pinned in ranges})
