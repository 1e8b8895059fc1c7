"""What to do next: the weights to use, whether to go on, and then the findings, each with what to type."""

from __future__ import annotations

import math

from tuneloss.report import html
from tuneloss.report.findings import Finding, findings
from tuneloss.report.next_code import compare_code, more_runs_code, weights_code
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.report.verdict import find_rival
from tuneloss.report.words import change_words, score_column

STILL = 5  # runs without a gain after which it is time to stop
RISE = 0.02  # relative: an error that ended this far above its best has risen


def next_steps(info: RunsInfo) -> str:
    """Return the section as HTML: one card per step."""
    steps = [*_use(info), *_go_on(info), *_compare(info), *findings(info)]
    if not steps:
        return html.paragraphs(["Nothing stands out."])
    return html.cards(
        html.Card(step.kind[:1].upper() + step.kind[1:], [step.statement, step.remedy], step.code) for step in steps
    )


def _use(info: RunsInfo) -> list[Finding]:
    """Say how to use the result."""
    if info.best is None or not info.used_weights:
        return []
    if info.from_search:
        return [_predict(), *_simpler(info)]
    if info.is_online:
        return _restore(info)
    name = run_name(info.best)
    return [Finding("use the weights", f"Train with the weights of run {name}.", "", weights_code(info))]


def _predict() -> Finding:
    """Say how to predict with the model that `tuneloss fit` has saved."""
    saved, use = "The model is saved beside this page.", "Predict the rows of another table with it:"
    return Finding("use the model", saved, use, "tuneloss predict model.npz rows.csv")


def _simpler(info: RunsInfo) -> list[Finding]:
    """Name another model if its score is lower."""
    rival = find_rival(info)
    if rival is None or not rival.other < rival.score:
        return []
    statement = f"The {rival.measure} of the model called {rival.name!r} is lower."
    remedy = "Prefer that model, unless other rows show otherwise: on few test rows, such a difference can be chance."
    return [Finding("consider the other model", statement, remedy)]


def _restore(info: RunsInfo) -> list[Finding]:
    """Say how to use the weights of an online run, and to go back to its best model if the error has risen since."""
    use = "They can start another run, or stay fixed in it."
    found = [Finding("use the weights", "These weights are set in the loss now.", use, weights_code(info))]
    best, last = info.best, next((run for run in reversed(info.runs) if run.observation is not None), None)
    if best is None or best.observation is None or last is None or last.observation is None or best is last:
        return found
    score, ended = best.observation.score, last.observation.score
    if not ended - score > RISE * abs(score):
        return found
    texts, change = score_column([score, ended]), change_words(ended, score)
    statement = (
        f"The {info.measure} was {texts[0]} at {info.unit} {run_name(best)} and {texts[1]} at the last one"
        f"{f', {change}' if change else ''}."
    )
    return [Finding("go back to the best model", statement, "Take it from the tuner:", "tuner.restore_best()"), *found]


def _go_on(info: RunsInfo) -> list[Finding]:
    """Say whether further runs of a tuner are worth it."""
    runs = [run for run in info.runs if run.run is not None]
    if info.is_online or info.from_search or info.best is None or info.best not in runs:
        return []
    since = len(runs) - 1 - runs.index(info.best)
    if since >= STILL:
        statement = f"The last {since} runs brought no gain."
        return [Finding("stop", statement, "More runs in this box will hardly help.")]
    statement = "The last run is the best." if since == 0 else f"The best run is {since} before the last."
    return [Finding("go on", statement, "A few more runs may be better still.", more_runs_code(info))]


def _compare(info: RunsInfo) -> list[Finding]:
    """Ask for the score of the same run without tuning, if an online run has none to compare with."""
    if not info.is_online or find_rival(info) is not None or info.best is None or info.best.observation is None:
        return []
    score = info.best.observation.score
    if not math.isfinite(score):
        return []
    return [
        Finding(
            "see what tuning gained",
            "This journal has no other run to compare with.",
            f"Train once without `tuner.step()`, and give its best {info.measure}:",
            compare_code(info),
        )
    ]
