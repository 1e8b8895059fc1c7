"""The numbers of one tuner's runs: what was learned, and how well it predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.checks import Array, reading
from tuneloss.core.cost import Epsilon
from tuneloss.core.journal import read_lines
from tuneloss.core.learn import LearnedLoss, learn_loss
from tuneloss.core.observation import Observation
from tuneloss.core.runs import Run, best_run
from tuneloss.errors import InvalidInput, JournalError, SolverError

TIED = 1e-6  # of the loss: an observation this near to the argmin is one of the active constraints
CANCELLED = 1e-3  # of the squared gradients of the terms: what is left of their sum at a model trained to the end
ALIKE = 0.99  # the cosine from which on two terms' gradients cannot be told apart


@dataclass(frozen=True, eq=False)
class RunsInfo:
    """Runs of one box, and what LearnLoss says to those with the most to tell.

    observed: the runs that LearnLoss looks at: those with gradients, if there are any.
    learned: None if there is no observation, or no solution.
    reference: numbers of other models to compare with: {model: {measure: value}}.
    knots: where the slopes of learned regularizers change: {term: positions}; their weights are named term/right0 ...
        and term/left0 ...
    chosen: index of the run whose weights are used, if that is not the one of least error.
    note: in words, what else is to be known of its weights.
    """

    title: str
    box: Box
    runs: tuple[Run, ...]
    observed: tuple[Run, ...]
    learned: LearnedLoss | None
    reference: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    knots: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chosen: int | None = None
    note: str = ""

    @property
    def best(self) -> Run | None:
        """The run that was chosen, if the journal names one; else the best told."""
        return self.runs[self.chosen] if self.chosen is not None else best_run(self.runs)

    @property
    def measure(self) -> str:
        """What decides which of two models is better."""
        told = [run.observation for run in self.runs if run.observation is not None]
        return "metric" if told and told[0].metric is not None else "validation error"

    @property
    def observations(self) -> list[Observation]:
        """Of the runs in `observed`."""
        return [run.observation for run in self.observed if run.observation is not None]


def read_runs(path: Path) -> RunsInfo:
    """The runs of a journal. Nothing is written.

    Its first line may have, beside the box, a `title`, a `reference`, `knots`, `chosen` and a `note`, as in `RunsInfo`,
    and the `epsilon` to learn with.
    """
    header, records = read_lines(path)
    if "box" not in header:
        raise JournalError(f"The journal {path} must begin with its box; found none. It is another file.")
    with reading(f"The first line of {path}"):
        title, reference = str(header.get("title", path.stem)), header.get("reference", {})
        known = {str(m): {str(k): float(v) for k, v in values.items()} for m, values in reference.items()}
        knots = {str(term): [float(a) for a in row] for term, row in header.get("knots", {}).items()}
        epsilon = header.get("epsilon", "balanced")
        chosen, note = header.get("chosen"), str(header.get("note", ""))
        if chosen is not None and not 0 <= int(chosen) < len(records):
            raise ValueError(f"chosen is run {chosen} of {len(records)}")
    box = Box.from_state_dict(header["box"])
    runs = [Run.from_dict(record) for record in records]
    info = runs_info(title, box, runs, math.inf if epsilon == "inf" else epsilon)
    return replace(info, reference=known, knots=knots, chosen=chosen, note=note)


def runs_info(title: str, box: Box, runs: Sequence[Run], epsilon: Epsilon = "balanced") -> RunsInfo:
    """What there is to say of these runs."""
    if not runs:
        raise InvalidInput("A report needs at least one run; found none. Tell the tuner the first one.")
    known = [run for run in runs if run.observation is not None]
    with_gram = [run for run in known if run.observation is not None and run.observation.gram is not None]
    observed = tuple(with_gram or known)
    found = [run.observation for run in observed if run.observation is not None]
    try:
        learned = learn_loss(found, box, epsilon=epsilon if with_gram else 0.0) if found else None
    except SolverError:
        learned = None
    return RunsInfo(title, box, tuple(runs), observed, learned)


def contributions(run: Run, box: Box) -> dict[str, float]:
    """Each term's weight times its value, at one model."""
    if run.weights is None or run.observation is None:
        return {}
    return {name: run.weights[name] * float(f) for name, f in zip(box.names, run.observation.features, strict=True)}


