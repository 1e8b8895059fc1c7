"""Why these weights: what the learned loss selects, and how well it follows the error, in words and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib.figure import Figure

from tuneloss.core.learn import LearnedLoss
from tuneloss.report import html, runs_figures
from tuneloss.report.learned_info import alignment, is_converged, predictions, rivals
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.tuning.run import Run


def explanation(info: RunsInfo) -> str:
    """The section's words and figures."""
    level = "" if info.header.search is None else ", but for the level of all"
    figures: list[tuple[str, Figure | None, str]] = [
        ("predicted", runs_figures.predicted_figure(info), f"Each model's error, and what the loss says it is{level}."),
        ("parts", runs_figures.contributions_figure(info), "Each term's part in the loss of the best model."),
    ]
    if info.header.search is not None:
        return html.paragraphs(_search_words(info)) + runs_figures.drawn(figures)
    if info.learned is None:
        return html.paragraphs(["LearnLoss has nothing to learn from yet, or found no solution."])
    learned = info.learned
    sentences = [_selected(info, learned), f"Loss is about {learned.scale:.4g} times the error."]
    tied = rivals(info.observations, learned)
    if tied:
        sentences.append(f"It likes as well: {_models([info.observed[i] for i in tied])} (the active constraints).")
    elif len(info.observed) > 1:
        sentences.append("No other model comes near it: no constraint is active.")
    sentences += _explained_words(info)
    if learned.note:
        sentences.append(f"Note of the solver: {learned.note}.")
    sentences += _alignment_words(info)
    figures.append(
        (
            "alignment",
            runs_figures.alignment_figure(info),
            "1: the gradient of the loss points along that of the error, so training lowers it; 0: it does not.",
        )
    )
    return html.paragraphs(sentences) + runs_figures.drawn(figures)


def _explained_words(info: RunsInfo) -> list[str]:
    found = predictions(info)
    if found is None or math.isnan(found.explained):
        return []
    return [f"It explains {100 * max(found.explained, 0):.0f}% of how the models' errors differ."]


def _models(runs: Iterable[Run]) -> str:
    """Runs by their numbers; models of the initial set have none."""
    return ", ".join(dict.fromkeys("an initial model" if run.run is None else f"run {run_name(run)}" for run in runs))


def _selected(info: RunsInfo, learned: LearnedLoss) -> str:
    """Which model the learned loss selects."""
    run, n = _models([info.observed[learned.argmin]]), len(info.observed)
    what = f"{run}, of {info.measure} {info.observations[learned.argmin].score:.5g}"
    if n == 1:
        return f"LearnLoss has one model to learn from: {what}."
    return f"Of {n} models, the learned loss selects {what}; no weights in the box select a better one."


def _search_words(info: RunsInfo) -> list[str]:
    """How a search on splits of its own learned: only gradients count, so the loss is not on the error's level."""
    if not info.said:
        return ["LearnLoss was not asked, or found no solution: all runs are from before it."]
    sentences = [
        f"LearnLoss learned from the gradients at the models of {_models(info.observed)}, each split of the examples",
        "by itself, in a box around the best run with L2 alone.",
        "Levels of loss and error played no part: it predicts how errors differ.",
        *_explained_words(info),
    ]
    if info.header.search is not None and info.header.search.note:
        sentences.append(f"Note of the solver: {info.header.search.note}.")
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
