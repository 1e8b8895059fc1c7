"""Weigh five auxiliary tasks of a main task with few labels, in one run, and compare with other ways to weigh them.

    main + sum over tasks of weight * loss of the task,   with weights in (0, 10)

python examples/auxiliary_tasks.py            small: digits, one seed, few epochs, only to see that it works
python examples/auxiliary_tasks.py --full     two data sets, 10 seeds, 20 random runs, into docs/
python examples/auxiliary_tasks.py --choose   how options were chosen: three other data sets, seeds 100 to 103

A trunk of two hidden layers has one head per task. The main task is classification with 3 to 10 labels per class. The
auxiliary tasks have all training rows. Three of them are useful: "coarse" and "odd" are groupings of the classes, and
"denoise" rebuilds the inputs from noisy ones. "random" is useless: its labels are drawn. "signs" is harmful: it asks
for the signs of four random projections of the inputs.

The split, written down before any option was chosen: every method's options (of OnlineTuner too: how often it steps,
how many batches it reads, its policy) are chosen by mean test loss on digits, nct_crc_he_3class and caltech101, with
seeds 100 to 103. What is reported is oxford_iiit_pet and tf_flowers with seeds 0 to 9, with all options fixed. The
policy's defaults come from the arena, whose choosing half does not contain these two data sets.

Every run is reported at its epoch of least validation loss; all methods share data, first parameters and batches.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from common import Record, arguments, markdown, run_missing
from task_data import DIGITS, TASKS, USEFUL, Examples, draw, main_loss
from task_methods import (
    MOST,
    NAMES,
    GradNorm,
    Hypergradient,
    Joined,
    LossRatios,
    Method,
    Online,
    Uncertainty,
    by_cosine,
    gated,
    torchjd,
)
from torch import nn
from torch.optim import Adam

from tuneloss.paper.statistics import Interval, interval

REPORTED, CHOOSING = ("oxford_iiit_pet", "tf_flowers"), (DIGITS, "nct_crc_he_3class", "caltech101")
CHOOSING_SEEDS = range(100, 104)
EPOCHS, BATCHES, LEARNING_RATE = 30, 20, 2e-3
MAIN_ONLY, EQUAL, EXPERT, RANDOM = "main only", "equal", "useful only", "best random run"
KENDALL, GRADNORM, DWA = "uncertainty (Kendall)", "GradNorm", "DWA"
UPGRAD, MGDA, COSINE = "UPGrad", "MGDA", "cosine gating"
HYPERGRADIENT, DEFAULT, TUNED = "one-step hypergradient", "OnlineTuner, default", "OnlineTuner, frequent steps"
OURS = (DEFAULT, TUNED)
COLORS = {DEFAULT: "#0072B2", TUNED: "#D55E00", EXPERT: "#009E73", RANDOM: "black"}
TASK_COLORS = dict(zip(NAMES, ("black", "#0072B2", "#56B4E9", "#009E73", "0.6", "#D55E00"), strict=True))

# What --choose chooses from. The first of each family is what its authors suggest, or our defaults.
CANDIDATES: dict[str, dict[str, Callable[..., Method]]] = {
    DEFAULT: {"default": Online},
    TUNED: {
        "every 10": partial(Online, every=10, observe={"batches": 8}),
        "every 5, 2 batches": partial(Online, every=5, observe={"batches": 2}),
        "cost 1, 2 batches": partial(Online, cost=1.0, observe={"batches": 2}),
        "cost 0.5, 1 batch": partial(Online, cost=0.5, observe={"batches": 1}),
        "cost 0.5": partial(Online, cost=0.5),
        "cost 0.2": partial(Online, cost=0.2),
        "once per epoch, all batches": partial(Online, observe={"batches": None}),
        "once per epoch, simplex": partial(Online, simplex=True),
        "every 10, simplex": partial(Online, simplex=True, every=10, observe={"batches": 8}),
    },
    HYPERGRADIENT: {f"rate {r}": partial(Hypergradient, rate=r, every=5) for r in (0.4, 0.05, 0.15, 1.0)},
    KENDALL: {f"rate {r}": partial(Uncertainty, rate=r) for r in (0.01, 0.002, 0.05)},
    GRADNORM: {f"alpha {a}, rate {r}": partial(GradNorm, alpha=a, rate=r) for a in (1.5, 0.5) for r in (0.025, 0.1)},
    DWA: {f"temperature {t}": partial(LossRatios, temperature=t) for t in (2.0, 0.5)},
    UPGRAD: {"as it is": partial(Joined, join=torchjd("UPGrad"))},
    MGDA: {"as it is": partial(Joined, join=torchjd("MGDA"))},
    COSINE: {"gate": partial(Joined, join=gated), "times cosine": partial(Joined, join=by_cosine)},
}

# The options of each family with the least mean test loss over the choosing problems: see --choose.
CHOSEN = {
    KENDALL: "rate 0.01",
    GRADNORM: "alpha 1.5, rate 0.025",
    DWA: "temperature 2.0",
    UPGRAD: "as it is",
    MGDA: "as it is",
    COSINE: "gate",
    HYPERGRADIENT: "rate 0.4",
    DEFAULT: "default",
    TUNED: "every 10",
}
FIXED: dict[str, dict[str, float]] = {
    MAIN_ONLY: {"main": 1.0},
    EQUAL: dict.fromkeys(NAMES, 1.0),
    EXPERT: dict.fromkeys(("main", *USEFUL), 1.0),
} | {f"main + {task}": {"main": 1.0, task: 1.0} for task in TASKS}
METHODS = (MAIN_ONLY, EQUAL, *CHOSEN, RANDOM, EXPERT)


def key(data: str, method: str, option: str, seed: int, epochs: int) -> Record:
    """Return the key of a run."""
    return {"data": data, "method": method, "option": option, "seed": seed, "epochs": epochs}


def keys(data: Sequence[str], seeds: Sequence[int], epochs: int, draws: int) -> list[Record]:
    """Return the keys of all runs that are reported: every method, each task alone, and the random runs."""
    methods = [(m, "") for m in FIXED] + [(m, CHOSEN[m]) for m in CANDIDATES if m in CHOSEN]
    methods += [(RANDOM, str(draw)) for draw in range(draws)]
    return [key(name, *method, seed, epochs) for name in data for seed in seeds for method in methods]


def candidates(epochs: int) -> list[Record]:
    """Return the keys of all runs from which options are chosen."""
    methods = [(MAIN_ONLY, "")] + [(family, option) for family, options in CANDIDATES.items() for option in options]
    return [key(name, *method, seed, epochs) for seed in CHOOSING_SEEDS for name in CHOOSING for method in methods]


def random_weights(seed: int, number: int) -> dict[str, float]:
    """Draw the weights of a random run: each auxiliary weight is log-uniform in (0.01, 10)."""
    rng = np.random.default_rng([seed, number])
    return {"main": 1.0} | {name: float(MOST * 10.0 ** rng.uniform(-3, 0)) for name in TASKS}


def maker(key: Record) -> Callable[..., Method]:
    """Return what makes the method of a run."""
    if key["method"] == RANDOM:
        return partial(Method, weights=random_weights(key["seed"], int(key["option"])))
    if key["method"] in FIXED:
        return partial(Method, weights=FIXED[key["method"]])
    return CANDIDATES[key["method"]][key["option"]]


def run(key: Record, folder: str | None) -> Record:
    """Train once; record losses and weights at the epoch of least validation loss, and the course of the weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")  # the best epoch counts in any case
        return train(key, folder)


