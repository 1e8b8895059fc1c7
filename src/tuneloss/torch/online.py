"""TuneLoss inside one training run: the loss is learned anew after each epoch (sections 3.1 and 4.3)."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from tuneloss.core.checks import as_integer, reading
from tuneloss.core.cost import check_epsilon
from tuneloss.core.learn import LearnedLoss, Learner, check_objective
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.torch.observing.batches import Count, check_count, check_loader
from tuneloss.torch.observing.observe import observe
from tuneloss.torch.observing.passes import Error
from tuneloss.torch.run_journal import write_journal
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.penalties import L2
from tuneloss.torch.terms.piecewise import ConvexPiecewiseLinear
from tuneloss.torch.terms.selection import Select, trainable
from tuneloss.torch.terms.source import check_function, describe
from tuneloss.torch.wrappers import bare
from tuneloss.tuning.history import Record, frame
from tuneloss.tuning.locality import recent, span, without_gram
from tuneloss.types import Array, Epsilon, Objective

Start = Literal["now", "rise"]
Constraints = Literal["all", "window", "none"]
VERSION = 1
RISE = 0.05  # tuning is said to hurt when the error stays this far above the best


class OnlineTuner:
    """Learns the weights of a loss while a model trains; call `step` after each epoch, like a scheduler.

    Each step observes the model, learns the weights by `learn_loss` from all observations so far, and sets them in
    the loss. The first step also places the knots of every `ConvexPiecewiseLinear` (app. B).

    model, loss, error, train, validation, metric: as for `observe`.
    optimizer: if given, a warning says if its weight decay acts beside an L2 term.
    start: "rise" only observes until the error first rises, as in app. B: until then there is nothing to regularize;
        "now" learns from the first step on.
    every: observe at every `every`-th call of `step` only; so it can be called after each optimizer step.
    objective, epsilon, offset: as for `learn_loss`; by default gradients only (an infinite epsilon).
    window: how many of the last observations count in the cost; None for all.
    decay: how much less an observation counts than the next one, e.g. 0.9; None for equally.
    constraints: which observations the argmin constraints hold for: "all", those in the "window", or "none".
    damping: how much of the old loss stays: damping * old + (1 - damping) * learned, where each is weights / scale, a
        loss in units of error: so a step whose scale shoots up, since no weights explain the error, moves little. One
        model tells little, and errors of neighbouring epochs differ by luck; 0 sets what was learned, as in the paper.
    batches: as for `observe`; "auto" keeps a step cheap beside an epoch.
    validation_batches, params, draws, merge: as for `observe`.
    seed: the n-th call of `step` observes with seed + n: other batches, where they are shuffled, and other masks and
        transforms each time, so that their luck averages out over the window.
    keep_best: keep a copy of the model at its least error (or metric), for `restore_best`.
    patience: after so many steps in a row with an error 5% above the best, a warning says that tuning may hurt.

    >>> import torch
    >>> model, data = nn.Linear(2, 1), [torch.ones(4, 2)]
    >>> fit = lambda model, batch: (model(batch) - 1).square().mean()
    >>> loss = LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1)})
    >>> tuner = OnlineTuner(model, loss, error=fit, train=data, validation=data, start="now")
    >>> learned = tuner.step()
    >>> round(learned.as_dict()["l2"], 6)      # training data is validation data: nothing to regularize
    0.0
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LinearLoss,
        error: Error,
        train: Any,
        validation: Any,
        *,
        metric: Error | None = None,
        optimizer: Optimizer | None = None,
        start: Start = "rise",
        every: int = 1,
        objective: Objective = "calibrated",
        epsilon: Epsilon = math.inf,
        window: int | None = 10,
        decay: float | None = None,
        offset: bool = True,
        constraints: Constraints = "none",
        damping: float = 0.7,
        batches: Count = "auto",
        validation_batches: Count = 100,
        params: Select | None = None,
        draws: int = 1,
        seed: int = 0,
        merge: bool = True,
        keep_best: bool = True,
        patience: int = 10,
    ) -> None:
        if not isinstance(loss, LinearLoss):
            raise InvalidInput(
                f"`loss` must be a LinearLoss; found {describe(loss)}. The order is OnlineTuner(model, loss, error, "
                "train, validation)."
            )
        trainable(model)
        check_function(error, "error")
        if metric is not None:
            check_function(metric, "metric")
        check_loader(train, "train")
        check_loader(validation, "validation")
        check_count(batches, "batches")
        check_count(validation_batches, "validation_batches")
        check_objective(objective)
        check_epsilon(epsilon)
        if start not in ("now", "rise"):
            raise InvalidInput(f'`start` must be "now" or "rise"; found {start!r}.')
        if decay is not None and not 0 < decay <= 1:
            raise InvalidInput(f"`decay` must be above 0 and at most 1; found {decay}. Give e.g. 0.9.")
        if constraints not in ("all", "window", "none"):
            raise InvalidInput(f'`constraints` must be "all", "window" or "none"; found {constraints!r}.')
        if not 0 <= damping < 1:
            raise InvalidInput(f"`damping` must be at least 0 and below 1; found {damping}. Give e.g. 0.7.")
        self.offset, self.constraints, self.damping = offset, constraints, float(damping)
        self.model, self.loss, self.error, self.metric = model, loss, error, metric
        self.train, self.validation = train, validation
        self.start, self.every = start, as_integer(every, "every", 1)
        self.patience = as_integer(patience, "patience", 1)
        self.objective, self.epsilon, self.decay = objective, epsilon, decay
        self.window = None if window is None else as_integer(window, "window", 1)
        self.options: dict[str, Any] = {
            "batches": batches,
            "validation_batches": validation_batches,
            "params": params,
            "draws": as_integer(draws, "draws", 1),
            "merge": merge,
        }
        self.seed, self.keep_best = as_integer(seed, "seed", 0), keep_best
        self.learned: LearnedLoss | None = None
        self._calls, self._tuning, self._warned_of = 0, False, -1
        self._unit = 0.0  # average of 1 / scale, how much error a unit of loss is; 0 before the first
        self._observations: list[Observation] = []  # the last of them, or all where all constrain
        self._learner = Learner(loss.box)
        self._history: list[Record] = []
        self._best_index = -1
        self._best_model: dict[str, Any] = {}
        if optimizer is not None:
            _warn_of_weight_decay(optimizer, loss)

    @property
    def history(self) -> list[Record]:
        """One record a step: see `Record`."""
        return list(self._history)

    def history_frame(self) -> Any:
        """The history as a pandas DataFrame, a row a step."""
        return frame(self._history)

    @property
    def best(self) -> Record | None:
        """The record of the model of least error, or metric; None before the first step."""
        return self._history[self._best_index] if self._history else None

    def step(self) -> LearnedLoss | None:
        """Observe the model, learn the weights and set them; returns what was learned, None if nothing was.

        If anything fails, the model, the loss and the tuner are as they were.
        """
        if (self._calls + 1) % self.every:
            self._calls += 1
            return None
        began = time.perf_counter()
        with ExitStack() as stack:
            for _, term, _ in self.loss.penalty_terms():
                if isinstance(term, ConvexPiecewiseLinear):
                    stack.enter_context(term.unplaced_on_error())
            self.loss.place_knots(self.model)
            seen = observe(
                self.model,
                self.loss,
                self.error,
                self.train,
                self.validation,
                metric=self.metric,
                seed=self.seed + self._calls,
                **self.options,
            )
            rises = bool(self._history) and seen.score > self._observations[-1].score
            tuning = self._tuning or self.start == "now" or rises
            learned, note = self._learn(seen) if tuning else (None, f"observed only: start={self.start!r}")
        self._calls += 1
        self._tuning, self.learned = tuning, learned or self.learned
        record = Record.of(self._calls, seen, self.loss.as_dict(), learned, note)
        self._observations.append(seen)
        self._forget()
        self._history.append(record)
        self._best_index = _better(self._history, self._best_index, len(self._history) - 1)
        if learned is not None:
            self.loss.set_weights(self._damped(learned))
        if self.keep_best and self._best_index == len(self._history) - 1:
            self._best_model = {name: _copy(value) for name, value in bare(self.model).state_dict().items()}
        record.seconds = time.perf_counter() - began
        self._warn_if_it_hurts()
        return learned

    def restore_best(self) -> Record:
        """The way back: put the best model, and the weights it was trained with, into model and loss."""
        if not self._best_model:
            raise InvalidInput(
                "`restore_best` needs a model that was kept; found none. Call `step` first, with keep_best=True."
            )
        best = self._history[self._best_index]
        bare(self.model).load_state_dict(self._best_model)
        self.loss.set_weights(best.weights)
        return best

    def write_journal(self, path: str | os.PathLike[str]) -> Path:
        """Write all steps to a new file, of which `tuneloss report` makes a page."""
        return write_journal(path, self.loss, self._history, self._observations)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on, the loss's state and the best model included; safe for `weights_only=True`."""
        return {
            "version": VERSION,
            "names": list(self.loss.names),
            "loss": self.loss.state_dict(),
            "calls": self._calls,
            "tuning": self._tuning,
            "warned_of": self._warned_of,
            "unit": self._unit,
            "observations": [o.to_dict() for o in self._observations],
            "history": [record.to_dict() for record in self._history],
            "best_model": dict(self._best_model),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; the loss is set as well."""
        with reading("An online tuner's state"):
            if state["version"] != VERSION:
                raise InvalidInput(f"An online tuner's state must have version {VERSION}; found {state['version']!r}.")
            if tuple(state["names"]) != self.loss.names:
                raise InvalidInput(
                    f"The state must be of a tuner whose loss has the weights {list(self.loss.names)}; found "
                    f"{list(state['names'])}. Build the loss as it was when the state was saved."
                )
            observations = [Observation.from_dict(record) for record in state["observations"]]
            history = [Record.from_dict(record) for record in state["history"]]
            counters = int(state["calls"]), bool(state["tuning"]), int(state["warned_of"]), float(state["unit"])
            best_model = {str(name): _copy(value) for name, value in state["best_model"].items()}
            loss = state["loss"]
        self.loss.load_state_dict(loss)
        self._observations, self._history, self._best_model = observations, history, best_model
        self._best_index = reduce(partial(_better, history), range(len(history)), -1)
        self._calls, self._tuning, self._warned_of, self._unit = counters
        self.learned = None

    def _learn(self, seen: Observation) -> tuple[LearnedLoss | None, str]:
        """What the observations that count, or constrain, and this one say."""
        used = [*self._observations, seen]
        first = len(self._history) + 1 - len(used)
        try:
            learned = self._learner.learn(
                used,
                objective=self.objective,
                epsilon=self.epsilon,
                sample_weight=recent(len(used), self.window, self.decay),
                offset=self.offset,
                constrained=self.constraints != "none",
            )
        except SolverError as reason:
            warnings.warn(f"The weights stay as they are, since {reason}", RuntimeWarning, stacklevel=3)
            return None, str(reason)
        return replace(learned, argmin=learned.argmin + first), learned.note

    def _forget(self) -> None:
        """Forget the observation that the next one pushes out of those that count; if all constrain, its gram only."""
        kept = span(self.window, self.decay)
        if kept is None or len(self._observations) < kept:
            return
        i = len(self._observations) - kept
        if self.constraints == "all":
            self._observations[i] = without_gram(self._observations[i])
        else:
            del self._observations[: i + 1]

    def _damped(self, learned: LearnedLoss) -> Array:
        """The average of old and learned weights, each counted by 1 / scale."""
        calibrated = learned.objective == "calibrated" and learned.scale > 0
        unit = 1 / learned.scale if calibrated else self._unit or 1.0  # the paper's form has scales near 0
        old, new = self.damping * (self._unit or unit), (1 - self.damping) * unit
        self._unit = old + new
        return np.asarray((old * np.array(self.loss.numbers()) + new * learned.weights) / self._unit)

    def _warn_if_it_hurts(self) -> None:
        best = self._best_index
        recent = self._history[-self.patience :]
        limit = self._history[best].error * (1 + RISE)
        if (
            best != self._warned_of
            and len(self._history) - 1 - best >= self.patience
            and all(record.learned is not None and record.error > limit for record in recent)
        ):
            self._warned_of = best
            warnings.warn(
                f"Tuning may hurt: the error has been more than {RISE:.0%} above its best, "
                f"{self._history[best].error:.4g} at step {self._history[best].step}, for {self.patience} steps, and "
                f"is {recent[-1].error:.4g} now. `restore_best()` brings that model and its weights back; then a "
                "smaller box, more validation data, more `draws` or batches, or another window may help.",
                RuntimeWarning,
                stacklevel=3,
            )


def _better(history: Sequence[Record], best: int, i: int) -> int:
    """The better one of two records: of less metric, or error, then less error, then the later one."""
    if best < 0:
        return i
    old, new = ((history[at].score, history[at].error) for at in (best, i))
    return i if new <= old else best


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _warn_of_weight_decay(optimizer: Optimizer, loss: LinearLoss) -> None:
    decays = [group.get("weight_decay", 0) for group in optimizer.param_groups]
    names = [name for name, term, _ in loss.penalty_terms() if isinstance(term, L2)]
    if any(decays) and names:
        warnings.warn(
            f"The optimizer has weight decay {max(decays):g} beside the L2 term {names[0]!r}: both shrink the "
            "parameters, and only one is tuned. Set weight_decay=0.",
            UserWarning,
            stacklevel=3,
        )
