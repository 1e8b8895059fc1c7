"""All runs of a journal as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tuneloss.report import html
from tuneloss.report.run_charts import MOST_WEIGHTS, free_names, largest_names, shared_info
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.report.words import count_words, term_words, weight_text
from tuneloss.tuning.run import Run

MOST_ROWS = 30  # a longer table is folded


def runs_table(info: RunsInfo) -> str:
    """Return one row per run: its number, its scores, and its largest weights; folded if it is long."""
    names, scores = largest_names(info), _score_columns(info)
    rows = [
        [_name(run), *(column[i] for column in scores.values()), *_weight_cells(run, names)]
        for i, run in enumerate(info.runs)
    ]
    chosen = info.runs.index(info.best) if info.best is not None else None
    marked = f"The {info.best_or_chosen} {info.unit} is marked." if chosen is not None else ""
    left_out = len(free_names(info)) - len(names)
    more = f" {left_out} more weights are not shown; these {MOST_WEIGHTS} count most." if left_out > 0 else ""
    header = (info.unit, *scores, *map(term_words, names))
    table = html.table(header, rows, caption=marked + more, chosen=chosen)
    return html.folded(f"Show all {count_words(len(rows), info.unit)}", table) if len(rows) > MOST_ROWS else table


def _name(run: Run) -> str:
    return run_name(run) if run.failed is None else f"{run_name(run)} failed: {run.failed}"


def _score_columns(info: RunsInfo) -> dict[str, list[str]]:
    """Return the metric if there is one, the validation error, and further numbers, each with its own digits."""
    observations = [run.observation for run in info.runs]
    columns = {}
    if info.measure == "metric":
        columns["metric"] = _column(info, "metric", [None if o is None else o.metric for o in observations])
    errors = [None if o is None else o.error for o in observations]
    columns["validation error"] = _column(info, "validation error", errors)
    for name in shared_info(info):
        values = [run.info.get(name) if run.observation is not None else None for run in info.runs]
        columns[name] = _column(info, name, values)
    return columns


def _column(info: RunsInfo, measure: str, values: Sequence[float | None]) -> list[str]:
    """Return numbers with the same number of decimals; an empty cell where there is none."""
    texts = iter(info.measure_texts(measure, [value for value in values if value is not None]))
    return [next(texts) if value is not None else "" for value in values]


def _weight_cells(run: Run, names: Sequence[str]) -> list[str]:
    return [weight_text(run.weights[name]) if run.weights is not None else "" for name in names]
