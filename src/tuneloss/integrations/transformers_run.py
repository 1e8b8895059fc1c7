"""What a tuned run of the Hugging Face trainer needs: when the tuner steps, where its state is kept, what is logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from tuneloss.torch.online import OnlineTuner
from tuneloss.torch.terms.data_terms import Batch
from tuneloss.torch.terms.loss import LinearLoss

if TYPE_CHECKING:
    from tuneloss.integrations.transformers import TuneLossMixin


class TunerSteps(TrainerCallback):
    """Lets the tuner of a trainer step."""

    def __init__(self, trainer: TuneLossMixin) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        tuner = self.trainer._start_tuner()
        states: Any = state.stateful_callbacks  # without ours, if a plain trainer wrote the checkpoint
        saved = states.setdefault(TuneLossState.__name__, TuneLossState().state())
        if state.global_step:  # the run continues from a checkpoint
            TuneLossState.load(tuner, saved)
        for callback in self.trainer.callback_handler.callbacks:
            if isinstance(callback, TuneLossState):
                callback.tuner = tuner

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        every = self.trainer.tune_every
        if control.should_evaluate if every is None else state.global_step % every == 0:
            self.trainer._step_tuner()

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.trainer.tune_every is None and args.eval_strategy != "steps":
            self.trainer._step_tuner()


class TuneLossState(TrainerCallback, ExportableState):
    """The state of a tuner as JSON types, in the `trainer_state.json` of each checkpoint."""

    def __init__(self) -> None:
        self.tuner: OnlineTuner | None = None

    def state(self) -> dict[str, Any]:
        """Return the state under the names that a `TrainerState` wants."""
        saved: dict[str, Any] = {}
        if self.tuner is not None:
            saved = self.tuner.state_dict()
            tensors = saved["loss"]
            saved["loss"] = {name: v.tolist() if isinstance(v, Tensor) else v for name, v in tensors.items()}
        return {"args": {}, "attributes": {"saved": saved}}

    @staticmethod
    def load(tuner: OnlineTuner, state: Mapping[str, Any]) -> None:
        """Let a tuner continue from the output of `state`, unless that is of a run without a tuner."""
        saved = dict(state["attributes"]["saved"])
        if not saved:
            return
        like = tuner.loss.state_dict()
        saved["loss"] = {
            name: torch.tensor(value, dtype=like[name].dtype) if isinstance(like.get(name), Tensor) else value
            for name, value in saved["loss"].items()
        }
        tuner.load_state_dict(saved)


class Batches:
    """The batches of a trainer's loader, as dicts.

    Parameters
    ----------
    loader : DataLoader
        What the trainer's `get_train_dataloader` or `get_eval_dataloader` returned.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.loader:
            yield as_dict(batch)

    def __len__(self) -> int:
        return len(self.loader)

    def shuffle(self, number: int) -> None:
        """Let the next iteration have an order of its own: Accelerate seeds the order by the number of the epoch."""
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(number)


def as_dict(batch: Batch) -> Batch:
    """Return a batch as a dict if it is another mapping, such as the `BatchEncoding` of a collator that pads."""
    return dict(batch) if isinstance(batch, Mapping) and not isinstance(batch, dict) else batch


class TermMeans:
    """The mean of each term of a loss over its calls, without a wait for the device before it is read.

    Parameters
    ----------
    loss : LinearLoss
        The loss.
    """

    def __init__(self, loss: LinearLoss) -> None:
        self._names = list(loss.last)
        self._sums = torch.zeros(2, len(self._names), device=loss.weights.device)  # of values, and of calls

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add the terms of one call; nan stands for a term that was not evaluated."""
        new = torch.stack([values[name].to(self._sums) for name in self._names])
        evaluated = ~new.isnan()
        self._sums += torch.stack([torch.where(evaluated, new, 0.0), evaluated.to(new)])

    def take(self, accelerator: Any) -> dict[str, float]:
        """Return the means over the calls in all processes since the last time; terms without a call are left out."""
        sums, calls = accelerator.reduce(self._sums, reduction="sum").tolist()
        self._sums = torch.zeros_like(self._sums)
        return {name: s / n for name, s, n in zip(self._names, sums, calls, strict=True) if n}