def regularizer(info: RunsInfo, term: str) -> tuple[Array, Array] | None:
    """A learned regularizer of the best run: positions, a little beyond its knots, and values less the least one."""
    best, knots = info.best, np.array(info.knots[term])
    names = [[f"{term}/{side}{j}" for j in range(len(knots))] for side in ("right", "left")]
    if best is None or best.weights is None or not all(name in best.weights for side in names for name in side):
        return None
    right, left = (np.array([best.weights[name] for name in side]) for side in names)
    pad = 0.05 * float(np.ptp(knots)) or 1.0
    x = np.concatenate([[knots[0] - pad], knots, [knots[-1] + pad]])
    r = np.maximum(x[:, None] - knots, 0) @ right + np.maximum(knots - x[:, None], 0) @ left
    return x, r - r.min()


def losses_of(observations: Sequence[Observation], learned: LearnedLoss) -> Array:
    """The learned loss of each model: weights . features."""
    return np.array([o.features @ learned.weights for o in observations])


def predicted_errors(observations: Sequence[Observation], learned: LearnedLoss) -> Array:
    """What the learned loss says the error of each model is: weights . features / scale; NaN at scale 0."""
    losses = losses_of(observations, learned)
    return losses / learned.scale if learned.scale > 0 else np.full(len(losses), math.nan)


def alignment(observations: Sequence[Observation], weights: Array) -> Array:
    """The cosine between the gradient of the loss with these weights and that of the error, at each model."""
    found = []
    for o in observations:
        if o.gram is None:
            found.append(math.nan)
            continue
        inner, own, other = weights @ o.gram[:-1, -1], weights @ o.gram[:-1, :-1] @ weights, o.gram[-1, -1]
        size = math.sqrt(max(float(own), 0.0) * float(other))
        found.append(float(inner) / size if size > 0 else math.nan)
    return np.array(found)


def is_converged(run: Run, box: Box) -> bool:
    """Whether the gradients of the terms cancel under the run's own weights, as at the end of training."""
    o = run.observation
    if o is None or o.gram is None or run.weights is None:
        return False
    weights = box.as_array(run.weights)
    apart = float(weights**2 @ np.diagonal(o.gram)[:-1])
    return bool(weights @ o.gram[:-1, :-1] @ weights <= CANCELLED * apart)


def bounds_met(weights: Array, box: Box) -> dict[str, str]:
    """Which free weights are at their lower or upper bound."""
    if box.is_simplex:
        return {name: "lower" for name, w in zip(box.names, weights, strict=True) if w <= 0}
    found = {}
    for name, w, low, high in zip(box.names, weights, box.lower, box.upper, strict=True):
        near = 1e-9 * max(1.0, abs(w))
        if low < high and (w <= low + near or w >= high - near):
            found[name] = "lower" if w <= low + near else "upper"
    return found


def rivals(observations: Sequence[Observation], learned: LearnedLoss) -> list[int]:
    """The other observations that the learned loss likes as well as its argmin: the active constraints."""
    losses = losses_of(observations, learned)
    close = losses - losses[learned.argmin] <= TIED * max(float(np.abs(losses).max()), 1e-300)
    return [int(i) for i in np.flatnonzero(close) if i != learned.argmin]


def alike(observations: Sequence[Observation], box: Box) -> list[tuple[str, str, float]]:
    """Pairs of terms that cannot be told apart: the cosine between their gradients, over all models together."""
    grams = [o.gram[:-1, :-1] for o in observations if o.gram is not None]
    if not grams:
        return []
    total = np.sum(grams, axis=0)
    size = np.sqrt(np.diagonal(total))
    free = np.flatnonzero((size > 0) & ~(box.pinned & (box.lower == 0)))
    pairs = []
    for position, i in enumerate(free):
        for j in free[position + 1 :]:
            cosine = float(total[i, j] / (size[i] * size[j]))
            if abs(cosine) >= ALIKE:
                pairs.append((box.names[i], box.names[j], cosine))
    return pairs


def matched_share(info: RunsInfo) -> float:
    """scale * error as a part of the loss, over all models: about 1 where the loss follows the error."""
    if info.learned is None:
        return math.nan
    losses = losses_of(info.observations, info.learned)
    errors = np.array([o.error for o in info.observations])
    return float(info.learned.scale * np.abs(errors).mean() / max(float(np.abs(losses).mean()), 1e-300))


def explained(info: RunsInfo) -> float:
    """How much of the spread of errors the learned loss explains, at most 1; NaN for less than three models."""
    errors = np.array([o.error for o in info.observations])
    if info.learned is None or len(errors) < 3 or not np.ptp(errors) > 0:
        return math.nan
    left = np.square(predicted_errors(info.observations, info.learned) - errors).sum()
    return float(1 - left / np.square(errors - errors.mean()).sum())
