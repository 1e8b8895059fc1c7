"""Why LearnLoss chose these weights: which model the loss selects, and how well the loss follows the error."""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib.figure import Figure

from tuneloss.core.learn import LearnedLoss
from tuneloss.report import html, runs_figures
from tuneloss.report.learned_info import alignment, is_converged, predictions, tied_models
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.tuning.run import Run

NamedFigure = tuple[str, Figure | None, str]  # name, figure, caption; None if there is nothing to draw


def explanation(info: RunsInfo) -> str:
    """Return the body of the section as HTML."""
    if info.from_search:
        return html.paragraphs(_search_words(info)) + runs_figures.side_by_side(_figures(info))
    if info.learned is None:
        return html.paragraphs(["LearnLoss has nothing to learn from yet, or found no solution."])
    caption = (
        "At 1, the gradients of loss and error point the same way, so training lowers the error. At 0, it does not."
    )
    figures = [*_figures(info), ("alignment", runs_figures.alignment_figure(info), caption)]
    return html.paragraphs(_learned_words(info, info.learned)) + runs_figures.side_by_side(figures)


def _figures(info: RunsInfo) -> list[NamedFigure]:
    """Return the figures of predicted errors and of contributions, with their captions."""
    level = ", up to a constant" if info.from_search else ""
    predicted = f"The error of each model, and what the learned loss predicts{level}."
    return [
        ("predicted", runs_figures.predicted_figure(info), predicted),
        ("parts", runs_figures.contributions_figure(info), "What each term contributes to the loss of the best model."),
    ]


def _learned_words(info: RunsInfo, learned: LearnedLoss) -> list[str]:
    """Say what LearnLoss learned from the runs of a tuner."""
    sentences = [_selection(info, learned), f"The loss is about {learned.scale:.4g} times the error."]
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
    model = f"{name}, of {info.measure} {info.observations[learned.argmin].score:.5g}"
    if n == 1:
        return f"LearnLoss has one model to learn from: {model}."
    return f"Of {n} models, the learned loss selects {model}; no weights in the box select a better one."


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
