"""OnlineTuner: TuneLoss inside one training run of PyTorch (the paper's sections 3.1 and 4.3)."""

from __future__ import annotations

import math
import os
import secrets
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils._pytree import tree_map

from tuneloss.checks import as_integer, as_number, reading
from tuneloss.core.learn import LearnedLoss
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.ranking import best_index
from tuneloss.torch.observing.batches import number_of
from tuneloss.torch.observing.observe import ObserveOptions, check_call, observe_with
from tuneloss.torch.observing.passes import Error, Fits
from tuneloss.torch.observing.sampling_noise import PARTS
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.penalties import L2
from tuneloss.torch.wrappers import bare
from tuneloss.tuning.history import History, StepRecord
from tuneloss.tuning.online import OnlineLearner, OnlinePolicy
from tuneloss.tuning.online_journal import MADE_BY, scores_to_compare, write_online_journal
from tuneloss.tuning.run import Header

VERSION = 1  # of the state dict
LEAST_COST = 1e-6  # of observations, in parts of training: below it, a run has no second one
LARGER_STEPS = 2.0  # by how much weights may increase the size of a loss under SGD without a warning
HARMFUL_RISE = 0.05  # relative: tuning may hurt if the error stays this far above the best


class OnlineTuner:
    """Learns the weights of a loss while a model trains; call `step` after each epoch, like a scheduler.

    Each step observes the model, learns new weights from the last observations, and sets them in the loss. The first
    step also places the knots of every `ConvexPiecewiseLinear` (appendix B).

    Parameters
    ----------
    model : torch.nn.Module
        The model that is trained. Under DDP or FSDP2, pass the wrapped one.
    loss : LinearLoss
        The training loss, whose weights are tuned.
    error : callable
        The validation error to be minimised: ``(model, batch) -> mean over the batch``.
    train : iterable
        The training batches: a loader, or anything else that yields batches each time it is iterated over.
    validation : iterable
        The validation batches, in the same form.
    metric : callable, optional
        The number that decides which model is better, if not the error; called like `error`. Lower is better, so of
        an accuracy give its negative.
    selection : iterable, optional
        Other validation batches, which decide which model is better: see `observe`. By default `validation` decides.
    every : int, default 1
        Observe at every `every`-th call of `step` only, so that `step` can be called after each optimizer step. Then
        ``batches="auto"`` reads at most `every` training batches, no more than were trained on since the last step.
    cost : float, optional
        Observe as often as takes about this part of the time of training, such as 0.2, if `step` is called after each
        optimizer step. The first call observes. ``batches="auto"`` then reads at most 4 training batches, since small
        observations often are better than large ones rarely. To estimate times, forwards and backwards of examples are
        counted, so that a run can be repeated exactly. A training step is taken to be one on a batch of `train`. The
        products of the curvature metric are not counted.
    policy : OnlinePolicy, optional
        How to learn from the observations: see `tuneloss.tuning.OnlinePolicy`.
    observe : ObserveOptions, optional
        What to look at: see `tuneloss.torch.observing.ObserveOptions`. The n-th call of `step` uses the seed
        ``observe.seed + n``, so that batches, masks and transforms differ from step to step.
    optimizer : torch.optim.Optimizer, optional
        If given, warn if it has a weight decay in addition to an L2 term, or if it is SGD and larger weights would make
        its steps much larger.
    keep_best : bool, default True
        Whether to keep a copy of the best model for `restore_best`.

    Examples
    --------
    >>> import torch
    >>> model, data = nn.Linear(2, 1), [torch.ones(4, 2)]
    >>> fit = lambda model, batch: (model(batch) - 1).square().mean()
    >>> loss = LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1)})
    >>> tuner = OnlineTuner(model, loss, fit, train=data, validation=data, policy=OnlinePolicy(start="now"))
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
        selection: Any = None,
        every: int = 1,
        cost: float | None = None,
        policy: OnlinePolicy | None = None,
        observe: ObserveOptions | None = None,
        optimizer: Optimizer | None = None,
        keep_best: bool = True,
    ) -> None:
        check_call("OnlineTuner", model, loss, error, train, validation, metric, selection)
        self.observe_options = _check_type(observe, ObserveOptions, "observe")
        self.model, self.loss, self.error, self.metric = model, loss, error, metric
        self.train, self.validation, self.selection = train, validation, selection
        self.every, self.keep_best = as_integer(every, "every", 1), keep_best
        self.cost = None if cost is None else as_number(cost, "cost")
        if self.cost is not None and (self.cost < LEAST_COST or self.every > 1):
            raise InvalidInput(
                f"`cost` must be at least {LEAST_COST}, and `every` left at 1; found cost={cost!r}, every={every!r}. "
                "Give one of them."
            )
        self.learned: LearnedLoss | None = None
        self._learner = OnlineLearner(loss.box, _check_type(policy, OnlinePolicy, "policy"))
        self._history = History(loss.names)
        self._calls, self._best_index, self._warned_of = 0, -1, -1
        self._fits: Fits = {}
        self._due = 1 if self.cost is not None else self.every  # the next call that observes
        self._best_model: dict[str, Any] = {}
        self._best_terms: dict[str, Any] = {}  # what training changes of terms that are modules
        self._run_id = secrets.token_hex(8)
        if optimizer is not None:
            _warn_of_weight_decay(optimizer, loss)
            _warn_of_step_size(optimizer, loss)

    @property
    def policy(self) -> OnlinePolicy:
        """How the tuner learns."""
        return self._learner.policy

    @property
    def history(self) -> list[StepRecord]:
        """The records of all steps that observed."""
        return list(self._history)

    def history_frame(self) -> Any:
        """Return the history as a pandas DataFrame, one row per step."""
        return self._history.frame()

    def metrics(self) -> dict[str, float]:
        """Return the numbers of the last step that observed, flat, as trackers take them; empty before the first one.

        Returns
        -------
        dict of str to float
            The output of `StepRecord.metrics`. The keys are the same after each step.
        """
        return self._history[-1].metrics() if self._history else {}

    @property
    def best(self) -> StepRecord | None:
        """The record of the best model; None before the first step."""
        return self._history[self._best_index] if self._history else None

    def step(self) -> LearnedLoss | None:
        """Observe the model, learn the weights and set them.

        If anything fails, the model, the loss and the tuner stay as they were.

        Returns
        -------
        LearnedLoss or None
            None if nothing was learned: see `every` and the policy's `start`.
        """
        if self._calls + 1 < self._due:
            self._calls += 1
            return None
        began = time.perf_counter()
        with ExitStack() as knots:
            for placed in self.loss.layout.learned:
                knots.enter_context(placed.penalty.unplaced_on_error())
            self.loss.place_knots(self.model)
            observation, steps = self._observe()
            weights = self.loss.as_dict()
            # Of two equally good models, the later one is the best.
            is_best = not self._history or best_index([self._history[self._best_index], observation]) == 1
            best_model, best_terms = self._best_model, self._best_terms
            if is_best:  # copied here, since memory may not suffice
                best_model = _copies(bare(self.model).state_dict()) if self.keep_best else {}
                best_terms = _copies(_trained(self.loss.modules_of_terms)) if self.keep_best else {}
            box = self.loss.box  # low precision may have rounded the weights to the outside
            step = self._learner.step(observation, np.clip(list(weights.values()), box.lower, box.upper))
        self._calls += 1
        self._due = self._calls + (self.every if self.cost is None else max(1, math.ceil(steps / self.cost)))
        self.learned = step.learned or self.learned
        if step.learned is not None:
            self.loss.set_weights(step.weights)
        seconds = time.perf_counter() - began
        self._history.append(StepRecord.of(self._calls, observation, weights, step, seconds))
        if is_best:
            self._best_index, self._best_model, self._best_terms = len(self._history) - 1, best_model, best_terms
        if step.solver_failed:
            warnings.warn(f"The weights stay as they are, since {step.note}", RuntimeWarning, stacklevel=2)
        self._warn_if_it_hurts()
        return step.learned

    def restore_best(self) -> StepRecord:
        """Put the best model, and the weights that it was trained with, back into model and loss.

        Terms that are modules get back their parameters of that time too.

        Returns
        -------
        StepRecord
            The record of that model.
        """
        if not self._best_model:
            raise InvalidInput(
                "`restore_best` needs a model that was kept; found none. Call `step` until it observes, with "
                "keep_best=True."
            )
        best = self._history[self._best_index]
        bare(self.model).load_state_dict(self._best_model)
        if self._best_terms:
            self.loss.modules_of_terms.load_state_dict(self._best_terms, strict=False)
        self.loss.set_weights(best.weights)
        return best

    def hold(self, last: int = 10) -> dict[str, float]:
        """Fix the weights at the mean of those that the last steps learned.

        From here on, `step` observes the model and keeps the best one, but learns nothing. The weights can also be used
        for a new run, by a loss without a tuner.

        Parameters
        ----------
        last : int, default 10
            The number of steps to average over.

        Returns
        -------
        dict
            The weights by name.
        """
        learned = [record.learned for record in self._history if record.learned is not None]
        if not learned:
            raise InvalidInput("`hold` needs a step that learned weights; found none. Call `step` before.")
        recent = learned[-as_integer(last, "last", 1) :]
        self.loss.set_weights({name: float(np.mean([w[name] for w in recent])) for name in self.loss.names})
        self._learner.hold()
        return self.loss.as_dict()

    def write_journal(
        self,
        path: str | os.PathLike[str],
        *,
        unit: Literal["epoch", "step"] | None = None,
        compare: Mapping[str, float] | None = None,
    ) -> Path:
        """Write all steps to a journal, which `tuneloss report` turns into a page.

        Call it as often as you like, such as after each epoch: a journal that this run wrote is replaced, in one step
        that a kill cannot cut. A run that was resumed by `load_state_dict` is the same run. Only the last observations,
        which the policy still needs, have their gram.

        Parameters
        ----------
        path : path
            The file to write. If it exists, this run must have written it.
        unit : {"epoch", "step"}, optional
            What the report calls one call of `step`. By default "epoch", or "step" if `every` is above 1 or `cost` is
            given.
        compare : mapping of str to float, optional
            Scores of other runs by name, such as ``{"the same run without tuning": 0.46}``. A score is the metric, or
            the validation error if there is none. The report compares the best model with the best of them.

        Returns
        -------
        Path
            The path of the file.
        """
        if unit not in (None, "epoch", "step"):
            raise InvalidInput(f'`unit` must be "epoch" or "step"; found {unit!r}.')
        knots = {name: positions.tolist() for name, (positions, _) in self.loss.regularizers().items()}
        header = Header(
            self.loss.box,
            "One run, tuned as it trained",
            made_by=MADE_BY,
            reference=scores_to_compare(compare),
            knots=knots,
            final=self.loss.as_dict(),
            policy=self.policy,
            unit=unit or ("epoch" if self.every == 1 and self.cost is None else "step"),
            run_id=self._run_id,
        )
        return write_online_journal(Path(path), header, self._history, self._learner.observations)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the tuner, including the state of the loss and the best model.

        It can be loaded by ``torch.load(weights_only=True)``.
        """
        return {
            "version": VERSION,
            "names": list(self.loss.names),
            "loss": self.loss.state_dict(),
            "calls": self._calls,
            "due": self._due,
            "warned_of": self._warned_of,
            "run_id": self._run_id,
            **self._learner.state_dict(),
            "history": [record.to_dict() for record in self._history],
            "best_model": dict(self._best_model),
            "best_terms": dict(self._best_terms),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the state of the loss is loaded as well.

        Parameters
        ----------
        state : mapping
            The output of `state_dict`.
        """
        with reading("An online tuner's state"):
            if state["version"] != VERSION:
                raise InvalidInput(f"An online tuner's state must have version {VERSION}; found {state['version']!r}.")
            if tuple(state["names"]) != self.loss.names:
                raise InvalidInput(
                    f"The state must be of a tuner whose loss has the weights {list(self.loss.names)}; found "
                    f"{list(state['names'])}. Build the loss as it was when the state was saved."
                )
            history = History(self.loss.names, [StepRecord.from_dict(record) for record in state["history"]])
            learner = OnlineLearner(self.loss.box, self.policy)
            scored = self.metric is not None or self.selection is not None
            if history and (history[-1].metric is not None) != scored:
                raise InvalidInput(
                    "The state and the tuner must agree on whether a `metric` or a `selection` decides which model is "
                    f"best; the tuner has {'one' if scored else 'none'}, the state has {'none' if scored else 'one'}. "
                    "Build the tuner as it was when the state was saved."
                )
            if history:
                learner.load_state_dict(state, len(history), history[-1].score)
            calls, warned_of = int(state["calls"]), int(state["warned_of"])
            due = int(state.get("due", (calls // self.every + 1) * self.every))  # earlier versions had no `cost`
            best_model = _copies(state["best_model"])
            best_terms = _copies(state.get("best_terms", {}))  # earlier versions did not keep them
            loss, run_id = state["loss"], str(state.get("run_id", self._run_id))
        self.loss.load_state_dict(loss)
        self._learner, self._history, self._best_model, self._best_terms = learner, history, best_model, best_terms
        self._best_index = best_index(history) if history else -1
        self._calls, self._due, self._warned_of, self._run_id = calls, due, warned_of, run_id
        self.learned = None

    def _observe(self) -> tuple[Observation, float]:
        options = self.observe_options
        batches = options.batches
        if batches == "auto" and (self.every > 1 or self.cost is not None):
            most = self.every if self.cost is None else PARTS
            batches = min(most, number_of(self.train, "auto", "batches") or most)
        options = replace(options, seed=options.seed + self._calls, batches=batches)
        data = (self.train, self.validation, self.metric, self.selection)
        return observe_with(options, self.model, self.loss, self.error, *data, self._fits)

    def _warn_if_it_hurts(self) -> None:
        """Warn once per best model if the error has stayed far above that model's for `patience` learned steps."""
        patience = self._learner.policy.patience
        if self._best_index == self._warned_of or len(self._history) - 1 - self._best_index < patience:
            return
        best, recent = self._history[self._best_index], self._history[-patience:]
        high = best.error + HARMFUL_RISE * abs(best.error)
        if any(record.learned is None or record.error <= high for record in recent):
            return
        self._warned_of = self._best_index
        warnings.warn(
            f"Tuning may hurt: the error has been more than {HARMFUL_RISE:.0%} above its best, {best.error:.4g} at "
            f"step {best.step}, for {patience} steps, and is {recent[-1].error:.4g} now. `restore_best()` "
            "brings that model and its weights back. Then a smaller box, more validation data, more draws or batches, "
            "or another window may help.",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_type(value: Any, kind: type, what: str) -> Any:
    """Return the value, or a default object for None; raise if it is not of this kind."""
    if value is not None and not isinstance(value, kind):
        raise InvalidInput(
            f"`{what}` must be an {kind.__name__}; found a {type(value).__name__}. Give e.g. {what}={kind.__name__}()."
        )
    return kind() if value is None else value


def _copies(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a model with a copy of each tensor, also of those in the extra state of a module."""
    copies = tree_map(lambda v: v.detach().clone() if isinstance(v, Tensor) else v, dict(state))
    return {str(name): v for name, v in copies.items()}


def _trained(modules: nn.Module) -> dict[str, Any]:
    """Return the part of a state that training changes: a frozen teacher, for example, is left out."""
    trained = {name: p for name, p in modules.named_parameters() if p.requires_grad}
    return trained | (dict(modules.named_buffers()) if trained else {})


def _warn_of_weight_decay(optimizer: Optimizer, loss: LinearLoss) -> None:
    decays = [group.get("weight_decay", 0) for group in optimizer.param_groups]
    names = [name for name, penalty, _ in loss.layout.penalties if isinstance(penalty, L2)]
    if any(decays) and names:
        warnings.warn(
            f"The optimizer has weight decay {max(decays):g} beside the L2 term {names[0]!r}: both shrink the "
            "parameters, and only one is tuned. Set weight_decay=0.",
            UserWarning,
            stacklevel=3,
        )


def _warn_of_step_size(optimizer: Optimizer, loss: LinearLoss) -> None:
    """Warn if learned weights may more than double the size of a loss that SGD steps along."""
    data = list(loss.layout.data.values())
    now, most = float(np.sum(np.array(loss.numbers())[data])), float(loss.box.upper[data].sum())
    inner = getattr(optimizer, "optimizer", optimizer)  # of Accelerate's and other wrappers
    if isinstance(inner, SGD) and not loss.normalize and not loss.box.is_simplex and most > LARGER_STEPS * now > 0:
        warnings.warn(
            f"Under SGD, larger weights make larger steps: those of the data terms sum to {now:g} now and to at most "
            f"{most:g} in the box. Build the loss with normalize=True, which divides it by this sum.",
            UserWarning,
            stacklevel=3,
        )
