"""The page about the runs of one tuner, or about one run that was tuned as it trained, made from its journal alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuneloss.files import write_whole
from tuneloss.report import html, run_charts
from tuneloss.report.charts import chart_grid
from tuneloss.report.explanation import explanation
from tuneloss.report.next_steps import next_steps
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.report.runs_table import runs_table
from tuneloss.report.verdict import TUNED, verdict
from tuneloss.report.weights_table import contribution_bars, weights_table
from tuneloss.report.words import count_words, listed, term_words
from tuneloss.tuning.run import SCORE


def write_runs_report(info: RunsInfo, path: Path) -> Path:
    """Write the page to a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, runs_page(info).encode())
    return path


@np.errstate(all="ignore")  # extreme numbers are printed as they are, and charts of them are replaced by a sentence
def runs_page(info: RunsInfo) -> str:
    """Return the page as text: the verdict, what was learned, how it went, why, and what to do next."""
    result = verdict(info)
    sections = [
        html.Section("What was learned", _learned(info)),
        html.Section("How it went", _progress(info)),
        html.Section("Why these weights", explanation(info)),
        html.Section("What to do next", next_steps(info)),
        html.Section(f"All {info.unit}s", runs_table(info)),
    ]
    about = " ".join([*result.sentences, *_counts(info)])
    return html.page(info.header.title, about, sections, headline=result.headline)


def _counts(info: RunsInfo) -> list[str]:
    """Say how many runs failed, if some did."""
    failed = sum(run.observation is None for run in info.runs)
    return [f"{failed} of {count_words(len(info.runs), info.unit)} failed."] if failed else []


def _learned(info: RunsInfo) -> str:
    """Return the section about the weights that are used."""
    note = html.paragraphs([info.header.note]) if info.header.note else ""
    table = html.pair(weights_table(info), contribution_bars(info), fit=True)
    return note + table + chart_grid(run_charts.regularizer_charts(info))


def _progress(info: RunsInfo) -> str:
    """Return the section about the errors and the weights of the runs, after a table of models to compare with."""
    if not any(run.observation is not None for run in info.runs):
        return html.paragraphs(["Nothing to show yet."])
    charts, unchanged = run_charts.weight_charts(info)
    body = _reference_table(info) + chart_grid([*run_charts.progress_charts(info), *charts])
    shown, free = len(charts) + len(unchanged), len(run_charts.free_names(info))
    said = [f"Of {free} weights, the {shown} that contribute most are shown."] if shown < free else []
    said += [f"These weights did not change: {listed(map(term_words, unchanged), most=12)}."] if unchanged else []
    return body + (html.paragraphs(said) if said else "")


def _reference_table(info: RunsInfo) -> str:
    """Return the models that the header compares, with their measures."""
    reference = dict(info.header.reference)
    if reference and TUNED not in reference and info.best is not None and info.best.observation is not None:
        reference = {f"this run, {info.unit} {run_name(info.best)}": {SCORE: info.best.observation.score}} | reference
    measures = list(dict.fromkeys(measure for values in reference.values() for measure in values))
    columns = []
    for measure in measures:
        texts = info.measure_texts(measure, [values[measure] for values in reference.values() if measure in values])
        columns.append([texts.pop(0) if measure in values else "" for values in reference.values()])
    rows = [list(row) for row in zip(reference, *columns, strict=True)]
    names = [info.measure if measure == SCORE else measure for measure in measures]
    return html.table(("model", *names), rows) if rows else ""
