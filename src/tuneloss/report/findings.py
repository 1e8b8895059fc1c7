"""Findings: what a user should act on after some runs, with the numbers that show it."""

from __future__ import annotations

from dataclasses import dataclass

from tuneloss.report.learned_info import bounds_met, error_share, predictions, similar_terms
from tuneloss.report.runs_info import RunsInfo

SMALL_SHARE = 0.1  # if scaled errors are below this share of the loss, the loss says little about the error
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
    """

    kind: str
    statement: str
    remedy: str


def findings(info: RunsInfo) -> list[Finding]:
    """Return all findings."""
    single = [_failures(info), _small_scale(info), _poor_fit(info), _few_runs(info)]
    return [finding for finding in single if finding is not None] + _at_bounds(info) + _similar_terms(info)


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
    """Report weights at a bound, and learned regularizers that are 0."""
    if info.learned is None:
        return []
    weights = info.learned.as_dict()
    zero = [
        term
        for term in info.header.knots
        if not any(weights[name] for name, other in info.hinges.items() if other == term)
    ]
    met = {name: side for name, side in bounds_met(info.learned.weights, info.box).items() if name not in info.hinges}
    return [_zero_regularizer(term) for term in zero] + [_at_bound(n, side, weights[n]) for n, side in met.items()]


def _zero_regularizer(term: str) -> Finding:
    """Report a learned regularizer that is 0 everywhere."""
    statement = f"The learned regularizer {term} is 0 everywhere."
    return Finding("weight at its bound", statement, f"These runs suggest that {term} can be left out.")


def _at_bound(name: str, side: str, weight: float) -> Finding:
    """Report one weight at a bound."""
    remedy = f"{'Lower' if side == 'lower' else 'Raise'} the bound, unless you have a reason for it."
    if side == "lower" and weight == 0:
        remedy = f"These runs suggest that {name} does not help and can be left out."
    return Finding("weight at its bound", f"The learned weight of {name} is at its {side} bound, {weight:.3g}.", remedy)


def _similar_terms(info: RunsInfo) -> list[Finding]:
    """Report pairs of terms that cannot be told apart."""
    pairs = [pair for pair in similar_terms(info.observations, info.box) if info.hinges.keys().isdisjoint(pair[:2])]
    leave = "" if info.from_search else "Leave one of them out, or pin it. "
    return [
        Finding(
            "two terms alike",
            f"The gradients of {first} and {second} have a cosine of {cosine:.4f}, so the runs determine only the "
            "sum of their effects.",
            f"{leave}Do not read much into the ratio of their weights.",
        )
        for first, second, cosine in pairs
    ]
