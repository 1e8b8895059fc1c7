"""Charts of the runs of one tuner, or of the epochs of one run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuneloss.report.charts import Chart, Series
from tuneloss.report.learned_info import alignment, is_converged, predictions
from tuneloss.report.runs_info import RunsInfo, contributions, regularizer
from tuneloss.report.verdict import TUNED
from tuneloss.report.words import range_text, share_text, term_words, weight_text
from tuneloss.tuning.run import SCORE, Run
from tuneloss.tuning.sampling import ranges

MOST_WEIGHTS = 12  # largest number of charts, bars or columns of weights
LOG_RATIO = 3.0  # errors that differ by more than this factor have a logarithmic axis
MOST_CHARTS = 8  # of weights, if there are more than MOST_WEIGHTS
CHANGED = 1e-9  # relative: a weight that varies by less did not change


def place(info: RunsInfo, index: int) -> int:
    """Return where a run stands on the horizontal axis: the number of its epoch, or its place in the journal."""
    step = info.runs[index].step
    return index + 1 if step is None else step.number


def shared_info(info: RunsInfo) -> list[str]:
    """Return the names of further numbers, such as a test error, that every run with an observation has."""
    infos = [run.info for run in info.runs if run.observation is not None]
    return [name for name in (infos[0] if infos else {}) if all(name in other for other in infos)]


def free_names(info: RunsInfo) -> list[str]:
    """Return the names of the weights that are neither pinned nor hinges, which mean something only together."""
    names = zip(info.box.names, info.box.pinned, strict=True)
    return [name for name, pinned in names if not pinned and name not in info.hinges]


def largest_names(info: RunsInfo) -> list[str]:
    """Return the free weights in the order of the box; of more than MOST_WEIGHTS, those that contribute most."""
    parts, free = contributions(info), free_names(info)
    if len(free) <= MOST_WEIGHTS:
        return free
    return sorted(free, key=lambda name: -abs(parts.get(name, 0.0)))[:MOST_WEIGHTS]


def progress_charts(info: RunsInfo) -> list[Chart]:
    """Draw each measure by run on its own axes: the metric, the validation error, and the numbers of `shared_info`."""
    seen = [(i, run) for i, run in enumerate(info.runs) if run.observation is not None]
    x = [place(info, i) for i, _ in seen]
    marked = frozenset(n for n, (_, run) in enumerate(seen) if run is info.best)
    errors = [run.observation.error for _, run in seen if run.observation is not None]
    metrics = [run.observation.metric for _, run in seen if run.observation is not None]
    measures = {"metric": [m for m in metrics if m is not None]} if None not in metrics else {}
    measures |= {"validation error": errors} | {n: [run.info[n] for _, run in seen] for n in shared_info(info)}
    charts = []
    for name, values in measures.items():
        if info.is_share(name):
            charts.append(_share_chart(info, name, Series(name, x, values, "line", 0, marked), seen))
            continue
        decides = name == info.measure
        series = [Series(name, x, values, "line" if info.is_online or len(x) > 1 else "points", 0, marked)]
        if decides and not info.is_online and info.header.chosen is None and len(x) > 2:
            series = [
                Series(f"each {info.unit}", x, values, "points", 0, marked),
                Series("best so far", x, np.minimum.accumulate(values).tolist(), "steps", 1),
            ]
        is_log = min(values) > 0 and max(values) > LOG_RATIO * min(values)
        about = f"The large point is the {info.best_or_chosen} {info.unit}." if decides and marked else ""
        charts.append(Chart(name, series, info.unit, log=is_log, levels=_levels(info, name, seen), about=about))
    return charts


def _share_chart(info: RunsInfo, name: str, series: Series, seen: list[tuple[int, Run]]) -> Chart:
    """Draw a share of rows in per cent."""
    levels = {other: 100 * level for other, level in _levels(info, name, seen).items()}
    percent = replace(series, y=[100 * share for share in series.y])
    chart = Chart(f"{name}, %", [percent], info.unit, levels=levels)
    return replace(chart, text=lambda number: share_text(number / 100))


def _levels(info: RunsInfo, measure: str, seen: list[tuple[int, Run]]) -> dict[str, float]:
    """Return the levels to compare a measure with: other models of the header, or the first run."""
    others = {name: values for name, values in info.header.reference.items() if name != TUNED}
    levels = {name: values[measure] for name, values in others.items() if measure in values}
    if measure == info.measure:
        levels |= {name: values[SCORE] for name, values in others.items() if SCORE in values}
        first = next((run.observation for _, run in seen if run.run is not None), None)
        if not levels and not info.is_online and first is not None:
            levels["first run"] = first.score
    return levels


def weight_charts(info: RunsInfo) -> tuple[list[Chart], list[str]]:
    """Draw each of the largest free weights by run; also return the names of those that did not change."""
    told = [(place(info, i), run.weights) for i, run in enumerate(info.runs) if run.weights is not None]
    log = dict(zip(info.box.names, ranges(info.box).log, strict=True))
    charts, unchanged = [], []
    names = largest_names(info)
    for name in names[: MOST_CHARTS if len(names) < len(free_names(info)) else None] if told else []:
        values = [weights[name] for _, weights in told]
        if np.ptp(values) <= CHANGED * max(map(abs, values)):
            unchanged.append(name)
            continue
        j = info.box.names.index(name)
        low, high = float(info.box.lower[j]), float(info.box.upper[j])
        room = 0.05 * float(np.ptp(values))
        near = {f"bound {weight_text(b)}": b for b in (low, high) if min(values) - room <= b <= max(values) + room}
        series = [Series(term_words(name), [x for x, _ in told], values)]
        dashed = ", dashed" if near else ""
        about = "" if info.box.is_simplex else f"box: {range_text(low, high)}{dashed}"
        title, is_log = f"weight of {term_words(name)}", bool(log[name])
        chart = Chart(title, series, info.unit, log=is_log, levels=near, about=about, names_levels=False)
        charts.append(replace(chart, text=weight_text))
    return charts, unchanged


def regularizer_charts(info: RunsInfo) -> list[Chart]:
    """Draw each learned regularizer of the best run as a function of the value of a parameter."""
    charts = []
    pinned = dict(zip(info.box.names, info.box.pinned, strict=True))
    for term in info.header.knots:
        is_free = not all(pinned[name] for name in info.hinges_of(term))
        if is_free and (curve := regularizer(info, term)) is not None:
            series = [Series("penalty", curve[0].tolist(), curve[1].tolist())]
            title = f"Learned regularizer: {term_words(term)}, at the {info.best_or_chosen} {info.unit}"
            charts.append(Chart(title, series, "value of a parameter", whole=False))
    return charts


def predicted_chart(info: RunsInfo) -> Chart | None:
    """Draw the predicted against the observed error of every model; None if nothing is predicted."""
    fit = predictions(info)
    if fit is None or len(fit.observed) < 2:
        return None
    label = "chosen" if info.from_search else "selected by the loss"
    level = ", up to a constant" if info.from_search else ""
    rest = [i for i in range(len(fit.observed)) if i != fit.marked]
    observed, predicted = fit.observed.tolist(), fit.predicted.tolist()
    series = [
        Series("predicted", [observed[i] for i in rest], [predicted[i] for i in rest], "points", 0),
        Series(label, [observed[fit.marked]], [predicted[fit.marked]], "points", 1, frozenset({0})),
    ]
    about = f"What the learned loss predicts for each model{level}."
    return Chart("Predicted error", series, "observed error", whole=False, diagonal=True, about=about)


def alignment_chart(info: RunsInfo) -> Chart | None:
    """Draw the cosine of the gradients of loss and error, under the first and under the learned weights."""
    first = info.first_weights
    if info.learned is None or first is None or not info.has_gradients:
        return None
    before, after = (alignment(info.observations, w) for w in (info.box.as_array(first), info.learned.weights))
    if all(is_converged(run, info.box) for run in info.observed) or np.isnan(before).all() or np.isnan(after).all():
        return None  # there is no direction to compare
    x = [place(info, info.runs.index(run)) for run in info.observed]
    series = [Series("first weights", x, before.tolist(), color=1), Series("learned weights", x, after.tolist())]
    return _cosine_chart(series, info.unit)


def step_alignment_chart(info: RunsInfo) -> Chart | None:
    """Draw the cosine of the gradients of loss and error at each epoch, before and after the step."""
    steps = [run.step for run in info.runs if run.step is not None and run.step.cosine_after is not None]
    if not steps:
        return None
    x = [step.number for step in steps]
    before, after = ([s.cosine_before or 0.0 for s in steps], [s.cosine_after or 0.0 for s in steps])
    return _cosine_chart([Series("before the step", x, before, color=1), Series("after it", x, after)], info.unit)


def _cosine_chart(series: list[Series], unit: str) -> Chart:
    about = "At 1, loss and error have the same direction, so training lowers the error. At 0, it does not."
    levels = {"0: no agreement": 0.0}
    return Chart("Cosine of the gradients of loss and error", series, unit, about=about, levels=levels)
