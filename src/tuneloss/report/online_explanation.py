"""Why an online run has its weights: the step that set them, as the tuner took it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tuneloss.report import html, run_charts
from tuneloss.report.charts import bars, chart_grid
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.report.words import count_words, term_words, weight_text
from tuneloss.tuning.history import LearnedStep
from tuneloss.tuning.online import OnlinePolicy
from tuneloss.tuning.run import Run
from tuneloss.types import Array

SAME = 1e-5  # relative: weights this near to each other are the same, since a loss keeps them in float32


def online_explanation(info: RunsInfo) -> str:
    """Return the body of the section as HTML."""
    policy = info.header.policy
    if policy is None:
        said = "An earlier version wrote this journal. It does not hold how the steps set the weights."
        return html.paragraphs([said])
    run = setting_run(info)
    words = _policy_words(policy, info.unit)
    body = html.paragraphs(_step_words(info, run)) + _step_table(info, run) + html.paragraphs(words)
    return html.pair(body, _agreement_bars(info) + chart_grid([run_charts.step_alignment_chart(info)]))


def setting_run(info: RunsInfo) -> Run | None:
    """Return the last epoch whose step set the weights that are explained; None if no step did."""
    final, runs = explained_weights(info), info.runs
    if info.from_search and info.best is not None:
        runs = runs[: runs.index(info.best)]
    for run in reversed(runs):
        after = None if run.step is None or run.weights is None else run.step.next_weights(run.weights)
        if after is not None and all(math.isclose(after[n], final[n], rel_tol=SAME, abs_tol=1e-12) for n in final):
            return run
    return None


def explained_weights(info: RunsInfo) -> Mapping[str, float]:
    """Return the weights that are used, or of a saved model those of the chosen epoch, from which it has its own."""
    if info.from_search:
        return (info.best.weights if info.best is not None else None) or {}
    return info.used_weights


def _step_words(info: RunsInfo, run: Run | None) -> list[str]:
    """Say which step set the weights, from what, and how far it went."""
    if run is None or run.step is None:
        if all(other.step is None or other.step.learned is None for other in info.runs):
            return [f"No {info.unit} has learned weights yet, so those of the start are used.", *_last_note(info)]
        by_hand = "by a fit with L2 alone, before the first step" if info.from_search else "by `hold` or by hand"
        return [f"The weights were not set by a step, but {by_hand}."]
    step = run.step
    said = _which_step(info, run)
    counted = count_words(step.n_counted or 0, info.unit)
    said += [f"Its answer of LearnLoss comes from the last {counted}."]
    if step.kept is not None:
        said += [f"The new weights are {100 * step.kept:.0f}% old weights and {100 * (1 - step.kept):.0f}% answer."]
    if step.least_scale is not None:
        said += [f"The scale was held at {weight_text(step.least_scale)}, since it would have fallen further."]
    said += _turn_words(step)
    return said + ([f"Note of the solver: {step.note}."] if step.note else [])


def _which_step(info: RunsInfo, run: Run) -> list[str]:
    """Name the step that set the weights, and the model that they belong to if it is not the last one."""
    name, best = f"{info.unit} {run_name(run)}", info.best
    if best is None or run is info.runs[-1] or info.runs.index(run) + 1 != info.runs.index(best):
        return [f"The weights that are used were set by the step after {name}."]
    epoch = f"{info.unit} {run_name(best)}"
    if info.from_search:
        return [f"The saved model is based on the weights of {epoch}, which the step after {name} had set."]
    restored = f"The best model, of {epoch}, was restored, and its weights with it."
    return [restored, f"The step after {name} had set them."]


def _turn_words(step: LearnedStep) -> list[str]:
    """Say how the step turned the gradient of the loss."""
    if step.cosine_before is None or step.cosine_after is None:
        return []
    change = f"from {step.cosine_before:.2f} to {step.cosine_after:.2f}"
    return [f"The step changed the cosine of the gradients of loss and error {change}."]


def _last_note(info: RunsInfo) -> list[str]:
    step = info.runs[-1].step
    return [f"Note of the last step: {step.note}."] if step is not None and step.note else []


def _policy_words(policy: OnlinePolicy, unit: str) -> list[str]:
    """Say how all steps of the run learned, by its policy."""
    gradients = "only gradients count" if policy.epsilon == math.inf else "gradients and values count"
    window = f"of the last {count_words(policy.window, unit)}" if policy.window is not None else f"of all {unit}s"
    start = f"All steps learn {'' if policy.start == 'now' else 'once the error has risen, '}by one policy: "
    said = [f"{start}{gradients}, {window}, in the {policy.objective} form."]
    if policy.decay is not None:
        said += [f"Each {unit} counts {weight_text(policy.decay)} times as much as the next one."]
    if policy.constraints != "none":
        said += ["The loss must select the best of these models (the argmin constraints)."]
    return said


def _step_table(info: RunsInfo, run: Run | None) -> str:
    """Return the weights before the step, its answer, and the weights after it, for the largest terms."""
    if run is None or run.step is None or run.weights is None or run.step.learned is None:
        return ""
    after, answer = explained_weights(info), run.step.learned
    rows = [
        [term_words(name), *(weight_text(weights[name]) for weights in (run.weights, answer, after))]
        for name in run_charts.largest_names(info)
    ]
    return html.table(("term", "before the step", "answer of LearnLoss", "after the step"), rows) if rows else ""


def _agreement_bars(info: RunsInfo) -> str:
    """Return the cosine of each term's gradient with the error's, over the last epochs that have gradients."""
    grams = [o.gram for o in info.observations if o.gram is not None]
    if not grams:
        return ""
    cosines = term_cosines(np.sum(grams, axis=0))
    parts: dict[str, float] = {}
    names = [name for name in info.box.names if name not in info.hinges]
    for name in sorted(names, key=lambda name: -abs(cosines[info.box.names.index(name)]))[: run_charts.MOST_WEIGHTS]:
        parts[term_words(name)] = float(cosines[info.box.names.index(name)])
    about = (
        f"Cosine of each term's gradient with the error's, at the last {count_words(len(grams), info.unit)} with "
        "gradients in the journal. Above 0, following the term lowers the error; below 0, it raises it."
    )
    return bars(parts, [f"{cosine:+.2f}" for cosine in parts.values()], about=about)


def term_cosines(gram: Array) -> Array:
    """Return the cosine of each term's gradient with the error's, as a (k,) array; 0 where a gradient is 0."""
    size = np.sqrt(np.diagonal(gram))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = gram[:-1, -1] / (size[:-1] * size[-1])
    return np.asarray(np.where(np.isfinite(cosines), cosines, 0.0))