def train(key: Record, folder: str | None) -> Record:
    """Do what `run` does."""
    problem = draw(key["data"], folder, key["seed"], BATCHES)
    torch.manual_seed(key["seed"])
    optimizer = Adam(problem.model.parameters(), lr=LEARNING_RATE, fused=True)
    method = maker(key)(problem, optimizer, key["seed"])
    best: Record = {"validation_loss": math.inf}
    course: dict[str, list[float]] = {name: [] for name in NAMES}
    step, seconds, start = 0, 0.0, time.process_time()
    for epoch in range(key["epochs"]):
        for batch in problem.train:
            optimizer.zero_grad()
            method.backward(batch)
            optimizer.step()
            step += 1
            method.after_step(step)
        method.after_epoch()
        loss, _ = measure(problem.model, problem.validation)
        seconds += time.process_time() - start
        if loss < best["validation_loss"]:
            test_loss, test_error = measure(problem.model, problem.test)
            best = {"validation_loss": loss, "test_loss": test_loss, "test_error": test_error, "best_epoch": epoch + 1}
            best["weights"] = {name: rounded(w) for name, w in method.weights().items()}
        for name, w in method.weights().items():
            course[name].append(rounded(w))
        start = time.process_time()
    curves = {"course": course, **learning_curves(method)} if isinstance(method, Online) else {}
    return {**best, "cpu_seconds": round(seconds, 3), **curves}


def learning_curves(method: Online) -> Record:
    """Return the steps at which the tuner observed, and the loss of each task at them, from its history."""
    history = method.tuner.history
    losses = {name: [rounded(r.features[name]) for r in history] for name in NAMES}
    return {"steps": [r.step if method.within_epochs else r.step * BATCHES for r in history], "task_losses": losses}


def rounded(number: float) -> float:
    """Round to three digits, for records."""
    return float(f"{number:.3g}")


