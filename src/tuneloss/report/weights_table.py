"""The weights that are used, beside those of the start and the answer of LearnLoss; and what each term contributes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuneloss.report import html
from tuneloss.report.charts import bars
from tuneloss.report.run_charts import MOST_WEIGHTS, largest_names
from tuneloss.report.runs_info import RunsInfo, contributions, run_name
from tuneloss.report.words import range_text, term_words, weight_text
from tuneloss.tuning.sampling import ranges

RANGE = "Full: the weight in use. Ring: the weight at the start. The line is the box."


def weights_table(info: RunsInfo) -> str:
    """Return the weights by term; of many, those that count most, and the others folded. Empty if there are none."""
    columns = _columns(info)
    if not columns:
        return html.paragraphs([f"No {info.unit} has weights yet."])
    names = [name for name in info.box.names if name not in info.hinges]
    largest = names if len(names) <= MOST_WEIGHTS else largest_names(info)
    box = "box of LearnLoss" if info.from_search else "box"
    rows = [[html.escape(cell) for cell in _cells(info, name, columns)] + [_range(info, name)] for name in largest]
    header = [html.escape(cell) for cell in ("term", *columns, box)]
    table = html.raw_table([*header, f'<span title="{RANGE}">place in the box</span>'], rows)
    rest = [name for name in names if name not in largest]
    table = f'<div class="weights">{table}</div>'
    return table + (_folded(rest, next(iter(columns.values()))) if rest else "")


def _columns(info: RunsInfo) -> dict[str, Mapping[str, float]]:
    """Return the weights to show, by title: first those that are used."""
    columns: dict[str, Mapping[str, float]] = {}
    best, first = info.best, info.first_weights
    if info.header.final:
        columns["weight of the saved model" if info.from_search else "weight in use"] = info.header.final
    if best is not None and best.weights is not None:
        columns[f"{info.best_or_chosen} {info.unit} ({run_name(best)})"] = best.weights
    if first is not None and first != (best.weights if best is not None else None):
        columns["at the start" if info.is_online else "first run"] = first
    if info.learned_weights:
        answer = "last answer of LearnLoss" if info.from_search else "LearnLoss from all runs"
        columns[answer] = info.learned_weights
    return columns


def _cells(info: RunsInfo, name: str, columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the name of a term, its weights and its range."""
    j = info.box.names.index(name)
    low, high = float(info.box.lower[j]), float(info.box.upper[j])
    return [term_words(name), *(weight_text(weights[name]) for weights in columns.values()), range_text(low, high)]


def _range(info: RunsInfo, name: str) -> str:
    """Return a small drawing of where the weight in use and that of the start lie in the box."""
    j = info.box.names.index(name)
    low, high = float(info.box.lower[j]), float(info.box.upper[j])
    if low == high or not math.isfinite(low) or not math.isfinite(high):
        return ""
    is_log = bool(ranges(info.box).log[j]) and low > 0
    marks = []
    for kind, weights in (("start", info.first_weights), ("", info.used_weights)):
        if weights:
            at = min(max(_fraction(weights[name], low, high, is_log), 0.0), 1.0)
            marks.append(f'<circle class="{kind}" cx="{5 + 90 * at:.1f}" cy="6" r="4.5"/>')
    return f'<svg class="range" viewBox="0 0 100 12"><title>{RANGE}</title><path d="M5 6H95"/>{"".join(marks)}</svg>'


def _fraction(weight: float, low: float, high: float, is_log: bool) -> float:
    """Return where a weight lies between its bounds, from 0 to 1."""
    if is_log:
        return math.log(max(weight, low) / low) / math.log(high / low)
    return (weight - low) / (high - low)


def _folded(names: list[str], weights: Mapping[str, float]) -> str:
    """Return further weights in columns, largest first, folded."""
    by_size = sorted(names, key=lambda name: -abs(weights[name]))
    items = "".join(
        f"<div><span>{html.escape(term_words(name))}</span><span>{weight_text(weights[name])}</span></div>"
        for name in by_size
    )
    return html.folded(f"Show the other {len(names)} weights", f'<div class="columns">{items}</div>')


def contribution_bars(info: RunsInfo) -> str:
    """Return what each term contributes to the loss of the best model as bars; the largest ones."""
    parts = contributions(info)
    shown = dict(sorted(parts.items(), key=lambda item: -abs(item[1]))[:MOST_WEIGHTS])
    if not any(shown.values()):
        return ""
    rest = f"; {len(parts) - len(shown)} smaller ones are left out" if len(parts) > len(shown) else ""
    about = f"What each term contributes to the loss of the {info.best_or_chosen} model: weight times value{rest}."
    names = {term_words(name): part for name, part in shown.items()}
    return bars(
        names if len(names) == len(shown) else shown, [weight_text(part) for part in shown.values()], about=about
    )
