"""What `data_mixture.py` compares, and its tables and picture.

A record is one run. It has the names of the method and of the target (None if the run is the same for all targets), the
width of the model, log loss by target, the weights in the end, and the seconds of training and of learning weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from byte_models import SOURCES
from common import Record, markdown

from tuneloss.paper.statistics import Interval, interval

NAMES = tuple(SOURCES)
SMALL, LARGE = 64, 128  # widths of models
EARLY, UNIFORM, NATURAL, RANDOM = "uniform, equal steps", "uniform", "natural proportions", "best random mixture"
DGA_ONLINE, ONLINE, DOGE_HELD, HELD = "DGA", "tuneloss", "DoGE, then held", "tuneloss, then held"
SHARED, WHILE, BEFORE = (EARLY, UNIFORM, NATURAL, RANDOM), (DGA_ONLINE, ONLINE), (DOGE_HELD, HELD)
METHODS = (*SHARED, *WHILE, *BEFORE)


def by_seed(records: Sequence[Record], method: str, target: str, width: int = SMALL) -> list[Record]:
    """Return one record per seed; of random mixtures the best on the target's validation text, with the time of all."""
    chosen = []
    for seed in sorted({r["seed"] for r in records}):
        runs = [r for r in records if (r["method"], r["seed"], r["width"]) == (method, seed, width)]
        runs = [r for r in runs if r["target"] in (None, target)]
        if runs:
            best = min(runs, key=lambda r: r["validation"][target])
            took = ("steps", "training_seconds", "learning_seconds")
            chosen.append({**best, **{name: sum(r[name] for r in runs) for name in took}})
    return chosen


def compared(
    records: Sequence[Record], method: str, other: str, target: str, width: int = SMALL
) -> tuple[Interval, Interval]:
    """Return the test log loss of a method, and by how much it is above that of another one with the same seeds."""
    ours, theirs = ({r["seed"]: r["test"][target] for r in by_seed(records, m, target, width)} for m in (method, other))
    both = sorted(ours.keys() & theirs.keys())
    return interval([ours[seed] for seed in both]), interval([ours[seed] - theirs[seed] for seed in both])


def rows(records: Sequence[Record]) -> list[tuple[str, str, int]]:
    """Return what is compared: a label, the method and the width of the model."""
    found = {(r["method"], r["width"]) for r in records}
    names = {SMALL: "", LARGE: "larger model: "}
    return [(names[width] + m, m, width) for width in names for m in METHODS if (m, width) in found]


def table(records: Sequence[Record], targets: Sequence[str]) -> str:
    """Return the table: test log loss with 95% intervals over seeds, and the difference from uniform by seed."""
    lines = []
    for label, method, width in rows(records):
        cells = []
        for target in targets:
            loss, difference = compared(records, method, UNIFORM, target, width)
            cells += [loss.text(3), "" if method == UNIFORM else signed(difference)]
        chosen = [r for target in targets for r in by_seed(records, method, target, width)]
        steps = f"{np.mean([r['steps'] for r in chosen]):.0f}"
        seconds = [f"{np.mean([r[name] for r in chosen]):.1f}" for name in ("training_seconds", "learning_seconds")]
        lines.append([label, steps, *cells, *seconds])
    header = ["method", "steps of the model"]
    header += [cell for target in targets for cell in (target, "minus uniform")]
    return markdown([*header, "seconds of training", "of learning weights"], lines)


def rivals_table(records: Sequence[Record], targets: Sequence[str]) -> str:
    """Return the table of test log loss of tuneloss minus that of each other method, by seed."""
    others = [method for _, method, width in rows(records) if width == SMALL and method != ONLINE]
    cells = [[signed(compared(records, ONLINE, other, target)[1]) for target in targets] for other in others]
    lines = [[other, *line] for other, line in zip(others, cells, strict=True)]
    return markdown([f"{ONLINE} minus", *targets], lines)


def signed(difference: Interval) -> str:
    """Format a difference with its sign."""
    return ("+" if difference.mean > 0 else "") + difference.text(3)


def weights_table(records: Sequence[Record], targets: Sequence[str]) -> str:
    """Return the table of the mixtures that were held, as means over seeds."""
    columns = [(target, method) for target in targets for method in BEFORE]
    cells = {
        column: [interval([r["weights"][name] for r in by_seed(records, column[1], column[0])]) for name in NAMES]
        for column in columns
    }
    lines = [[name, *(cells[column][j].text(2) for column in columns)] for j, name in enumerate(NAMES)]
    return markdown(["domain", *(f"{target}: {method}" for target, method in columns)], lines)


def draw_figure(records: Sequence[Record], targets: Sequence[str], path: Path) -> None:
    """Draw the difference from uniform by method, and the mixtures that tuneloss learned."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.4), layout="constrained")
    panels = figure.subplots(1, len(targets) + 1, width_ratios=[1] * len(targets) + [0.9])
    for axes in panels[1:-1]:
        axes.sharex(panels[0])
    shown = [row for row in rows(records) if row[1] != UNIFORM]
    for axes, target in zip(panels, targets, strict=False):
        for place, (_, method, width) in enumerate(shown):
            color = "tab:blue" if method in (ONLINE, HELD) else "tab:gray"
            uniform = {r["seed"]: r["test"][target] for r in by_seed(records, UNIFORM, target, width)}
            differences = [r["test"][target] - uniform[r["seed"]] for r in by_seed(records, method, target, width)]
            estimate = interval(differences)
            axes.errorbar(estimate.mean, place, xerr=np.nan_to_num(estimate.half), fmt="o", color=color, capsize=4)
            axes.plot(differences, [place + 0.25] * len(differences), "|", color=color, alpha=0.6)
        axes.axvline(0, color="black", lw=0.8)
        axes.set(title=f"target: {target}", xlabel="test log loss minus that of uniform", yticks=range(len(shown)))
        axes.set_yticklabels([label for label, _, _ in shown] if axes is panels[0] else [])
        axes.invert_yaxis()
    for shift, target in enumerate(targets):
        held = [r["weights"] for r in by_seed(records, HELD, target)]
        estimates = [interval([w[name] for w in held]) for name in NAMES]
        error = np.nan_to_num([min(e.half, e.mean) for e in estimates]), np.nan_to_num([e.half for e in estimates])
        places = np.arange(len(NAMES)) + 0.4 * shift
        panels[-1].barh(places, [e.mean for e in estimates], 0.4, xerr=error, label=target, capsize=2)
    panels[-1].axvline(1 / len(NAMES), color="black", lw=0.8)
    panels[-1].set(title="the mixture that is held", yticks=np.arange(len(NAMES)) + 0.2, yticklabels=NAMES)
    panels[-1].invert_yaxis()
    panels[-1].legend(title="target", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
