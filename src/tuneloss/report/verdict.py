"""The headline of a page: how good the model is, against what, and which weight did most of it."""

from __future__ import annotations

from dataclasses import dataclass

from tuneloss.report.gains import gain_shares
from tuneloss.report.runs_info import RunsInfo, run_name
from tuneloss.report.words import change_words, count_words, score_column, term_words
from tuneloss.tuning.run import SCORE

TUNED = "tuned"  # the name of the tuned model among the models that a header compares
MOST = 0.5  # a weight with a larger share of the gain did most of it
SLIGHT = 0.01  # relative: a smaller difference is hardly one


@dataclass(frozen=True)
class Verdict:
    """The headline.

    Parameters
    ----------
    headline : str
        One line with the numbers.
    sentences : tuple of str
        What the numbers are, and what they do not show.
    """

    headline: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Rival:
    """What the model is compared with: a measure, its value for the model, the other's name, and its value."""

    measure: str
    score: float
    name: str
    other: float


def verdict(info: RunsInfo) -> Verdict:
    """Return the headline of the page about these runs."""
    best = info.best
    if best is None or best.observation is None:
        n = count_words(len(info.runs), info.unit)
        return Verdict(f"No result yet: none of {n} has both weights and an observation.", ())
    rival = find_rival(info)
    if rival is None:
        return _alone(info)
    text, other = score_column([rival.score, rival.other])
    return Verdict(f"{_compared(info, rival, text, other)}", tuple(_sentences(info, rival)))


def find_rival(info: RunsInfo) -> Rival | None:
    """Return what to compare with: the best other model that the header names, or the first run of a tuner."""
    reference, best = info.header.reference, info.best
    if best is None or best.observation is None:
        return None
    if reference.get(TUNED):
        measure = next(iter(reference[TUNED]))
        others = {name: values[measure] for name, values in reference.items() if name != TUNED and measure in values}
        return _lowest(measure, reference[TUNED][measure], others)
    if scores := {name: values[SCORE] for name, values in reference.items() if SCORE in values}:
        return _lowest(info.measure, best.observation.score, scores)
    first = next((run for run in info.runs if run.weights is not None and run.observation is not None), None)
    if info.is_online or first is None or first.observation is None or sum(r.run is not None for r in info.runs) < 2:
        return None
    return Rival(info.measure, best.observation.score, "the first run", first.observation.score)


def _lowest(measure: str, score: float, others: dict[str, float]) -> Rival | None:
    """Compare a score with the lowest of others."""
    if not others:
        return None
    name = min(others, key=lambda other: others[other])
    return Rival(measure, score, name, others[name])


def _compared(info: RunsInfo, rival: Rival, score: str, other: str) -> str:
    """Return the headline that compares two scores."""
    difference = rival.score - rival.other
    numbers = f"{score} against {other} of {rival.name}"
    if not difference < 0:
        return f"No gain: {numbers}." if difference > 0 else f"No gain: {score}, as {rival.name}."
    change = change_words(rival.score, rival.other)
    if -difference < SLIGHT * abs(rival.other):
        return f"Hardly a gain: {numbers}{f', {change}' if change else ''}."
    return f"{numbers}{f': {change}' if change else ''}{_did_most(info)}."


def _did_most(info: RunsInfo) -> str:
    """Name the weight that brought most of the gain, if gradients tell."""
    shares = gain_shares(info)
    name = max(shares, key=lambda other: shares[other], default="")
    if not name or shares[name] <= MOST or len(shares) < 2:
        return ""
    return f"; {term_words(info.hinges.get(name, name))} did most of it"


def _sentences(info: RunsInfo, rival: Rival) -> list[str]:
    """Say what is compared, how it was chosen, and which weights gradients credit."""
    best = info.best
    assert best is not None  # as `verdict` has checked
    said = [f"The numbers are the {rival.measure}; lower is better."]
    if rival.measure == info.measure:
        n = count_words(sum(run.observation is not None for run in info.runs), info.unit)
        said += [f"The model is that of {info.unit} {run_name(best)}, the {info.best_or_chosen} of {n}."]
        said += ["It was chosen by the same examples, so expect a little less on new ones."]
    said += _shared_words(info)
    if _did_most(info):
        parts = sorted(gain_shares(info).items(), key=lambda item: -item[1])[:3]
        listed = ", ".join(f"{term_words(name)} {100 * share:.0f}%" for name, share in parts)
        said.append(f"Shares of the gain are estimates from the gradients at the runs: {listed}.")
    return said


def _shared_words(info: RunsInfo) -> list[str]:
    """Compare further numbers of the best run, such as its test error, with those of the first run."""
    first = next((run for run in info.runs if run.observation is not None and run.run is not None), None)
    best = info.best
    if first is None or best is None or best is first or info.header.reference:
        return []
    said = []
    for name in (name for name in best.info if name in first.info):
        score, other = score_column([best.info[name], first.info[name]])
        change = change_words(best.info[name], first.info[name])
        said.append(f"Its {name} is {score}, against {other} of the first run{f' ({change})' if change else ''}.")
    return said


def _alone(info: RunsInfo) -> Verdict:
    """Return the headline where there is nothing to compare with."""
    best = info.best
    assert best is not None  # as `verdict` has checked
    assert best.observation is not None
    scored = [run.observation for run in info.runs if run.observation is not None]
    score, last = score_column([best.observation.score, scored[-1].score])
    headline = f"A {info.measure} of {score} at {info.unit} {run_name(best)}"
    if len(scored) == 1:
        return Verdict(f"{headline}.", (f"There is only one {info.unit}, so there is nothing to compare with.",))
    ended = "" if best.observation is scored[-1] else f"; the last {info.unit} had {last}"
    gap = "This page does not know what the same run without tuning reaches, so it cannot tell what tuning gained."
    return Verdict(f"{headline}, the best of {len(scored)}{ended}.", (gap,))
