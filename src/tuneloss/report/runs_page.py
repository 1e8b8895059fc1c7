"""The page about the runs of one tuner, made from its journal alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tuneloss.files import write_whole
from tuneloss.report import html, runs_figures
from tuneloss.report.explanation import explanation
from tuneloss.report.findings import findings
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.tuning.run import Run


def write_runs_report(info: RunsInfo, path: Path) -> Path:
    """Write the page to a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, runs_page(info).encode())
    return path


@np.errstate(all="ignore")  # extreme numbers are printed as they are, and figures of them are replaced by a sentence
def runs_page(info: RunsInfo) -> str:
    """Return the page as text: what was learned, how, why, and what to do next."""
    n, observed = len(info.runs), sum(run.observation is not None for run in info.runs)
    about = (
        f"{n} run{'s' if n > 1 else ''} in the journal, {observed} with an observation; "
        f"LearnLoss used {len(info.observations)}."
    )
    sections = [
        html.Section("What was learned", _learned(info)),
        html.Section("How it went", _progress(info)),
        html.Section("Why these weights", explanation(info)),
        html.Section("What to do next", _findings_table(info)),
        html.Section("All runs", _runs_table(info)),
    ]
    return html.page(info.header.title, about, sections)


def _learned(info: RunsInfo) -> str:
    """Return the section about the best run and its weights."""
    box = "box of LearnLoss" if info.from_search else "box"
    figures = [
        (f"weight-{i}", figure, f"Weight of {name} by run; dashed: bounds of the {box}.")
        for i, (name, figure) in enumerate(runs_figures.weights_figures(info).items())
    ]
    figures += [
        (f"regularizer-{i}", figure, f"The learned regularizer {name} of the best run.")
        for i, (name, figure) in enumerate(runs_figures.regularizer_figures(info).items())
    ]
    return html.paragraphs(_best_words(info)) + _weights_table(info, box) + runs_figures.side_by_side(figures)


def _best_words(info: RunsInfo) -> list[str]:
    """Say which run is best, and how good it is."""
    best = info.best
    if best is None or best.observation is None:
        return ["No run in this journal has both weights and an observation yet."]
    score, which = best.observation.score, info.best_or_chosen
    sentences = [f"The {which} model is that of run {run_name(best)}, with a {info.measure} of {score:.5g}."]
    return [*sentences, *_change_words(info, best, score), *([info.header.note] if info.header.note else [])]


def _change_words(info: RunsInfo, best: Run, score: float) -> list[str]:
    """Say how much better the best run is than the first."""
    first = next((run for run in info.runs if run.weights is not None and run.observation is not None), None)
    if first is None or first is best or first.observation is None or not first.observation.score:
        return []
    change = 100 * (score - first.observation.score) / abs(first.observation.score)
    if not math.isfinite(change):
        return []
    return [f"That is {abs(change):.1f}% {'below' if change < 0 else 'above'} the first run."]


def _weights_table(info: RunsInfo, box: str) -> str:
    """Return the weights of the best run and the answer of LearnLoss, by term; empty if there is neither."""
    columns: dict[str, Mapping[str, float]] = {}
    if info.best is not None and info.best.weights is not None:
        columns[f"weight of the {info.best_or_chosen} run"] = info.best.weights
    if info.learned_weights:
        answer = "last answer of LearnLoss" if info.from_search else "answer of LearnLoss (calibrated)"
        columns[answer] = info.learned_weights
    if not columns:
        return ""
    rows = []
    for name, low, high in zip(info.box.names, info.box.lower, info.box.upper, strict=True):
        if name not in info.hinges:
            span = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            rows.append([name, *(f"{weights[name]:.4g}" for weights in columns.values()), span])
    return html.table(("term", *columns, box), rows)


def _progress(info: RunsInfo) -> str:
    """Return the section about the errors of the runs, after a table of models to compare with."""
    if not any(run.observation is not None for run in info.runs):
        return html.paragraphs(["Nothing to show yet."])
    reference = info.header.reference  # models to compare with, which a search names
    measures = list(dict.fromkeys(measure for values in reference.values() for measure in values))
    rows = [
        [name, *(f"{values[m]:.4f}" if m in values else "" for m in measures)] for name, values in reference.items()
    ]
    table = html.table(("model", *measures), rows) if rows else ""
    caption = "Error by run. Line: the best so far. Dashed: the first run."
    return table + runs_figures.side_by_side([("errors", runs_figures.errors_figure(info), caption)])


def _findings_table(info: RunsInfo) -> str:
    """Return the findings as a table."""
    rows = [[finding.kind, finding.statement, finding.remedy] for finding in findings(info)]
    if not rows:
        at_bound = "" if info.from_search else "no weight is at a bound, and "
        return html.paragraphs([f"Nothing stands out: {at_bound}all terms can be told apart."])
    return html.table(("what", "finding", "what to do"), rows, wrap=True)


def _runs_table(info: RunsInfo) -> str:
    """Return all runs as a table."""
    free = runs_figures.free_names(info)
    names, extra = free[: runs_figures.MOST_WEIGHTS], runs_figures.shared_info(info)
    rows = [_run_cells(run, extra, names) for run in info.runs]
    left_out = f" {len(free) - len(names)} more weights are not shown." if len(free) > len(names) else ""
    chosen = info.runs.index(info.best) if info.best is not None else None
    marked = f"The {info.best_or_chosen} run is marked." if chosen is not None else ""
    return html.table(("run", "validation error", *extra, *names), rows, caption=marked + left_out, chosen=chosen)


def _run_cells(run: Run, extra: list[str], names: list[str]) -> list[str]:
    """Return the cells of a run: its number, its error, further numbers, and weights."""
    weights = [f"{run.weights[name]:.3g}" if run.weights is not None else "" for name in names]
    error = f"{run.observation.error:.5g}" if run.observation is not None else f"failed: {run.failed}"
    if run.observation is not None and run.observation.metric is not None:
        error += f" (metric {run.observation.metric:.5g})"
    return [run_name(run), error, *(f"{run.info[name]:.5g}" if name in run.info else "" for name in extra), *weights]
