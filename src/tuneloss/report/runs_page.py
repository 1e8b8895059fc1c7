"""The page that reports one tuner's runs, from its journal alone."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.figure import Figure

from tuneloss.core.runs import Run
from tuneloss.report import figures, html, runs_figures
from tuneloss.report.findings import findings
from tuneloss.report.learned_info import alignment, explained, is_converged, rivals
from tuneloss.report.runs_info import RunsInfo


def write_runs_report(info: RunsInfo, path: Path) -> Path:
    """Write the page; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(runs_page(info), encoding="utf-8")
    return path


def runs_page(info: RunsInfo) -> str:
    """The page as text: what was learned, how, why, and what to do next."""
    told = sum(run.observation is not None for run in info.runs)
    about = f"Told: {len(info.runs)}; with an observation: {told}; learned from: {len(info.observations)}."
    sections = [
        html.Section("What was learned", _learned(info)),
        html.Section("How it went", _how(info)),
        html.Section("Why these weights", _why(info)),
        html.Section("What to do next", _next(info)),
        html.Section("All runs", _runs_table(info)),
    ]
    return html.page(info.title, about, sections)


def _row_name(run: Run) -> str:
    """Runs count from 1; models of the initial set have no number."""
    return "initial" if run.run is None else str(run.run + 1)


def _learned(info: RunsInfo) -> str:
    best = info.best
    if best is None or best.weights is None or best.observation is None:
        return html.paragraphs(["No run of this journal, trained with weights of its own, has an observation yet."])
    next_ = info.said
    rows = []
    for j, name in enumerate(info.box.names):
        if name in info.hinges:
            continue
        low, high = info.box.lower[j], info.box.upper[j]
        span = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        proposed = f"{next_[name]:.4g}" if name in next_ else ""
        rows.append([name, f"{best.weights[name]:.4g}", span, proposed])
    score = best.observation.score
    which = "chosen" if info.chosen is not None else "best"
    sentences = [f"The {which} model is that of run {_row_name(best)}, with a {info.measure} of {score:.5g}."]
    first = next((run for run in info.runs if run.weights is not None and run.observation is not None), None)
    if first is not None and first is not best and first.observation is not None and first.observation.score:
        change = 100 * (score - first.observation.score) / abs(first.observation.score)
        sentences.append(f"That is {abs(change):.1f}% {'below' if change < 0 else 'above'} the first run.")
    if info.note:
        sentences.append(info.note)
    box, said = ("box", "what LearnLoss (calibrated) says")
    if info.search is not None:
        box, said = ("box of LearnLoss", "what LearnLoss said last")
    drawn = runs_figures.weights_figures(info)
    shown = [
        (figures.to_svg(figure, f"weight-{i}"), f"Weight of {name} by run; dashed: the {box}.")
        for i, (name, figure) in enumerate(drawn.items())
    ]
    shown += [
        (figures.to_svg(figure, f"regularizer-{i}"), f"The learned regularizer {name} of the best run.")
        for i, (name, figure) in enumerate(runs_figures.regularizer_figures(info).items())
    ]
    table = html.table(("term", f"weight of the {which} run", box, said), rows)
    return html.paragraphs(sentences) + table + html.figures(shown)


def _how(info: RunsInfo) -> str:
    if not any(run.observation is not None for run in info.runs):
        return html.paragraphs(["Nothing to show yet."])
    caption = "Error by run; line: the best so far. Dashed: the first run."
    return _reference(info) + _drawn([("errors", runs_figures.errors_figure(info), caption)])


def _reference(info: RunsInfo) -> str:
    """Other models that the journal's first line names, such as those of plain methods."""
    measures = list(dict.fromkeys(measure for values in info.reference.values() for measure in values))
    rows = [
        [name, *(f"{values[m]:.4f}" if m in values else "" for m in measures)]
        for name, values in info.reference.items()
    ]
    return html.table(("model", *measures), rows) if rows else ""


