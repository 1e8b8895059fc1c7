"""Learn how much of each text domain a small GPT should read, for a target that is none of them.

python examples/data_mixture.py            small: one seed and few steps, only to see that it works
python examples/data_mixture.py --full     5 seeds, into docs/

The eight training domains are prose, code, tables and lists that come with Python, numpy, scikit-learn and PyTorch. The
first bytes of each are used, as many as `byte_models.SOURCES` says. So other versions of these packages change the
numbers only a little. A seed sets the model, the order of the data, and the target's chunks for validation and test.

The step sizes of DoGE and DGA and the options of tuneloss were chosen on the targets "Cython" and "mail" with the seeds
100 and 101, in about 70 runs. The targets and seeds that are reported were not looked at before. With --full, a table
of its own shows the targets of the choice.

Each run has the same budget: as many training steps as "uniform" takes, where an observation counts as its forwards and
backwards. Only "uniform, equal steps" stops as early as the methods that observe while they train. The best random
mixture by validation log loss takes the budget of all that were tried.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from byte_models import GPT, SOURCES, Windows, held_out, log_loss, row_losses, size, text
from common import Record, arguments, run_missing
from domain_weights import DGA, DoGE
from mixture_results import (
    BEFORE,
    DGA_ONLINE,
    DOGE_HELD,
    EARLY,
    HELD,
    LARGE,
    NATURAL,
    RANDOM,
    SHARED,
    SMALL,
    UNIFORM,
    WHILE,
    draw_figure,
    rivals_table,
    table,
    weights_table,
)
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from tuneloss import Box
from tuneloss.torch import LinearLoss, OnlineTuner, PerSource, observe
from tuneloss.torch.observing import ObserveOptions
from tuneloss.torch.sources import MixtureLoader, SourceLoader, TargetMix

NAMES = tuple(SOURCES)
REPORT = {"data sheets": ("data sheets",), "C and unittest": ("C", "unittest")}  # the mean of several is the target
CHOOSE = {"Cython": ("Cython",), "mail": ("mail",)}  # with CHOOSE_SEEDS, options were chosen
CHOOSE_SEEDS = (100, 101)
TARGETS = REPORT | CHOOSE
RATES = {SMALL: 6e-3, LARGE: 3e-3}  # learning rates
ROWS = 16  # of a training batch
BATCHES, VALIDATION = 4, 32  # training batches and validation rows of an observation
COST = 0.1  # of observing while training, in parts of training
LEARNING_COST = 1.0  # the same in a short run that only learns weights
FLOOR = 0.05  # the least weight of a domain in a mixture that tuneloss learned in such a run
MEASURED = 256  # windows of a target for test, and for the choice among random mixtures

RIVALS: Mapping[str, Callable[[], DoGE | DGA]] = {
    DGA_ONLINE: lambda: DGA(len(NAMES), step_size=3.0, keep=0.5),
    DOGE_HELD: lambda: DoGE(len(NAMES), step_size=3.0),
}


# Data and training


def sources() -> dict[str, Windows]:
    """Return the examples of each training domain."""
    return {name: Windows(text(name)[None]) for name in NAMES}


def target_batches(target: str, seed: int) -> Any:
    """Return a loader that draws other windows of the target's validation text each time; of two domains a mix."""
    parts, n = {}, VALIDATION // len(TARGETS[target])
    for name in TARGETS[target]:
        windows = held_out(name, seed)[0]
        parts[name] = DataLoader(windows, ROWS, sampler=RandomSampler(windows, num_samples=n))
    return TargetMix(parts) if len(parts) > 1 else parts[target]


def mixture_loss(weights: Mapping[str, float] | None = None) -> LinearLoss:
    """Make the loss: the weight of a domain is the probability to draw from it."""
    return LinearLoss([PerSource(NAMES, row_losses, sampled=True)], Box.simplex(NAMES), weights=weights)


