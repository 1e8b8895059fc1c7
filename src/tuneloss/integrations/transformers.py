"""TuneLossTrainer: the Trainer of Hugging Face, with a loss whose weights are tuned while the model trains."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuneloss.checks import as_integer
from tuneloss.errors import InvalidInput
from tuneloss.extras import needs

with needs("transformers", "torch", "transformers", "accelerate"):
    import_module("accelerate")  # without which a `Trainer` cannot be made
    from torch import Tensor, nn
    from transformers import Trainer
    from transformers.trainer_utils import EvalLoopOutput

from tuneloss.integrations.transformers_run import Batches, TermMeans, TuneLossState, TunerSteps, as_dict
from tuneloss.torch.observing.batches import number_of
from tuneloss.torch.observing.observe import ObserveOptions
from tuneloss.torch.observing.passes import Error
from tuneloss.torch.online import OnlineTuner
from tuneloss.torch.terms.data_terms import check_function, describe
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.pinned_term import pinned_term
from tuneloss.tuning.online import OnlinePolicy

__all__ = ["TuneLossMixin", "TuneLossTrainer"]

PREFIX = "tuneloss_"  # of the tuner's numbers in the logs of the trainer
SCORES = ("error", "metric")  # those of them that an evaluation reports too, for `metric_for_best_model`

GIVE_AN_ERROR = "Pin the plain loss at 1, or give error=lambda model, batch: model(**batch).loss."

if TYPE_CHECKING:
    _Trainer = Trainer
else:
    _Trainer = object  # the class beside the mixin


class TuneLossMixin(_Trainer):
    """Gives a subclass of `transformers.Trainer` a tuned loss: ``class Tuned(TuneLossMixin, Seq2SeqTrainer): ...``.

    While the model trains, the trainer's loss is `loss`. After each epoch, an `OnlineTuner` observes the model on the
    trainer's own train and eval data, and sets the weights of the loss. `eval_loss` stays the model's own loss.

    All arguments of the trainer are passed on. The keywords below are added.

    A checkpoint of the trainer holds the state of the tuner, as JSON. `load_best_model_at_end` loads a model, but
    leaves the loss as it was at the end. With ``metric_for_best_model="tuneloss_error"``, the loss of the best model
    had the weights ``trainer.tuner.best.weights``.

    Parameters
    ----------
    loss : LinearLoss
        The training loss. Its data terms are callables ``(model, batch) -> scalar``, means over the batch, and a batch
        is the dict that the trainer's collator makes.
    error : callable, optional
        The error on the eval data that is to be minimised: ``(model, batch) -> mean over the batch``. By default the
        data term whose weight the box pins; there must be one.
    metric : callable, optional
        As for `OnlineTuner`.
    tune_every : int, optional
        After how many optimizer steps the weights are learned. By default after each epoch, or, with
        ``eval_strategy="steps"``, just before each evaluation.
    policy : OnlinePolicy, optional
        How to learn, as for `OnlineTuner`.
    observe : ObserveOptions, optional
        What to look at, as for `OnlineTuner`. If the weights are learned every n optimizer steps, ``batches="auto"``
        reads no more training batches than the model was trained on in between.

    Attributes
    ----------
    loss : LinearLoss
        The training loss.
    tuner : OnlineTuner or None
        The tuner of the last call of `train`; None before.
    """

    def __init__(
        self,
        *args: Any,
        loss: LinearLoss,
        error: Error | None = None,
        metric: Error | None = None,
        tune_every: int | None = None,
        policy: OnlinePolicy | None = None,
        observe: ObserveOptions | None = None,
        **kwargs: Any,
    ) -> None:
        _check_own(loss, error, metric, policy, observe)
        super().__init__(*args, **kwargs)
        self.tune_every = None if tune_every is None else as_integer(tune_every, "tune_every", 1)
        _check_trainer(self)
        # Terms are means over a micro-batch. So the trainer must divide the loss when it accumulates gradients, and
        # must not let the model divide its eval loss by a number of tokens.
        self.model_accepts_loss_kwargs = False
        self.loss = loss.to(self.args.device)
        self.tuner: OnlineTuner | None = None
        self._error = pinned_term(loss, GIVE_AN_ERROR) if error is None else error
        self._metric, self._policy, self._observe = metric, policy, observe or ObserveOptions()
        self._first_loss = {name: _copy(value) for name, value in loss.state_dict().items()}
        self._means = TermMeans(loss)
        self._tuned_at = -1  # the optimizer step after which the tuner stepped last
        self.add_callback(TunerSteps(self))
        self.add_callback(TuneLossState())

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the tuned loss in training, and the model's own loss in evaluation."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs)
        if return_outputs:
            raise InvalidInput(
                "`compute_loss` must be called without `return_outputs` while the model trains; found "
                "return_outputs=True. A tuned loss has several terms, and no single output belongs to it."
            )
        loss = self.loss(model, as_dict(inputs))
        self._means.add(self.loss.last)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the mean of each term since the last time beside the training loss."""
        if "loss" in logs:
            logs = logs | {f"loss/{name}": mean for name, mean in self._means.take(self.accelerator).items()}
        super().log(logs, *args, **kwargs)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Evaluate; during training, the tuner's error of this model is among the metrics."""
        output = super().evaluation_loop(*args, **kwargs)
        if self.tuner is not None and self.is_in_train and self._tuned_at == self.state.global_step:
            prefix, numbers = kwargs.get("metric_key_prefix", "eval"), self.tuner.metrics()
            assert output.metrics is not None
            output.metrics.update({f"{prefix}_{PREFIX}{name}": numbers[name] for name in SCORES if name in numbers})
        return output

    def _start_tuner(self) -> OnlineTuner:
        """Return the tuner of a run that begins, or that continues from a checkpoint."""
        if self.model_init is not None:  # a new model, as for each trial of a search: the loss begins anew, too
            self.loss.load_state_dict(self._first_loss)
        self._train_batches = Batches(self.get_train_dataloader())
        eval_batches = Batches(self.get_eval_dataloader())
        self.tuner = OnlineTuner(
            *(self.model_wrapped, self.loss, self._error, self._train_batches, eval_batches),
            metric=self._metric,
            policy=self._policy,
            observe=self._observe_options(),
            optimizer=self.optimizer,
            keep_best=False,  # checkpoints keep models
        )
        return self.tuner

    def _observe_options(self) -> ObserveOptions:
        """Return what to look at, where the arguments of the trainer say more than the defaults do."""
        options, args = self._observe, self.args
        if args.gradient_checkpointing:  # then what autograd saves does not tell how large a batch may be
            options = replace(options, merge=False)
        between = self.tune_every or (self.state.eval_steps if args.eval_strategy == "steps" else None)
        if between is None or options.batches != "auto":
            return options
        trained_on = int(between) * args.gradient_accumulation_steps
        few = number_of(self._train_batches, "auto", "batches")
        return replace(options, batches=trained_on if few is None else min(trained_on, few))

    def _step_tuner(self) -> None:
        assert self.tuner is not None
        self._train_batches.shuffle(self.state.global_step)
        self.tuner.step()
        self._tuned_at = self.state.global_step
        self.log({f"{PREFIX}{name}": number for name, number in self.tuner.metrics().items()})