@torch.no_grad()
def measure(model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Compute the mean log loss of the main task, and the share of wrong labels."""
    wrong = model(examples[0], "main")[0].argmax(dim=1) != examples[1]
    return round(float(main_loss(model, examples)), 6), round(float(wrong.double().mean()), 6)


# Tables


def by_seed(records: Sequence[Record], data: str, method: str, option: str | None = None) -> dict[int, Record]:
    """Return the record of a method by seed; of random runs that of least validation loss, with the time of all."""
    chosen: dict[int, Record] = {}
    for r in records:
        if r["data"] == data and r["method"] == method and option in (None, r["option"]):
            old = chosen.get(r["seed"])
            best = r if old is None or r["validation_loss"] < old["validation_loss"] else old
            chosen[r["seed"]] = {**best, "cpu_seconds": r["cpu_seconds"] + (old["cpu_seconds"] if old else 0.0)}
    return chosen


def change(runs: Mapping[int, Record], base: Mapping[int, Record]) -> Interval:
    """Return the mean over seeds of log(test loss / test loss of the base), with its interval."""
    return interval([math.log(r["test_loss"] / base[seed]["test_loss"]) for seed, r in runs.items()])


def points(change: Interval) -> str:
    """Format a change of a logarithm in hundredths: -10 is about 10% lower."""
    return change.text(1, factor=100)


def table(records: Sequence[Record], methods: Sequence[str] = METHODS) -> str:
    """Return the table: test loss, its change from the main task alone, and that of both runs of the tuner."""
    rows = []
    for data in dict.fromkeys(r["data"] for r in records):
        base, ours = by_seed(records, data, MAIN_ONLY), {m: by_seed(records, data, m) for m in OURS}
        for method in methods:
            runs = by_seed(records, data, method)
            loss = interval([r["test_loss"] for r in runs.values()]).text(3)
            error = interval([r["test_error"] for r in runs.values()]).percent()
            minus = ["" if m == method else points(change(ours[m], runs)) for m in OURS]
            seconds = interval([r["cpu_seconds"] for r in runs.values()]).mean
            rows.append([data, method, loss, error, points(change(runs, base)), *minus, f"{seconds:.1f}"])
    header = ["data", "method", "test log loss", "test error", "against main only", *(f"{m}, minus this" for m in OURS)]
    return markdown([*header, "processor seconds"], rows)


def choice_table(records: Sequence[Record]) -> str:
    """Return the table from which options are chosen: changes from the main task alone, by data set and on average."""
    rows = []
    for family, options in CANDIDATES.items():
        for option in options:
            cells = [change(by_seed(records, d, family, option), by_seed(records, d, MAIN_ONLY)) for d in CHOOSING]
            mean = float(np.mean([cell.mean for cell in cells]))
            name = f"**{option}**" if CHOSEN.get(family) == option else option
            rows.append([family, name, f"{100 * mean:.1f}", *(points(cell) for cell in cells)])
    return markdown(["method", "option", "mean", *CHOOSING], rows)


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw test loss by method against the main task alone, the learned weights, and the losses of tasks."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(r["data"] for r in records))
    figure = Figure(figsize=(12, 4.2 + 3.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.3, 1))
    for column, data in enumerate(sets[:2]):
        axes, base = figure.add_subplot(grid[0, column]), by_seed(records, data, MAIN_ONLY)
        shown = METHODS[1:]
        for place, method in enumerate(shown):
            found = change(by_seed(records, data, method), base)
            color = COLORS.get(method, "0.55")
            half = np.nan_to_num(100 * found.half)
            axes.errorbar(100 * found.mean, place, xerr=half, fmt="o", color=color, capsize=3)
        axes.axvline(0, color="0.4", lw=1)
        axes.set(title=data, yticks=range(len(shown)), yticklabels=shown if column == 0 else [])
        axes.set_xlabel("test loss against the main task alone: 100 log of the ratio (left is better)")
        axes.invert_yaxis()
    runs = list(by_seed(records, sets[0], TUNED).values())
    left, right = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    for name, color in TASK_COLORS.items():
        if name != "main":
            weights = np.array([r["course"][name] for r in runs])
            left.plot(np.arange(1, weights.shape[1] + 1), weights.mean(axis=0), color=color, label=name)
        losses = np.array([r["task_losses"][name] for r in runs])
        right.plot(
            np.array(runs[0]["steps"]) / BATCHES, losses.mean(axis=0) / losses[:, 0].mean(), color=color, label=name
        )
    left.set(title=f"weights, {TUNED}, {sets[0]}", xlabel="epoch", yscale="symlog")
    right.set(title="losses of the tasks in the same runs (first = 1)", xlabel="epoch")
    left.legend(frameon=False, fontsize="small")
    right.legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the tables."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--choose", action="store_true")
    which, rest = first.parse_known_args(argv)
    options = arguments(__doc__, "auxiliary_tasks", rest, full_seeds=10)
    work = partial(run, folder=options.data)
    if which.choose:
        path = options.out / "results" / "auxiliary_tasks_choice.jsonl"
        return choice_table(run_missing(path, candidates(options.epochs or EPOCHS), work, options.jobs))
    sets = REPORTED if options.full and options.data else (DIGITS,)
    epochs, draws = options.epochs or (EPOCHS if options.full else 4), 20 if options.full else 2
    records = run_missing(options.results, keys(sets, options.seeds, epochs, draws), work, options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
