"""Findings: what a user should act on after some runs, with the numbers that show it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuneloss.report.learned_info import bounds_met, error_share, predictions, similar_terms
from tuneloss.report.next_code import wider_box_code
from tuneloss.report.runs_info import RunsInfo
from tuneloss.report.words import listed, term_words, weight_text

SMALL_SHARE = 0.1  # if scaled errors are below this share of the loss, the loss says little about the error
MOST_PAIRS = 3  # of terms that cannot be told apart; more are summed up
POOR_FIT = 0.3  # if the loss explains less than this share of the variance of errors, its fit is poor


@dataclass(frozen=True)
class Finding:
    """One finding.

    Parameters
    ----------
    kind : str
        The kind of finding, as docs/troubleshooting.md names it.
    statement : str
        What was found, with the number.
    remedy : str
        What to do.
    code : str
        What to type; empty if there is nothing to type.
    """

    kind: str
    statement: str
    remedy: str
    code: str = ""


def findings(info: RunsInfo) -> list[Finding]:
    """Return all findings."""
    single = [_failures(info), _small_scale(info), _poor_fit(info), _few_runs(info)]
    return _at_bounds(info) + [finding for finding in single if finding is not None] + _similar_terms(info)


def _failures(info: RunsInfo) -> Finding | None:
    """Report failed runs."""
    failures = [run.failed for run in info.runs if run.failed is not None]
    if not failures:
        return None
    return Finding(
        "failed runs",
        f"{len(failures)} of {len(info.runs)} runs failed. The last one failed because: {failures[-1]}.",
        "Proposals keep away from such weights. A smaller learning rate or a narrower box may help more.",
    )


def _small_scale(info: RunsInfo) -> Finding | None:
    """Report a scale near 0."""
    share = error_share(info)
    if not share < SMALL_SHARE:
        return None
    return Finding(
        "scale near 0",
        f"The scaled error is {100 * share:.2g}% of the loss: no weights in the box make the loss follow the error.",
        "Widen the box, or add a term that follows the error, such as a loss on other data or with other noise.",
    )


def _poor_fit(info: RunsInfo) -> Finding | None:
    """Report a loss that explains little of the differences between errors."""
    fit = predictions(info)
    if info.from_search or fit is None or not fit.explained < POOR_FIT:
        return None
    return Finding(
        "poor fit",
        f"The learned loss explains {100 * max(fit.explained, 0):.0f}% of the differences between the models' errors.",
        "Trust the best run more than the next proposal. Other terms, or runs with more similar weights, may help.",
    )


def _few_runs(info: RunsInfo) -> Finding | None:
    """Report models without gradients that are too few for the number of weights."""
    k, m = int((~info.box.pinned).sum()), len(info.observations)
    if m > k or info.has_gradients or not m:
        return None
    return Finding(
        "few runs",
        f"{m} model{'s' if m > 1 else ''} without gradients cannot determine {k} weights.",
        "Provide gradients (`Observation.from_gradients`), or train a few more models first.",
    )


def _at_bounds(info: RunsInfo) -> list[Finding]:
    """Report weights in use that are at a bound, and learned regularizers that are 0. A search sets its own bounds."""
    weights = info.used_weights
    if info.from_search or not weights:
        return []
    unused = [
        term
        for term in info.header.knots
        if not any(weights[name] for name, other in info.hinges.items() if other == term)
    ]
    point = np.array([weights[name] for name in info.box.names])
    met = {name: side for name, side in bounds_met(point, info.box).items() if name not in info.hinges}
    lower = dict(zip(info.box.names, info.box.lower, strict=True))
    zero = [name for name, side in met.items() if side == "lower" and lower[name] == 0]
    sides = {name: side for name, side in met.items() if name not in zero}
    found = [_zero_regularizer(term) for term in unused]
    found += [_zero_weights(zero, exact=not any(weights[name] for name in zero))] if zero else []
    return found + ([_at_bound(info, sides)] if sides else [])


def _zero_regularizer(term: str) -> Finding:
    """Report a learned regularizer that is 0 everywhere."""
    statement = f"The learned regularizer {term_words(term)} is 0 everywhere."
    return Finding("weight at its bound", statement, f"These runs suggest that {term_words(term)} can be left out.")


def _zero_weights(names: list[str], *, exact: bool) -> Finding:
    """Report weights that are 0; with `exact` false, some of them almost."""
    terms = listed(map(term_words, names))
    zero = "0" if exact else "0, or almost"
    statement = f"The weight{'s' if len(names) > 1 else ''} of {terms} {'are' if len(names) > 1 else 'is'} {zero}."
    does = "do not help and can" if len(names) > 1 else "does not help and can"
    return Finding("weight at its bound", statement, f"These runs suggest that {terms} {does} be left out.")


def _at_bound(info: RunsInfo, sides: dict[str, str]) -> Finding:
    """Report weights at a bound that is not 0, with the code that continues in a wider box."""
    weights = info.used_weights
    said = listed(f"{term_words(name)} ({side}, {weight_text(weights[name])})" for name, side in sides.items())
    statement = f"{'A weight is at its bound' if len(sides) == 1 else 'Weights at their bounds'}: {said}."
    remedy = "Widen the box and go on, unless you have a reason for the bound."
    return Finding("weight at its bound", statement, remedy, wider_box_code(info, sides))


def _similar_terms(info: RunsInfo) -> list[Finding]:
    """Report pairs of terms that cannot be told apart."""
    pairs = [pair for pair in similar_terms(info.observations, info.box) if info.hinges.keys().isdisjoint(pair[:2])]
    if len(pairs) > MOST_PAIRS:
        return [_many_similar_terms(pairs)]
    leave = "" if info.from_search else "Leave one of them out, or pin it. "
    return [
        Finding(
            "two terms alike",
            f"The gradients of {term_words(first)} and {term_words(second)} have a cosine of {cosine:.4f}, so the runs "
            "determine only the sum of their effects.",
            f"{leave}Do not read much into the ratio of their weights.",
        )
        for first, second, cosine in pairs
    ]


def _many_similar_terms(pairs: list[tuple[str, str, float]]) -> Finding:
    """Report many pairs of terms that cannot be told apart as one finding."""
    names = listed(f"{term_words(first)} and {term_words(second)}" for first, second, _ in pairs[:3])
    return Finding(
        "two terms alike",
        f"{len(pairs)} pairs of terms have almost the same gradients, such as {names}, so the runs determine only the "
        "sum of their effects.",
        "Leave some of them out, or pin them. Do not read much into the ratios of their weights.",
    )