def _why(info: RunsInfo) -> str:
    parts = ("parts", runs_figures.contributions_figure(info), "Each term's part in the loss of the best model.")
    if info.search is not None:
        return html.paragraphs(_search_words(info)) + _drawn([parts])
    if info.learned is None:
        return html.paragraphs(["LearnLoss has nothing to learn from yet, or found no solution."])
    learned, observations = info.learned, info.observations
    sentences = [
        (
            f"Of {len(observations)} models, the learned loss selects number {learned.argmin + 1}, "
            f"of {info.measure} {observations[learned.argmin].score:.5g}; no weights in the box select a better one."
        ),
        f"Loss is about {learned.scale:.4g} times the error.",
    ]
    tied = rivals(observations, learned)
    if tied:
        sentences.append(f"It likes as well: {', '.join(str(i + 1) for i in tied)} (the active constraints).")
    else:
        sentences.append("No other model comes near it: no constraint is active.")
    share = explained(info)
    if not math.isnan(share):
        sentences.append(f"It explains {100 * max(share, 0):.0f}% of how the models' errors differ.")
    if learned.note:
        sentences.append(f"Note of the solver: {learned.note}.")
    sentences += _alignment_words(info)
    return html.paragraphs(sentences) + _drawn(
        [
            ("predicted", runs_figures.predicted_figure(info), "Each model's error, and what the loss says it is."),
            parts,
            (
                "alignment",
                runs_figures.alignment_figure(info),
                "1: the gradient of the loss points along that of the error, so training lowers it; 0: it does not.",
            ),
        ]
    )


def _search_words(info: RunsInfo) -> list[str]:
    """How a search on splits of its own learned: only gradients count, so the loss is not on the error's level."""
    if not info.said:
        return ["LearnLoss was not asked, or found no solution: all runs are from before it."]
    told = ", ".join(_row_name(run) for run in info.observed)
    sentences = [
        f"LearnLoss learned from the gradients at the models of the runs {told}, each split of the examples by itself,",
        "in a box around the best run with L2 alone.",
        "Levels of loss and error played no part, so there is no predicted error to compare.",
    ]
    if info.search is not None and info.search.note:
        sentences.append(f"Note of the solver: {info.search.note}.")
    return sentences + _trained_to_the_end(info)


def _trained_to_the_end(info: RunsInfo) -> list[str]:
    if not all(is_converged(run, info.box) for run in info.observed):
        return []
    return ["The models are trained to the end: the gradients of their terms cancel."]


def _alignment_words(info: RunsInfo) -> list[str]:
    first = next((run.weights for run in info.runs if run.weights is not None), None)
    if first is None or info.learned is None or all(o.gram is None for o in info.observations):
        return []
    if ended := _trained_to_the_end(info):
        return ended
    at = [info.observations[info.learned.argmin]]
    before, after = (float(alignment(at, w)[0]) for w in (info.box.as_array(first), info.learned.weights))
    if math.isnan(before) or math.isnan(after):
        return []
    return [
        f"At the selected model the gradients of loss and error have a cosine of {before:.2f} under the first weights,",
        f"and of {after:.2f} under the learned ones.",
    ]


def _next(info: RunsInfo) -> str:
    found = findings(info)
    if not found:
        at_bound = "" if info.search is not None else "no weight at a bound, "
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
        rows.append([_row_name(run), *weights, error, *(f"{run.info[n]:.5g}" if n in run.info else "" for n in extra)])
    left_out = f" {len(free) - len(names)} more weights are not shown." if len(free) > len(names) else ""
    chosen = info.runs.index(info.best) if info.best is not None else None
    marked = f"The {'best' if info.chosen is None else 'chosen'} run is marked." if chosen is not None else ""
    return html.table(("run", *names, "validation error", *extra), rows, caption=marked + left_out, chosen=chosen)


def _drawn(parts: list[tuple[str, Figure | None, str]]) -> str:
    return html.figures([(figures.to_svg(figure, name), caption) for name, figure, caption in parts if figure])
