"""Scores of the arena: test errors relative to the plain run, paired by seed, as tables and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tuneloss.paper.statistics import Interval, interval

Record = Mapping[str, Any]
BySeed = dict[int, Record]
RANDOM = "best of the random runs"
NOT_RIVALS = {"plain", "oracle", "expert", "good teacher only", RANDOM}  # an expert or an oracle knows the answer


def by_method(records: Sequence[Record]) -> dict[str, BySeed]:
    """Group the records of one problem by method and seed; random runs become the best of them by validation error."""
    groups: dict[str, BySeed] = {}
    for record in records:
        method, seed = record["method"], record["seed"]
        if not method.startswith("random "):
            groups.setdefault(method, {})[seed] = record
            continue
        best = groups.setdefault(RANDOM, {})
        seconds = record["cpu_seconds"] + best.get(seed, {"cpu_seconds": 0.0})["cpu_seconds"]
        lower = seed not in best or record["validation"] < best[seed]["validation"]
        best[seed] = {**(record if lower else best[seed]), "cpu_seconds": seconds}
    return groups


def change(method: BySeed, base: BySeed) -> Interval:
    """Return the mean of log(test error / that of another method), by seed, with its interval."""
    return interval([_log_ratio(method, base, s) for s in sorted(method) if s in base])


def _log_ratio(method: BySeed, base: BySeed, seed: int) -> float:
    return math.log(method[seed]["test"] / base[seed]["test"])


def best_rival(groups: Mapping[str, BySeed], online: str) -> str | None:
    """Return the best method of the field on a problem, by its mean test error; chosen in hindsight."""
    names = [m for m in groups if m not in NOT_RIVALS and not m.startswith("online") and m != online]
    return min(names, key=lambda m: change(groups[m], groups["plain"]).mean, default=None)


def gained(groups: Mapping[str, BySeed], method: str) -> float:
    """Return the share of the possible gain: 0 is the plain run, 1 the best mean of all methods on the problem."""
    changes = {m: change(runs, groups["plain"]).mean for m, runs in groups.items()}
    least = min(changes.values())
    return changes[method] / least if least < 0 else math.nan


def cost(method: BySeed, base: BySeed) -> float:
    """Return the ratio of processor times, summed over seeds."""
    seeds = [s for s in method if s in base]
    return sum(method[s]["cpu_seconds"] for s in seeds) / sum(base[s]["cpu_seconds"] for s in seeds)


def points(found: Interval) -> str:
    """Format a change of a logarithm in hundredths: -10 is about 10% lower, -70 is half."""
    half = "" if math.isnan(found.half) else f" ± {100 * found.half:.1f}"
    return f"{100 * found.mean:+.1f}{half}"


def table(records: Sequence[Record], problems: Sequence[str], online: str) -> str:
    """Return a Markdown table with one row per problem; methods are relative to the plain run."""
    header = ["problem", "plain run: test error", "one tuned run", RANDOM, "best of the field", "with inside knowledge"]
    header += [f"one tuned run minus {RANDOM}", "one tuned run minus best of the field"]
    rows = [header, ["---"] * len(header)]
    for problem in problems:
        groups = by_method([r for r in records if r["problem"] == problem])
        if "plain" not in groups or online not in groups:
            continue
        plain, ours, rival = groups["plain"], groups[online], best_rival(groups, online)
        knowing = [m for m in ("oracle", "expert", "good teacher only") if m in groups]
        row = [problem, interval([r["test"] for r in plain.values()]).text(3), points(change(ours, plain))]
        row.append(points(change(groups[RANDOM], plain)) if RANDOM in groups else "")
        row.append(f"{points(change(groups[rival], plain))} ({rival})" if rival else "")
        row.append("; ".join(f"{points(change(groups[m], plain))} ({m})" for m in knowing))
        row.append(points(change(ours, groups[RANDOM])) if RANDOM in groups else "")
        row.append(points(change(ours, groups[rival])) if rival else "")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def details(records: Sequence[Record], problems: Sequence[str]) -> str:
    """Return a Markdown table with one row per problem and method."""
    rows = [["problem", "method", "test error", "against plain", "share of the gain", "times the time of plain"]]
    rows.append(["---"] * len(rows[0]))
    for problem in problems:
        groups = by_method([r for r in records if r["problem"] == problem])
        if "plain" not in groups:
            continue
        plain = groups["plain"]
        for method, runs in sorted(groups.items(), key=lambda pair: change(pair[1], plain).mean):
            error = interval([r["test"] for r in runs.values()]).text(4)
            share = f"{gained(groups, method):.2f}"
            rows.append([problem, method, error, points(change(runs, plain)), share, f"{cost(runs, plain):.1f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def summary(records: Sequence[Record], problems: Sequence[str], methods: Sequence[str]) -> str:
    """Return the mean share of the possible gain per method, and on how many problems it is worse than plain."""
    lines = []
    for method in methods:
        shares, worse, n = [], [], 0
        for problem in problems:
            groups = by_method([r for r in records if r["problem"] == problem])
            if method not in groups or "plain" not in groups:
                continue
            found, n = change(groups[method], groups["plain"]), n + 1
            shares.append(gained(groups, method))
            if found.mean > 0 and not found.mean <= found.half:
                worse.append(problem)
        if n:
            text = f"{method}: {100 * np.nanmean(shares):.0f}% of the possible gain (mean of {n} problems); "
            lines.append(text + f"worse than plain beyond the interval on {len(worse)} {worse or ''}")
    return "\n".join(lines) + "\n"


def choices(records: Sequence[Record], problems: Sequence[str], shown: Sequence[str]) -> str:
    """Return the table of the choosing half: means over problems, with and without PINNs, and some problems.

    One column is the difference from the default options, paired by problem and seed, with an interval over seeds.
    """
    groups = {problem: by_method([r for r in records if r["problem"] == problem]) for problem in problems}
    changes: dict[str, dict[str, float]] = {}
    for problem, methods in groups.items():
        for method in methods:
            if method != "plain":
                found = 100 * change(methods[method], methods["plain"]).mean
                changes.setdefault(method, {})[problem] = found

    def mean(method: str, names: Sequence[str]) -> float:
        return float(np.mean([changes[method][name] for name in names if name in changes[method]] or [math.nan]))

    quiet = [problem for problem in problems if not problem.startswith("PINN")]

    def minus_defaults(method: str) -> Interval:
        pairs = [(groups[name][method], groups[name]["online"]) for name in quiet if method in groups[name]]
        seeds = sorted({seed for _, ours in pairs for seed in ours})
        return interval([float(np.mean([_log_ratio(a, b, seed) for a, b in pairs])) for seed in seeds])

    means = ["mean of all problems", "without physics-informed", "minus the defaults, without physics-informed"]
    rows = [["option", "problems", *means, *shown]]
    rows.append(["---"] * len(rows[0]))
    for method in sorted(changes, key=lambda m: (m != "online", m.startswith(("hyper", "align")), mean(m, quiet))):
        numbers = [mean(method, problems), mean(method, quiet), *(mean(method, [name]) for name in shown)]
        cells = ["" if math.isnan(number) else f"{number:.1f}" for number in numbers]
        cells.insert(2, "" if method == "online" else points(minus_defaults(method)))
        rows.append(["**defaults**" if method == "online" else method, str(len(changes[method])), *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def draw(records: Sequence[Record], problems: Sequence[str], online: str, path: Path) -> None:
    """Draw the share of the possible gain by problem: one run with the tuner, and the others."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    rows = []
    for problem in problems:
        groups = by_method([r for r in records if r["problem"] == problem])
        if "plain" in groups and online in groups:
            rows.append((problem, groups))
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.36 * len(rows)), layout="constrained")
    for place, (_, groups) in enumerate(rows):
        rival = best_rival(groups, online)
        marks = [(RANDOM, "s", "tab:orange"), (rival, "^", "tab:green"), (online, "o", "tab:blue")]
        for method, marker, color in marks:
            if method in groups:
                x = float(np.clip(gained(groups, method), -0.25, 1.0))
                axes.plot(x, place, marker, color=color, markersize=9 if method == online else 7, alpha=0.9, zorder=3)
        axes.axhline(place, color="0.9", zorder=0)
    labels = [("one run, weights learned inside it (default options)", "o", "tab:blue")]
    labels += [("best of 20 random full runs", "s", "tab:orange")]
    labels += [("best method of the field on this problem, in hindsight", "^", "tab:green")]
    for text, marker, color in labels:
        axes.plot([], [], marker, color=color, label=text)
    axes.axvline(0, color="0.4", linewidth=1)
    axes.set(yticks=range(len(rows)), xlim=(-0.3, 1.05), xlabel="share of the possible gain in test error")
    axes.set_yticklabels([problem for problem, _ in rows])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["plain run", "25%", "50%", "75%", "best of all methods"])
    axes.invert_yaxis()
    figure.suptitle("How much of what is to be gained does one run gain?")
    figure.legend(loc="outside lower center", ncols=1, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