class TuneLossTrainer(TuneLossMixin, Trainer):
    """The Trainer of Hugging Face, with a loss whose weights are tuned while the model trains.

    Its parameters and attributes are those of `transformers.Trainer` and of `TuneLossMixin`.
    """


def _check_own(loss: Any, error: Any, metric: Any, policy: Any, observe: Any) -> None:
    """Raise if one of the keywords that the mixin adds is of the wrong kind."""
    if not isinstance(loss, LinearLoss):
        raise InvalidInput(
            f"`loss` must be a LinearLoss; found {describe(loss)}. Give e.g. "
            'loss=LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": (0, 0.1)}).'
        )
    for function, name in ((error, "error"), (metric, "metric")):
        if function is not None:
            check_function(function, name)
    for value, name, kind in ((policy, "policy", OnlinePolicy), (observe, "observe", ObserveOptions)):
        if value is not None and not isinstance(value, kind):
            raise InvalidInput(
                f"`{name}` must be an {kind.__name__}; found {describe(value)}. Give e.g. {name}={kind.__name__}()."
            )


def _check_trainer(trainer: TuneLossMixin) -> None:
    """Raise if the loss cannot be tuned with these arguments of the trainer."""
    args = trainer.args
    fsdp = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    sharded = "DeepSpeed" if trainer.is_deepspeed_enabled else ""
    if trainer.is_fsdp_xla_enabled or getattr(fsdp, "fsdp_version", 2) == 1:
        sharded = "FSDP1"
    if sharded:
        raise InvalidInput(
            f"A tuned loss needs one process, DDP or FSDP2; found {sharded}, which does not let a gradient be taken "
            "for each term. Leave it out: torchrun alone is DDP, and fsdp_config={'version': 2} is FSDP2."
        )
    if trainer.compute_loss_func is not None:
        raise InvalidInput(
            "`compute_loss_func` and `loss` exclude each other; found both. Make the function a term of the loss, as "
            "a callable (model, batch) -> scalar."
        )
    if args.label_smoothing_factor:
        raise InvalidInput(
            f"`label_smoothing_factor` must be 0, since `loss` replaces the trainer's loss; found "
            f"{args.label_smoothing_factor}. Add the term UniformLabels(lambda model, batch: model(**batch).logits)."
        )
    if trainer.eval_dataset is None or isinstance(trainer.eval_dataset, dict):
        found = "none" if trainer.eval_dataset is None else f"a dict of {list(trainer.eval_dataset)}"
        raise InvalidInput(
            f"`eval_dataset` must be one data set, since the weights are learned from its error; found {found}. Give "
            "examples that are not trained on."
        )
    decides = (args.metric_for_best_model or "").removeprefix("eval_") in {f"{PREFIX}{name}" for name in SCORES}
    every, steps = trainer.tune_every, args.eval_steps if args.eval_strategy == "steps" else None
    if decides and every is not None and (steps is None or steps % every):
        raise InvalidInput(
            f"metric_for_best_model={args.metric_for_best_model!r} needs a step of the tuner at each evaluation; found "
            f"tune_every={every}, and evaluations after {steps or 'each epoch'}{' steps' if steps else ''}. Leave "
            "`tune_every` out."
        )


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
