"""Tables and the picture of the example of auxiliary tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from common import Record, markdown
from task_data import TASKS
from task_methods import NAMES
from task_options import CANDIDATES, CHOOSING, CHOSEN, DEFAULT, EXPERT, MAIN_ONLY, METHODS, OURS, RANDOM, TUNED

from tuneloss.paper.statistics import Interval, interval

COLORS = {DEFAULT: "#0072B2", TUNED: "#D55E00", EXPERT: "#009E73", RANDOM: "black"}
TASK_COLORS = dict(zip(NAMES, ("black", "#0072B2", "#56B4E9", "#009E73", "0.6", "#D55E00"), strict=True))


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


def alone_table(records: Sequence[Record]) -> str:
    """Return the table of what each task does beside the main task, both with weight 1, without the other tasks."""
    sets = list(dict.fromkeys(r["data"] for r in records))
    base = {d: by_seed(records, d, MAIN_ONLY) for d in sets}
    rows = [[t, *(points(change(by_seed(records, d, f"main + {t}"), base[d])) for d in sets)] for t in TASKS]
    return markdown(["task", *(f"{d}, against main only" for d in sets)], rows)


def choice_table(records: Sequence[Record]) -> str:
    """Return the table from which options are chosen: changes from the main task alone, by data set and on average.

    The last column is the change from the default options of OnlineTuner, paired by data set and seed.
    """
    base = {d: by_seed(records, d, MAIN_ONLY) for d in CHOOSING}
    default = {d: by_seed(records, d, DEFAULT) for d in CHOOSING}
    rows = []
    for family, options in CANDIDATES.items():
        for option in options:
            runs = {d: by_seed(records, d, family, option) for d in CHOOSING}
            cells = [change(runs[d], base[d]) for d in CHOOSING]
            mean = f"{100 * np.mean([cell.mean for cell in cells]):.1f}"
            name = f"**{option}**" if CHOSEN[family] == option else option
            minus = interval([mean_change(runs, default, seed) for seed in runs[CHOOSING[0]]])
            rows.append([family, name, mean, *(points(cell) for cell in cells), points(minus)])
    return markdown(["method", "option", "mean", *CHOOSING, f"minus {DEFAULT}"], rows)


def mean_change(runs: Mapping[str, Mapping[int, Record]], base: Mapping[str, Mapping[int, Record]], seed: int) -> float:
    """Return the mean over data sets of log(test loss / test loss of the base), for one seed."""
    return float(np.mean([math.log(r[seed]["test_loss"] / base[d][seed]["test_loss"]) for d, r in runs.items()]))


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
        axes.set_xlabel("100 log(test loss / that of the main task alone); left is better")
        axes.invert_yaxis()
    runs = list(by_seed(records, sets[0], TUNED).values())
    left, right = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    for name, color in TASK_COLORS.items():
        if name != "main":
            weights = np.array([r["course"][name] for r in runs])
            left.plot(np.arange(1, weights.shape[1] + 1), weights.mean(axis=0), color=color, label=name)
        losses = np.array([r["task_losses"][name] for r in runs])
        right.plot(np.array(runs[0]["steps"]), losses.mean(axis=0) / losses[:, 0].mean(), color=color, label=name)
    left.set(title=f"weights: {TUNED}, {sets[0]}", xlabel="epoch")
    right.set(title="losses of the tasks in the same runs, relative to the first", xlabel="training step")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=len(NAMES))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
