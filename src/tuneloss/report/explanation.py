"""Why LearnLoss chose these weights: which model the loss selects, and how well the loss follows the error."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tuneloss.core.learn import LearnedLoss
from tuneloss.report import html, run_charts
from tuneloss.report.charts import chart_grid
from tuneloss.report.learned_info import alignment, is_converged, predictions, tied_models
from tuneloss.report.online_explanation import online_explanation
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.report.words import score_text, weight_text
from tuneloss.tuning.run import Run

WAYS = {  # how the weights of a run were proposed, by `Run.way`
    "start": "They are a start point that was given to the tuner.",
    "center": "They are the center of the box.",
    "random": "They were drawn at random from the box.",
    "nearby": "The proposal had been tried before, so the tuner moved it to a nearby point.",
    "learned": "LearnLoss proposed them from all runs before.",
    "local": "LearnLoss proposed the direction of this step from the best run before.",
    "signs": "They are a step from the best run before, by the signs of the estimated slopes of the error.",
    "model": "A Gaussian process of the error proposed them.",
}


def explanation(info: RunsInfo) -> str:
    """Return the body of the section as HTML."""
    if info.is_online:
        return online_explanation(info)
    charts = [run_charts.predicted_chart(info), run_charts.alignment_chart(info)]
    if info.from_search:
        words = html.paragraphs(_search_words(info))
    elif info.learned is None:
        return html.paragraphs(["LearnLoss has nothing to learn from yet, or found no solution."])
    else:
        words = html.paragraphs(_proposal_words(info)) + html.paragraphs(_learned_words(info, info.learned))
    return html.pair(words, chart_grid(charts))


def _proposal_words(info: RunsInfo) -> list[str]:
    """Say how the weights of the best run were proposed."""
    best = info.best
    if best is None:
        return []
    how = WAYS.get(best.way, "")
    return [f"The weights in the table are those of run {run_name(best)}.", how] if how else []


def _learned_words(info: RunsInfo, learned: LearnedLoss) -> list[str]:
    """Say what LearnLoss learned from the runs of a tuner."""
    sentences = [_selection(info, learned), f"This loss is about {weight_text(learned.scale)} times the error."]
    tied = [info.observed[i] for i in tied_models(info.observations, learned)]
    if tied:
        sentences.append(f"The loss is equally low at {_names(tied)} (the active constraints).")
    elif len(info.observed) > 1:
        sentences.append("No other model has a loss as low, so no constraint is active.")
    sentences += _fit_words(info)
    if learned.note:
        sentences.append(f"Note of the solver: {learned.note}.")
    return sentences + _alignment_words(info)


def _selection(info: RunsInfo, learned: LearnedLoss) -> str:
    """Say which model the learned loss selects."""
    name, n = _names([info.observed[learned.argmin]]), len(info.observed)
    model = f"{name}, of {info.measure} {score_text(info.observations[learned.argmin].score)}"
    if n == 1:
        return f"LearnLoss has one model to learn from: {model}."
    return f"From {n} models, LearnLoss learns a loss that selects {model}; no weights in the box select a better one."


def _fit_words(info: RunsInfo) -> list[str]:
    """Say how much of the differences between errors the loss explains, if that can be computed."""
    fit = predictions(info)
    if fit is None or math.isnan(fit.explained):
        return []
    return [f"The loss explains {100 * max(fit.explained, 0):.0f}% of the differences between the models' errors."]


def _names(runs: Iterable[Run]) -> str:
    """Name each run once by its number; models of the initial set have no number."""
    return ", ".join(dict.fromkeys("an initial model" if run.run is None else f"run {run_name(run)}" for run in runs))


def _search_words(info: RunsInfo) -> list[str]:
    """Say how a search learned from the splits of its examples."""
    if not info.learned_weights:
        return ["LearnLoss was not used, or found no solution. All runs have L2 or L1 as their only regularizer."]
    sentences = [
        f"LearnLoss learned from the gradients at the models of {_names(info.observed)}.",
        "It used each split of the examples separately, and a box around the best run with L1 or L2 alone.",
        "Because it used gradients only, it predicts differences between errors but not their level.",
        *_fit_words(info),
    ]
    if info.header.search is not None and info.header.search.note:
        sentences.append(f"Note of the solver: {info.header.search.note}.")
    return sentences + _convergence_words(info)


def _convergence_words(info: RunsInfo) -> list[str]:
    """Say that all models have converged, if they have."""
    if not all(is_converged(run, info.box) for run in info.observed):
        return []
    return ["The models have converged: the gradients of their terms cancel."]


def _alignment_words(info: RunsInfo) -> list[str]:
    """Say how much better the gradients of loss and error agree under the learned weights, at the selected model."""
    first = info.first_weights
    if first is None or info.learned is None or not info.has_gradients:
        return []
    if converged := _convergence_words(info):
        return converged
    selected = [info.observations[info.learned.argmin]]
    before, after = (float(alignment(selected, w)[0]) for w in (info.box.as_array(first), info.learned.weights))
    if math.isnan(before) or math.isnan(after):
        return []
    return [
        f"At the selected model, the gradients of loss and error have a cosine of {before:.2f} under the first weights",
        f"and of {after:.2f} under the learned weights.",
    ]
