"""TuneLossCallback: learns the weights of a LightningModule's loss while a Lightning Trainer trains the module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from tuneloss.errors import InvalidInput
from tuneloss.extras import needs
from tuneloss.torch.observing.observe import ObserveOptions
from tuneloss.torch.observing.passes import Error
from tuneloss.torch.online import OnlineTuner
from tuneloss.torch.sources.target_mix import TargetMix
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.tuning.online import OnlinePolicy

with needs("lightning", "lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, Strategy
    from lightning.pytorch.trainer.states import RunningStage, TrainerFn
    from lightning.pytorch.utilities.combined_loader import CombinedLoader

__all__ = ["TuneLossCallback"]


class TuneLossCallback(Callback):
    """Learns the weights of a module's loss at each validation of the trainer.

    The module has one `LinearLoss` as an attribute, and its `training_step` returns ``self.loss(self, batch)``. The
    callback observes the module at the end of each validation, and at the end of each training epoch if the trainer
    does not validate. So `check_val_every_n_epoch` and `val_check_interval` of the trainer say how often it observes.

    It logs the output of `OnlineTuner.metrics` with the prefix ``tuneloss/``. `EarlyStopping` and `ModelCheckpoint`
    can monitor ``"tuneloss/error"``. Its state is in the trainer's checkpoints, without a copy of the best model.

    Parameters
    ----------
    error : callable, optional
        The validation error, ``(module, batch) -> mean over the batch``. By default, it is the data term whose weight
        is pinned.
    validation : iterable, optional
        The validation batches, or a `TargetMix`. By default, they are those of the trainer.
    selection : iterable, optional
        Other validation batches, which decide which model is better, as for `OnlineTuner`.
    metric : callable, optional
        The number that decides which model is better, as for `OnlineTuner`.
    policy : OnlinePolicy, optional
        How to learn from the observations.
    observe : ObserveOptions, optional
        How to observe the module.

    Attributes
    ----------
    tuner : OnlineTuner or None
        The tuner of the last fit, with its history; None before the first one.

    Examples
    --------
    >>> from lightning.pytorch import Trainer
    >>> from lightning.pytorch.callbacks import ModelCheckpoint
    >>> best = ModelCheckpoint(monitor="tuneloss/error")
    >>> trainer = Trainer(accelerator="cpu", logger=False, callbacks=[TuneLossCallback(), best])
    """

    def __init__(
        self,
        error: Error | None = None,
        *,
        validation: Any = None,
        selection: Any = None,
        metric: Error | None = None,
        policy: OnlinePolicy | None = None,
        observe: ObserveOptions | None = None,
    ) -> None:
        self.error, self.metric = error, metric
        self.validation, self.selection = validation, selection
        self.policy, self.observe = policy, observe
        self.tuner: OnlineTuner | None = None
        self._state: dict[str, Any] = {}  # of a checkpoint, until there is a tuner
        self._is_used: bool | None = None  # whether training called the loss; None before the first batch
        self._last_before: object = None  # what the loss evaluated before training

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_strategy(trainer.strategy)
        loss = loss_of(pl_module)
        if self.error is None:
            pinned_term(loss)
        if self.validation is None and not trainer.enable_validation:
            raise InvalidInput(
                "TuneLossCallback needs validation data; found none in the trainer, which validates if the module has "
                "a `validation_step` and there is a validation loader. Add both, or give "
                "TuneLossCallback(validation=loader)."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loss = loss_of(pl_module)
        continues = self.tuner is None or self.tuner.loss is loss  # a checkpoint, or the last fit
        state = self.state_dict() if continues else {}
        train, validation, selection = self._batches(trainer)
        model = trainer.strategy.model  # under DDP, the wrapped one
        assert model is not None
        self.tuner = OnlineTuner(
            model,
            loss,
            pinned_term(loss) if self.error is None else self.error,
            train,
            validation,
            selection=selection,
            metric=self.metric,
            policy=self.policy,
            observe=self.observe,
            optimizer=trainer.optimizers[0] if len(trainer.optimizers) == 1 else None,
            keep_best=False,
        )
        if state:
            self.tuner.load_state_dict(state)
        self._is_used, self._last_before = None, loss.last

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if not self._is_used and self.tuner is not None:
            self._is_used = self.tuner.loss.last is not self._last_before  # a call of the loss replaces the dict

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            with modes_of_training(trainer, pl_module):
                self._step(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.enable_validation:
            self._step(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        return self._state if self.tuner is None else self.tuner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state, self.tuner = state_dict, None

    def _step(self, trainer: Trainer, module: LightningModule) -> None:
        """Observe the module, learn the weights, set and log them."""
        assert self.tuner is not None  # of `on_train_start`
        if self._is_used is False:
            raise InvalidInput(
                f"`training_step` of {type(module).__name__} must use the module's LinearLoss; found that training "
                "never called it. Return self.loss(self, batch)."
            )
        tuner = self.tuner
        tuner.train, tuner.validation, tuner.selection = self._batches(trainer)  # the trainer may have reloaded them
        tuner.step()
        metrics = {f"tuneloss/{name}": number for name, number in tuner.metrics().items()}
        module.log_dict(metrics, sync_dist=True)  # equal in all processes, except for the seconds

    def _batches(self, trainer: Trainer) -> tuple[Any, Any, Any]:
        """Return the batches for training, validation and selection."""
        train = Batches(trainer, RunningStage.TRAINING, training_loader(trainer), trainer.num_training_batches)
        if self.validation is None:
            limits = trainer.num_val_batches or [0]  # empty as long as the trainer has not loaded the data
            validation = validation_batches(trainer, validation_loader(trainer), limits[0])
        else:
            validation = validation_batches(trainer, self.validation)
        return train, validation, None if self.selection is None else validation_batches(trainer, self.selection)


class Batches:
    """The batches of a loader as the steps of a module get them: limited, converted, moved and transformed.

    Parameters
    ----------
    trainer : Trainer
        The trainer, whose precision, strategy and hooks are applied.
    stage : RunningStage
        The stage that hooks see, for example in ``self.trainer.training``.
    loader : iterable
        The loader. A `CombinedLoader` must not be iterated over by anyone else.
    limit : int or float, default infinity
        The number of batches, at most.
    """

    def __init__(self, trainer: Trainer, stage: RunningStage, loader: Any, limit: float = float("inf")) -> None:
        self._trainer, self._stage, self._loader = trainer, stage, loader
        self._limit = None if limit == float("inf") else int(limit)
        parts = loader.flattened if isinstance(loader, CombinedLoader) else [loader]
        self.parts = dict(enumerate(parts))  # where `observe` looks for loaders, to seed them

    def __iter__(self) -> Iterator[Any]:
        for batch in islice(iter(self._loader), self._limit):
            yield self._as_in_step(batch[0] if isinstance(self._loader, CombinedLoader) else batch)

    def __len__(self) -> int:
        if isinstance(self._loader, CombinedLoader):
            if self._limit is None:
                raise TypeError("a combination of loaders without lengths has no length")
            return self._limit
        n = len(self._loader)
        return n if self._limit is None else min(n, self._limit)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)  # a generator or a sampler, which `observe` seeds

    def _as_in_step(self, batch: Any) -> Any:
        """Return a batch as the loops of the trainer hand it to a step."""
        trainer = self._trainer
        before, trainer.state.stage = trainer.state.stage, self._stage
        try:
            batch = trainer.precision_plugin.convert_input(batch)
            batch = trainer.lightning_module._on_before_batch_transfer(batch)
            return trainer.strategy.batch_to_device(batch)
        finally:
            trainer.state.stage = before


def validation_batches(trainer: Trainer, loader: Any, limit: float = float("inf")) -> Batches | TargetMix:
    """Return the batches of a validation loader, or those of each set of a mix."""
    if not isinstance(loader, TargetMix):
        return Batches(trainer, RunningStage.VALIDATING, loader, limit)
    parts = {name: Batches(trainer, RunningStage.VALIDATING, part) for name, _, part in loader.parts}
    return TargetMix(parts, {name: share for name, share, _ in loader.parts})


@contextmanager
def modes_of_training(trainer: Trainer, module: LightningModule) -> Iterator[None]:
    """Return a context, within a validation, in which modules have their modes of training: frozen ones stay frozen."""
    modes = [(part, part.training) for part in module.modules()]
    trainer.fit_loop.epoch_loop.val_loop._module_mode.restore(module)
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def training_loader(trainer: Trainer) -> Any:
    """Return the training loader, and several loaders as a new combination: the trainer iterates over its own."""
    combined = trainer.fit_loop._combined_loader
    assert combined is not None  # loaded before training starts
    if combined.iterables is combined.flattened[0]:
        return combined.iterables
    return CombinedLoader(combined.iterables, combined._mode)


def validation_loader(trainer: Trainer) -> Any:
    """Return the validation loader; None if it is not loaded yet."""
    loaders = trainer.val_dataloaders
    if not isinstance(loaders, list | tuple | dict):
        return loaders
    if len(loaders) != 1:
        raise InvalidInput(
            f"TuneLossCallback needs one validation loader; found {len(loaders)}. Give "
            "TuneLossCallback(validation=...) with the one that sets the weights, or with a TargetMix of several."
        )
    return next(iter(loaders.values() if isinstance(loaders, dict) else loaders))


def loss_of(module: LightningModule) -> LinearLoss:
    """Return the loss of a module; raise unless there is exactly one."""
    losses = {name: part for name, part in module.named_modules() if isinstance(part, LinearLoss)}
    if len(losses) != 1:
        raise InvalidInput(
            f"TuneLossCallback needs one LinearLoss as an attribute of {type(module).__name__}; found "
            f"{list(losses) or 'none'}. Set self.loss = LinearLoss(...) in its __init__, with all terms in one loss."
        )
    return next(iter(losses.values()))


def pinned_term(loss: LinearLoss) -> Error:
    """Return the data term with a pinned weight as an error; raise unless there is exactly one."""
    others = {term.known_name for term in loss.data_terms if term.regularizes} | loss.source_names
    tasks = {name: j for name, j in loss.layout.data.items() if name not in others}
    pinned = [name for name, j in tasks.items() if loss.box.pinned[j] and loss.box.lower[j] != 0]
    if len(pinned) != 1:
        raise InvalidInput(
            "By default, the error of TuneLossCallback is the data term whose weight is pinned, so there must be one; "
            f"found {pinned or 'none'}. Give TuneLossCallback(error), with a callable (module, batch) -> mean."
        )
    return lambda model, batch: loss.data_values(model, batch, pinned)[pinned[0]]


def check_strategy(strategy: Strategy) -> None:
    """Raise if a strategy shards parameters in a way that cannot be observed."""
    if isinstance(strategy, FSDPStrategy | DeepSpeedStrategy):
        raise InvalidInput(
            f"TuneLossCallback needs a strategy that keeps whole parameters, such as DDP; found "
            f"{type(strategy).__name__}. Use Trainer(strategy='ddp')."
        )
