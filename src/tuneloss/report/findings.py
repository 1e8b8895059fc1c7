"""What to act on after some runs, in words with the number."""

from __future__ import annotations

from dataclasses import dataclass

from tuneloss.report.learned_info import alike, bounds_met, matched_share, predictions
from tuneloss.report.runs_info import RunsInfo

SMALL_SCALE = 0.1  # scale * error against the loss: below this, the loss says little about error
POOR_FIT = 0.3  # of the spread of errors that the loss must explain


@dataclass(frozen=True)
class Finding:
    """Something to act on: its kind, what was found, in numbers, and what to do."""

    kind: str
    found: str
    do: str


def findings(info: RunsInfo) -> list[Finding]:
    """All there is to act on."""
    found = [_failures(info), _scale(info), _fit(info), _few(info)]
    return [one for one in found if one is not None] + _at_bounds(info) + _alike(info)


def _failures(info: RunsInfo) -> Finding | None:
    failed = [run for run in info.runs if run.failed is not None]
    if not failed:
        return None
    return Finding(
        "failed runs",
        f"{len(failed)} of {len(info.runs)} runs failed, the last one so: {failed[-1].failed}.",
        "Proposals keep away from such weights; a smaller learning rate or a narrower box may be the better remedy.",
    )


def _scale(info: RunsInfo) -> Finding | None:
    share = matched_share(info)
    if not share < SMALL_SCALE:
        return None
    return Finding(
        "scale near 0",
        f"Scaled to the loss, the error is {100 * share:.2g}% of it: no weights in the box make the loss follow it.",
        "Add a term that does (one on other data, or another kind of noise), or widen the box.",
    )


def _fit(info: RunsInfo) -> Finding | None:
    found = predictions(info)
    if info.header.search is not None or found is None or not found.explained < POOR_FIT:
        return None
    return Finding(
        "poor fit",
        f"The learned loss explains {100 * max(found.explained, 0):.0f}% of how the errors of these models differ.",
        "Trust the best run more than the next proposal; other terms, or runs nearer to each other, may help.",
    )


def _few(info: RunsInfo) -> Finding | None:
    k, m = int((~info.box.pinned).sum()), len(info.observations)
    if m > k or any(o.gram is not None for o in info.observations) or not m:
        return None
    return Finding(
        "few runs",
        f"{m} model{'s' if m > 1 else ''} without gradients cannot determine {k} weights.",
        "Tell gradients (`Observation.from_gradients`), or train a few more models first.",
    )


def _at_bounds(info: RunsInfo) -> list[Finding]:
    if info.learned is None:
        return []
    found, weights = [], info.learned.as_dict()
    for term in info.header.knots:
        if not any(weights[name] for name, own in info.hinges.items() if own == term):
            what = f"The learned regularizer {term} is 0 everywhere."
            found.append(Finding("weight at its bound", what, f"As far as these runs tell, {term} can be left out."))
    for name, side in bounds_met(info.learned.weights, info.box).items():
        if name in info.hinges:
            continue
        what = f"The learned weight of {name} is at its {side} bound, {weights[name]:.3g}."
        do = f"{'Lower' if side == 'lower' else 'Raise'} the bound, if there is no reason for it."
        if side == "lower" and weights[name] == 0:
            do = f"As far as these runs tell, {name} does not help: it can be left out."
        found.append(Finding("weight at its bound", what, do))
    return found


def _alike(info: RunsInfo) -> list[Finding]:
    pairs = [pair for pair in alike(info.observations, info.box) if info.hinges.keys().isdisjoint(pair[:2])]
    leave = "" if info.header.search is not None else "Leave one of them out, or pin it. "
    return [
        Finding(
            "two terms alike",
            f"The gradients of {one} and {other} have a cosine of {cosine:.4f}: only their sum is known.",
            f"{leave}Do not read much into {one} against {other}.",
        )
        for one, other, cosine in pairs
    ]