def make_model(width: int, seed: int) -> GPT:
    """Make a model with the start of a seed."""
    torch.manual_seed(seed)
    return GPT(width)


def train(
    model: GPT, loss: LinearLoss, seed: int, steps: int, after_step: Callable[[], object] = tuple
) -> tuple[float, float]:
    """Train on batches drawn with the weights of the loss, by Adam with a warm-up and a cosine decay.

    Returns
    -------
    (float, float)
        Processor time of training and of `after_step`, in seconds.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=RATES[model.width], betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 20) * (0.525 + 0.475 * math.cos(math.pi * step / steps))
    )
    start, learning = time.process_time(), 0.0
    for batch in islice(MixtureLoader(sources(), loss, ROWS, seed=seed), steps):
        optimizer.zero_grad()
        loss(model, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        began = time.process_time()
        after_step()
        learning += time.process_time() - began
    return time.process_time() - start - learning, learning


def measure(model: GPT, seed: int) -> Record:
    """Compute the log loss on the validation and the test text of all targets."""
    losses: Record = {"validation": {}, "test": {}}
    for target, domains in TARGETS.items():
        parts = zip(*(held_out(domain, seed) for domain in domains), strict=True)
        for part, windows in zip(losses, parts, strict=True):
            with torch.no_grad():
                values = [float(log_loss(model, w[:MEASURED])) for w in windows]
            losses[part][target] = round(float(np.mean(values)), 5)
    return losses


# Learning weights


class Rival:
    """A method of the field, used like an `OnlineTuner`: it observes the same, at the same steps.

    Parameters
    ----------
    rule : DoGE or DGA
    model, loss, domains, target
        As for `OnlineTuner`: what is trained, and the batches of training and validation.
    seed : int
        The seed of the batches of the first observation.
    cost : float
        The cost of observing, in parts of the cost of training.
    """

    def __init__(
        self, rule: DoGE | DGA, model: GPT, loss: LinearLoss, domains: Any, target: Any, seed: int, cost: float
    ) -> None:
        self.rule, self.model, self.loss, self.domains, self.target = rule, model, loss, domains, target
        self.seed, self.every, self.calls = seed, math.ceil((BATCHES + VALIDATION / ROWS) / cost - 1e-9), 0

    def step(self) -> None:
        """Observe and set the weights, if it is due."""
        if self.calls % self.every == 0:
            options: Any = {"batches": BATCHES, "seed": self.seed + self.calls}
            seen = observe(self.model, self.loss, log_loss, self.domains, self.target, **options)
            self.loss.set_weights(dict(zip(NAMES, self.rule.update(seen).tolist(), strict=True)))
        self.calls += 1

    def hold(self) -> dict[str, float]:
        """Return the mean of the weights."""
        return dict(zip(NAMES, self.rule.mean().tolist(), strict=True))


def make_tuner(method: str, model: GPT, loss: LinearLoss, target: str, seed: int, cost: float) -> OnlineTuner | Rival:
    """Make what learns the weights in a run."""
    # 2 rows of each of 8 domains are as many as a training batch has, since `cost` counts in batches of this loader.
    domains, validation = SourceLoader(sources(), ROWS // len(NAMES), seed=seed), target_batches(target, seed)
    if method in RIVALS:
        return Rival(RIVALS[method](), model, loss, domains, validation, 1000 * seed, cost)
    look = ObserveOptions(batches=BATCHES, seed=1000 * seed)
    return OnlineTuner(model, loss, log_loss, domains, validation, cost=cost, observe=look, keep_best=False)


# All runs


@dataclass(frozen=True)
class Plan:
    """How large the comparison is.

    Parameters
    ----------
    budgets : mapping of int to int
        The budget of a run, in training steps, by the width of its model.
    learning : int
        The steps of a run that only learns weights.
    draws : int
        The number of random mixtures.
    """

    budgets: Mapping[int, int]
    learning: int
    draws: int


FULL, QUICK = Plan({SMALL: 440, LARGE: 440}, 30, 8), Plan({SMALL: 12, LARGE: 8}, 3, 2)
COMPARED = {SMALL: (*SHARED, *WHILE, *BEFORE), LARGE: (EARLY, UNIFORM, NATURAL, *WHILE, *BEFORE)}
COMPARED_TO_CHOOSE = {SMALL: (UNIFORM, *WHILE, HELD)}


def keys(
    seeds: Sequence[int], plan: Plan, targets: Sequence[str], compared: Mapping[int, Sequence[str]] = COMPARED
) -> list[Record]:
    """Return the key of each run; `compared` are the methods by the width of the model."""
    runs = [(seed, width, method) for width in compared for seed in seeds for method in compared[width]]
    return [
        {"method": method, "target": target, "draw": draw}
        | {"seed": seed, "width": width, "budget": plan.budgets[width], "learning": plan.learning}
        for seed, width, method in runs
        for target in ([None] if method in SHARED else targets)
        for draw in (range(plan.draws) if method == RANDOM else [None])
    ]


def run(key: Record) -> Record:
    """Make the run of a key."""
    method, target, seed, width, steps = (key[name] for name in ("method", "target", "seed", "width", "budget"))
    took = np.zeros(2)
    loss = mixture_loss(fixed_weights(key))
    if method in BEFORE:  # a small model learns weights, and is thrown away
        small = make_model(SMALL, seed)
        tuner = make_tuner(method, small, loss, target, seed, LEARNING_COST)
        took += train(small, loss, seed, key["learning"], tuner.step)
        floor = FLOOR if method == HELD else 0.0
        loss = mixture_loss({n: floor + (1 - floor * len(NAMES)) * w for n, w in tuner.hold().items()})
        steps -= round(key["learning"] * (1 + LEARNING_COST) * size(small) / size(GPT(width)))
    elif method in (EARLY, *WHILE):
        steps = round(steps / (1 + COST))
    model = make_model(width, seed)
    step = make_tuner(method, model, loss, target, seed, COST).step if method in WHILE else tuple
    took += train(model, loss, seed, steps, step)
    weights = {name: round(weight, 4) for name, weight in loss.as_dict().items()}
    seconds = dict(zip(("training_seconds", "learning_seconds"), took.round(2).tolist(), strict=True))
    return {"steps": steps, "parameters": size(model), **measure(model, seed), "weights": weights, **seconds}


def fixed_weights(key: Record) -> dict[str, float]:
    """Return the weights with which a run begins."""
    parts = np.ones(len(NAMES))
    if key["method"] == NATURAL:
        parts = np.array([len(text(name)) for name in NAMES], dtype=float)
    elif key["method"] == RANDOM:  # uniform on the simplex
        parts = np.random.default_rng([key["seed"], key["draw"]]).exponential(size=len(NAMES))
    return dict(zip(NAMES, (parts / parts.sum()).tolist(), strict=True))


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the tables."""
    options = arguments(__doc__, "data_mixture", argv, without=("data", "epochs"))
    plan, targets, chosen_on = FULL if options.full else QUICK, tuple(REPORT), tuple(CHOOSE)
    wanted = keys(options.seeds, plan, targets)
    if options.full:
        wanted += keys(CHOOSE_SEEDS, plan, chosen_on, COMPARED_TO_CHOOSE)
    records = run_missing(options.results, wanted, run, options.jobs)
    reported, others = ([r for r in records if (r["seed"] in CHOOSE_SEEDS) == choose] for choose in (False, True))
    draw_figure(reported, targets, options.image)
    tables = [table(reported, targets), rivals_table(reported, targets), weights_table(reported, targets)]
    return "\n".join([*tables, table(others, chosen_on)] if others else tables)


if __name__ == "__main__":
    sys.stdout.write(main())
