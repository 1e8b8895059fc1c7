"""The page that reports one tuner's runs, from its journal alone."""

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


def write_runs_report(info: RunsInfo, path: Path) -> Path:
    """Write the page; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, runs_page(info).encode())
    return path


@np.errstate(all="ignore")  # extreme numbers are shown as they are, or left out in words
def runs_page(info: RunsInfo) -> str:
    """The page as text: what was learned, how, why, and what to do next."""
    told = sum(run.observation is not None for run in info.runs)
    about = f"Told: {len(info.runs)}; with an observation: {told}; learned from: {len(info.observations)}."
    sections = [
        html.Section("What was learned", _learned(info)),
        html.Section("How it went", _how(info)),
        html.Section("Why these weights", explanation(info)),
        html.Section("What to do next", _next(info)),
        html.Section("All runs", _runs_table(info)),
    ]
    return html.page(info.header.title, about, sections)


def _learned(info: RunsInfo) -> str:
    box = "box" if info.header.search is None else "box of LearnLoss"
    parts = [
        (f"weight-{i}", figure, f"Weight of {name} by run; dashed: the {box}.")
        for i, (name, figure) in enumerate(runs_figures.weights_figures(info).items())
    ]
    parts += [
        (f"regularizer-{i}", figure, f"The learned regularizer {name} of the best run.")
        for i, (name, figure) in enumerate(runs_figures.regularizer_figures(info).items())
    ]
    return html.paragraphs(_best_words(info)) + _weights_table(info, box) + runs_figures.drawn(parts)


def _best_words(info: RunsInfo) -> list[str]:
    best = info.best
    if best is None or best.observation is None:
        return ["No run of this journal, trained with weights of its own, has an observation yet."]
    score = best.observation.score
    which = "chosen" if info.header.chosen is not None else "best"
    sentences = [f"The {which} model is that of run {run_name(best)}, with a {info.measure} of {score:.5g}."]
    first = next((run for run in info.runs if run.weights is not None and run.observation is not None), None)
    if first is not None and first is not best and first.observation is not None and first.observation.score:
        change = 100 * (score - first.observation.score) / abs(first.observation.score)
        if math.isfinite(change):
            sentences.append(f"That is {abs(change):.1f}% {'below' if change < 0 else 'above'} the first run.")
    return [*sentences, info.header.note] if info.header.note else sentences


def _weights_table(info: RunsInfo, box: str) -> str:
    """Term by term, the weight of the best run and what LearnLoss says, as far as there are such."""
    columns: dict[str, Mapping[str, float]] = {}
    if info.best is not None and info.best.weights is not None:
        columns[f"weight of the {'best' if info.header.chosen is None else 'chosen'} run"] = info.best.weights
    if info.said:
        columns["what LearnLoss (calibrated) says" if info.header.search is None else "what LearnLoss said last"] = (
            info.said
        )
    if not columns:
        return ""
    rows = []
    for name, low, high in zip(info.box.names, info.box.lower, info.box.upper, strict=True):
        if name not in info.hinges:
            span = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            rows.append([name, *(f"{weights[name]:.4g}" for weights in columns.values()), span])
    return html.table(("term", *columns, box), rows)


def _how(info: RunsInfo) -> str:
    if not any(run.observation is not None for run in info.runs):
        return html.paragraphs(["Nothing to show yet."])
    caption = "Error by run; line: the best so far. Dashed: the first run."
    return _reference(info) + runs_figures.drawn([("errors", runs_figures.errors_figure(info), caption)])


def _reference(info: RunsInfo) -> str:
    """Other models that the journal's first line names, such as those of plain methods."""
    measures = list(dict.fromkeys(measure for values in info.header.reference.values() for measure in values))
    rows = [
        [name, *(f"{values[m]:.4f}" if m in values else "" for m in measures)]
        for name, values in info.header.reference.items()
    ]
    return html.table(("model", *measures), rows) if rows else ""


def _next(info: RunsInfo) -> str:
    found = findings(info)
    if not found:
        at_bound = "" if info.header.search is not None else "no weight at a bound, "
        return html.paragraphs([f"Nothing stands out: {at_bound}no terms that cannot be told apart."])
    return html.table(("what", "found", "what to do"), [[one.kind, one.found, one.do] for one in found], wrap=True)


def _runs_table(info: RunsInfo) -> str:
    free = runs_figures.free_names(info)
    names = free[: runs_figures.MOST_WEIGHTS]
    extra = runs_figures.shared_info(info)
    rows = []
    for run in info.runs:
        weights = [f"{run.weights[name]:.3g}" if run.weights is not None else "" for name in names]
        error = f"{run.observation.error:.5g}" if run.observation is not None else f"failed: {run.failed}"
        if run.observation is not None and run.observation.metric is not None:
            error += f" (metric {run.observation.metric:.5g})"
        rows.append([run_name(run), error, *(f"{run.info[n]:.5g}" if n in run.info else "" for n in extra), *weights])
    left_out = f" {len(free) - len(names)} more weights are not shown." if len(free) > len(names) else ""
    chosen = info.runs.index(info.best) if info.best is not None else None
    marked = f"The {'best' if info.header.chosen is None else 'chosen'} run is marked." if chosen is not None else ""
    return html.table(("run", "validation error", *extra, *names), rows, caption=marked + left_out, chosen=chosen)
