"""TuneLossCallback in real trainers: equal to a plain loop with OnlineTuner, bit by bit."""

import csv
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from tests.torch.reference import log_loss, make_data
from tuneloss.errors import InvalidInput
from tuneloss.integrations.lightning import TuneLossCallback, check_strategy
from tuneloss.torch import L2, Dropout, LinearLoss, OnlineTuner, UniformLabels
from tuneloss.torch.observing import ObserveOptions
from tuneloss.torch.sources import SourceLoader, TargetMix
from tuneloss.torch.terms.per_source import PerSource
from tuneloss.tuning import OnlinePolicy

pytestmark = [
    # Lightning 2.6 builds its loaders by a class that torch 2.13 is about to drop.
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    # The trainer asks for worker processes, which tests of this size do not need.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]
TRAIN, VALIDATION = (TensorDataset(*make_data(n, seed=seed, dtype=torch.float32)[0]) for n, seed in ((36, 1), (60, 2)))


class EpochSampler(Sampler):
    """Shuffles by the number of its epoch, so that a resumed run reads the same batches."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(TRAIN)

    def __iter__(self):
        return iter(torch.randperm(len(TRAIN), generator=torch.Generator().manual_seed(self.epoch)).tolist())


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def make_loss():
    l2 = L2(groups={"first": "*0.weight", "last": "*2.weight"})  # in the net, and in a module around it
    terms = {"fit": log_loss, "smooth": UniformLabels(), "l2": l2}
    return LinearLoss(terms, {"fit": 1.0, "smooth": (0, 1), "l2": (0, 1)})


def loaders():
    return DataLoader(TRAIN, batch_size=8, sampler=EpochSampler()), DataLoader(VALIDATION, batch_size=32)


class Net(LightningModule):
    def __init__(self, net=None):
        super().__init__()
        self.net = net or make_net()
        self.loss = make_loss()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch):
        return self.loss(self, batch)

    def validation_step(self, batch):
        pass

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Manual(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(self, batch))
        optimizer.step()


class Unvalidated(Net):
    validation_step = LightningModule.validation_step


def make_trainer(epochs, *callbacks, **options):
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    options = {"logger": False, "devices": 1, "enable_checkpointing": saves} | options
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(max_epochs=epochs, accelerator="cpu", callbacks=list(callbacks), **quiet, **options)


def fit(epochs, *callbacks, module=None, data=None, callback=None, ckpt_path=None, **options):
    """The module and the tuner after training by a trainer."""
    module, callback = module or Net(), callback or TuneLossCallback()
    trainer = make_trainer(epochs, callback, *callbacks, **options)
    trainer.fit(module, *(data or loaders()), ckpt_path=ckpt_path)
    return module, callback.tuner


def plain(epochs, net=None, loss=None, data=None, accumulate=1, bf16=False, every=None, **options):
    """The model and the tuner after training by a plain loop; `every` is a number of batches between steps."""
    net, (train, validation) = net or make_net(), data or loaders()
    loss = loss or make_loss()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    tuner = OnlineTuner(net, loss, log_loss, train, validation, **options)
    for epoch in range(epochs):
        if hasattr(getattr(train, "sampler", None), "set_epoch"):
            train.sampler.set_epoch(epoch)
        for i, batch in enumerate(train, start=1):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                value = loss(net, batch)
            (value / accumulate).backward()
            if i % accumulate == 0 or i == len(train):
                optimizer.step()
                optimizer.zero_grad()
            if every and i % every == 0:
                tuner.step()
        if not every:
            tuner.step()
    return net, tuner


def steps(tuner):
    return [(record.error, record.features, record.weights) for record in tuner.history]


def assert_same(a, b, *, module, net):
    """Bit by bit: errors, terms and weights of all steps, the weights after them, and the parameters."""
    assert steps(a) == steps(b)
    assert a.loss.as_dict() == b.loss.as_dict()
    for p, q in zip(module.parameters(), net.parameters(), strict=True):
        assert torch.equal(p, q)


# --- equal to a plain loop --------------------------------------------------------------------------------------------

WAYS = {
    "automatic": (Net, {}, {}),
    "manual": (Manual, {}, {}),
    "accumulate 2": (Net, {"accumulate_grad_batches": 2}, {"accumulate": 2}),
    "bf16-mixed": (Net, {"precision": "bf16-mixed"}, {"bf16": True}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_trainer_learns_what_a_plain_loop_learns(way):
    """For 40 epochs, of 5 batches each."""
    kind, of_trainer, of_loop = WAYS[way]
    net, expected = plain(40, **of_loop)
    module, tuner = fit(40, module=kind(), **of_trainer)
    assert len(tuner.history) == 40
    assert max(tuner.loss.as_dict()["smooth"], tuner.loss.as_dict()["l2/first"]) > 0.001
    assert_same(tuner, expected, module=module, net=net)


def test_it_observes_at_each_validation():
    """Twice per epoch with val_check_interval=0.5, and after each second epoch with check_val_every_n_epoch=2."""
    net, expected = plain(4, every=2)
    module, tuner = fit(4, val_check_interval=0.5)
    assert len(tuner.history) == 8
    assert_same(tuner, expected, module=module, net=net)
    _, tuner = fit(5, check_val_every_n_epoch=2, num_sanity_val_steps=0)
    assert len(tuner.history) == 2


def test_without_a_validation_step_it_observes_after_each_epoch_on_the_validation_data_that_it_was_given():
    train, validation = loaders()
    net, expected = plain(4)
    module, tuner = fit(4, module=Unvalidated(), data=[train], callback=TuneLossCallback(validation=validation))
    assert_same(tuner, expected, module=module, net=net)


def test_options_are_those_of_the_tuner():
    def wrong(model, batch):
        return (model(batch[0]).argmax(1) != batch[1]).float().mean()

    train, validation = loaders()
    other = DataLoader(TensorDataset(*make_data(20, seed=3, dtype=torch.float32)[0]), batch_size=20)
    options = {"policy": OnlinePolicy(damping=0.1), "observe": ObserveOptions(batches=2, seed=5)}
    net, expected = plain(3, data=(train, validation), metric=wrong, selection=other, **options)
    callback = TuneLossCallback(log_loss, metric=wrong, selection=other, **options)
    module, tuner = fit(3, callback=callback)
    assert_same(tuner, expected, module=module, net=net)
    assert [record.metric for record in tuner.history] == [record.metric for record in expected.history]


@pytest.mark.filterwarnings("ignore:Found 1 module")  # in eval mode, as is intended
def test_frozen_modules_stay_frozen_while_terms_are_evaluated():
    """A dropout layer in eval mode, at a validation, where all modules are in eval mode."""

    def frozen():
        net = make_net()
        net[1] = nn.Sequential(net[1], nn.Dropout(0.5)).train()
        net[1][1].eval()
        return net

    net, expected = plain(3, net=frozen())
    module, tuner = fit(3, module=Net(frozen()))
    assert_same(tuner, expected, module=module, net=net)
    assert module.net[1].training
    assert not module.net[1][1].training


def test_batches_go_through_the_hooks_of_the_module_in_their_stage():
    """The module doubles inputs while it trains, on both ways to the loss."""

    class Doubling(Net):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            x, y = batch
            return (2 * x if self.trainer.training else x), y

    train, validation = loaders()
    doubled = DataLoader(TensorDataset(2 * TRAIN.tensors[0], TRAIN.tensors[1]), batch_size=8, sampler=EpochSampler())
    net, expected = plain(3, data=(doubled, validation))
    module, tuner = fit(3, module=Doubling(), data=(train, validation))
    assert_same(tuner, expected, module=module, net=net)


def test_batches_are_converted_to_the_precision_of_the_trainer():
    parts = [data.tensors for data in (TRAIN, VALIDATION)]
    double = [DataLoader(TensorDataset(x.double(), y), batch_size=12) for x, y in parts]
    net, expected = plain(3, net=make_net().double(), loss=make_loss().double(), data=double)
    single = [DataLoader(TensorDataset(x, y), batch_size=12) for x, y in parts]
    module, tuner = fit(3, data=single, precision="64-true")
    assert_same(tuner, expected, module=module, net=net)


def test_limits_of_the_trainer_hold_for_observations():
    train, validation = DataLoader(TRAIN, batch_size=8), DataLoader(VALIDATION, batch_size=32)
    net, expected = plain(3, data=(list(train)[:2], list(validation)[:1]))
    module, tuner = fit(3, data=(train, validation), limit_train_batches=2, limit_val_batches=1)
    assert_same(tuner, expected, module=module, net=net)
    assert [len(tuner.train), len(tuner.validation)] == [2, 1]


def test_data_without_a_length_are_read():
    class Stream(IterableDataset):
        def __iter__(self):
            return zip(*TRAIN.tensors, strict=True)

    net, expected = plain(3, data=(DataLoader(TRAIN, batch_size=8), loaders()[1]))
    module, tuner = fit(3, data=(DataLoader(Stream(), batch_size=8), loaders()[1]))
    assert_same(tuner, expected, module=module, net=net)


def test_sources_are_read_one_by_one():
    """The smaller source is read whole and the larger one in part, of which the estimate of noise knows."""

    def read():
        sources = {"few": DataLoader(TRAIN, batch_size=12), "many": DataLoader(VALIDATION, batch_size=6)}
        return SourceLoader(sources), loaders()[1]

    def make():
        return LinearLoss([PerSource(["few", "many"], log_loss), L2()], {"few": (0, 1), "many": (0, 1), "l2": 0.01})

    options = {"observe": ObserveOptions(batches=4)}
    net, expected = plain(3, loss=make(), data=read(), **options)
    module, tuner = fit(3, module=with_loss(loss=make()), data=read(), callback=TuneLossCallback(log_loss, **options))
    assert_same(tuner, expected, module=module, net=net)


def test_validation_may_be_a_mix_of_sets():
    train, validation = loaders()
    mix = TargetMix({"a": validation, "b": DataLoader(TRAIN, batch_size=36)}, {"a": 3, "b": 1})
    net, expected = plain(3, data=(train, mix))
    for data, callback in ([train, validation], TuneLossCallback(validation=mix)), ([train, mix], TuneLossCallback()):
        module, tuner = fit(3, data=data, callback=callback)
        assert_same(tuner, expected, module=module, net=net)


class Recorder(Net):
    """Keeps what it trained on, which is a dict of batches."""

    def __init__(self):
        super().__init__()
        self.read, self.callback = [], None
        self.loss = LinearLoss(
            {name: lambda model, batch, name=name: log_loss(model, batch[name]) for name in "ab"},
            {"a": 1.0, "b": (0, 1)},
        )

    def training_step(self, batch):
        self.read.append([batch[name][0].sum().item() for name in "ab"])
        return super().training_step(batch)


def test_observing_does_not_change_the_batches_of_training():
    """Of two loaders that shuffle, one of them by its own generator, in the middle of an epoch."""

    def read(*callbacks):
        torch.manual_seed(0)
        own = DataLoader(TRAIN, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
        module = Recorder()
        train = {"a": own, "b": DataLoader(VALIDATION, batch_size=16, shuffle=True)}
        make_trainer(3, *callbacks, val_check_interval=0.5).fit(module, train, DataLoader(VALIDATION, batch_size=30))
        return module.read

    callback = TuneLossCallback(lambda model, batch: log_loss(model, batch))
    assert read(callback) == read()
    assert len(callback.tuner.history) == 6


def test_loaders_that_the_trainer_reloads_are_read_anew():
    class Reloading(Net):
        def train_dataloader(self):
            n = 8 * (self.trainer.current_epoch + 1)
            return DataLoader(TensorDataset(*(part[:n] for part in TRAIN.tensors)), batch_size=8)

        def val_dataloader(self):
            return loaders()[1]

    callback, module = TuneLossCallback(), Reloading()
    make_trainer(3, callback, reload_dataloaders_every_n_epochs=1).fit(module)
    assert len(callback.tuner.train) == 3
    assert len(list(callback.tuner.train)) == 3


PROGRAM = """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from tests.integrations.test_lightning import *

def part(data, size, shuffle):
    sampler = DistributedSampler(data, shuffle=shuffle)
    return DataLoader(data, batch_size=size, sampler=sampler)

callback, module = TuneLossCallback(), Net()
trainer = make_trainer(5, callback, EarlyStopping("tuneloss/error"), devices=2, strategy="ddp", logger=True,
                       default_root_dir=sys.argv[1])
trainer.fit(module, DataLoader(TRAIN, batch_size=4, shuffle=True), DataLoader(VALIDATION, batch_size=16))
assert isinstance(callback.tuner.model, DistributedDataParallel)

data = part(TRAIN, 4, True), part(VALIDATION, 16, False)
net, expected = plain(5, DistributedDataParallel(make_net()), data=data)
assert_same(callback.tuner, expected, module=module, net=net)
torch.save((steps(callback.tuner), list(module.parameters())), f"{sys.argv[1]}/{trainer.global_rank}.pt")
"""


def test_two_processes_learn_what_two_processes_of_a_plain_loop_learn(tmp_path):
    """Under DDP, each on its part of the data; both have the same weights."""
    local = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py", tmp_path],
        env={**os.environ, **local, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "sync_dist" not in done.stderr  # that a logged number may differ between processes
    (seen, params), (seen_by_other, params_of_other) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert len(seen) == 5
    assert seen == seen_by_other
    assert all(torch.equal(p, q) for p, q in zip(params, params_of_other, strict=True))


# --- checkpoints and logs ---------------------------------------------------------------------------------------------


def every_epoch(path):
    return ModelCheckpoint(path, filename="{epoch}", save_top_k=-1)


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")  # as in every resumed run
@pytest.mark.parametrize(
    ("options", "of_trainer"), [({}, {}), ({}, {"check_val_every_n_epoch": 2}), ({"selection": loaders()[1]}, {})]
)
def test_a_run_resumed_from_a_checkpoint_of_an_epoch_is_the_whole_run(tmp_path, options, of_trainer):
    """The file can be read without trusting it, and holds no copy of the best model."""
    module, whole = fit(8, every_epoch(tmp_path), callback=TuneLossCallback(**options), **of_trainer)
    path = tmp_path / "epoch=3.ckpt"
    state = torch.load(path, weights_only=True)["callbacks"]["TuneLossCallback"]
    assert state["best_model"] == {}
    assert len(state["history"]) < len(whole.history)
    callback = TuneLossCallback(**options)
    fit(1, callback=callback)  # of another module, which leaves no trace
    resumed_module, resumed = fit(8, every_epoch(tmp_path), callback=callback, ckpt_path=path, **of_trainer)
    assert_same(resumed, whole, module=resumed_module, net=module)
    assert callback.state_dict()["history"] == [record.to_dict() for record in resumed.history]


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")  # as in every resumed run
def test_a_run_that_broke_off_in_a_validation_goes_on_with_it(tmp_path):
    """It is observed before any batch is trained on."""

    class Breaking(Net):
        breaks = True

        def validation_step(self, batch, batch_idx):
            if self.breaks and batch_idx == 1 and self.current_epoch == 2:
                raise KeyboardInterrupt

    save = {"filename": "broken", "save_on_exception": True}
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(4, ModelCheckpoint(tmp_path, **save), module=Breaking())
    module = Breaking()
    module.breaks = False
    _, tuner = fit(4, ModelCheckpoint(tmp_path, **save), module=module, ckpt_path=tmp_path / "broken.ckpt")
    assert len(tuner.history) == 4


def test_a_second_fit_continues_the_first():
    callback, module = TuneLossCallback(), Net()
    trainer, data = make_trainer(3, callback), loaders()
    trainer.fit(module, *data)
    first, weights = callback.tuner.history, module.loss.as_dict()
    trainer.fit_loop.max_epochs = 5
    trainer.fit(module, *data)
    assert callback.tuner.history[:3] == first
    assert callback.tuner.history[3].weights == weights
    assert len(callback.tuner.history) == 5


def test_a_module_of_its_own_starts_anew():
    callback = TuneLossCallback()
    fit(3, callback=callback)
    _, tuner = fit(2, callback=callback)
    assert len(tuner.history) == 2


@pytest.mark.parametrize("options", [{}, {"val_check_interval": 0.5}, {"check_val_every_n_epoch": 2}])
def test_the_error_can_be_monitored(tmp_path, options):
    """The best checkpoint is that of the least error, and early stopping ends the run soon after it."""
    best = ModelCheckpoint(tmp_path, monitor="tuneloss/error")
    stop = EarlyStopping("tuneloss/error", patience=2, min_delta=0.0)
    module, tuner = fit(60, best, stop, **options)
    errors = [record.error for record in tuner.history]
    assert 3 < len(errors) < 60
    assert best.best_model_score.item() == pytest.approx(min(errors))
    assert errors.index(min(errors)) == len(errors) - 3
    module.load_state_dict(torch.load(best.best_model_path, weights_only=True)["state_dict"])
    with torch.no_grad():
        assert log_loss(module, VALIDATION.tensors).item() == pytest.approx(min(errors), rel=1e-5)


def test_a_logger_gets_the_metrics_of_each_step(tmp_path):
    """And the terms of each batch, where the module logs them by one line."""

    class Logging(Net):
        def training_step(self, batch):
            value = super().training_step(batch)
            self.log_dict({f"term/{name}": term for name, term in self.loss.last.items()})
            return value

    _, tuner = fit(3, module=Logging(), logger=CSVLogger(tmp_path), log_every_n_steps=1)
    with (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = [row for row in rows if row["tuneloss/error"]]
    assert len(steps) == 3
    for name, value in tuner.metrics().items():
        assert float(steps[-1][f"tuneloss/{name}"]) == pytest.approx(value, rel=1e-5)
    for row, record in zip(steps, tuner.history, strict=True):
        assert float(row["tuneloss/weight/smooth"]) == pytest.approx(record.weights["smooth"], rel=1e-5)
    terms = [row for row in rows if row["term/fit"]]
    assert len(terms) == 15
    assert {math.isnan(float(row["term/smooth"])) for row in terms} == {False, True}


def test_only_validations_of_a_fit_are_observed():
    """Not the sanity check before it, nor `validate` after it."""
    callback, module = TuneLossCallback(), Net()
    trainer = make_trainer(2, callback)
    trainer.fit(module, *loaders())
    trainer.validate(module, loaders()[1], verbose=False)
    assert len(callback.tuner.history) == 2


def test_weight_decay_beside_an_l2_term_is_noticed():
    class Decaying(Net):
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), weight_decay=0.1)

    with pytest.warns(UserWarning, match=r"weight decay 0.1 beside the L2 term 'l2'"):
        fit(1, module=Decaying())


# --- what is refused --------------------------------------------------------------------------------------------------


def with_loss(**attributes):
    module = Net()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


class Unused(Net):
    """Its loss is used at validation only."""

    def training_step(self, batch):
        return log_loss(self, batch)

    def validation_step(self, batch):
        self.loss(self, batch)


def several_terms(model, batch):
    return {"fit": log_loss(model, batch), "size": model(batch[0]).square().mean()}


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: with_loss(loss=nn.Identity()), r"needs one LinearLoss as an attribute of Net; found none\. Set self"),
        (lambda: with_loss(other=make_loss()), r"needs one LinearLoss .* found \['loss', 'other'\]\. Set self"),
        (Unvalidated, r"needs validation data; found none in the trainer, .* TuneLossCallback\(validation=loader\)"),
        (Unused, r"`training_step` of Unused must use .* never called it\. Return self\.loss\(self, batch\)"),
        (
            lambda: with_loss(loss=LinearLoss({"a": log_loss, "b": log_loss}, {"a": 1.0, "b": 1.0})),
            r"so there must be one; found \['a', 'b'\]\. Give TuneLossCallback\(error\)",
        ),
        (
            lambda: with_loss(loss=LinearLoss({"a": log_loss, "d": Dropout()}, {"a": (0, 1), "d": 1.0})),
            r"so there must be one; found none\. Give TuneLossCallback\(error\)",
        ),
    ],
)
def test_a_module_that_cannot_be_tuned_is_refused_in_words(module, message):
    with pytest.raises(InvalidInput, match=message):
        fit(1, module=module())


def test_several_validation_loaders_are_refused_unless_one_is_chosen():
    class Several(Net):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            pass

    train, validation = loaders()
    with pytest.raises(InvalidInput, match=r"needs one validation loader; found 2\. Give TuneLossCallback\(validation"):
        fit(1, module=Several(), data=(train, [validation, validation]))
    net, expected = plain(2, data=(train, validation))
    callback = TuneLossCallback(validation=validation)
    module, tuner = fit(2, module=Several(), data=(train, [loaders()[1], loaders()[1]]), callback=callback)
    assert_same(tuner, expected, module=module, net=net)


def test_a_list_of_one_validation_loader_is_that_loader():
    train, validation = loaders()
    net, expected = plain(2)
    for one in ([validation], {"only": validation}):
        module, tuner = fit(2, data=(train, one))
        assert_same(tuner, expected, module=module, net=net)


def test_the_pinned_one_of_several_terms_of_a_callable_is_the_error():
    """Regularizers with a pinned weight are not candidates, nor are terms of weight 0."""
    terms = [several_terms, UniformLabels(), L2()]
    loss = LinearLoss(terms, {"fit": 1.0, "size": 0.0, "uniform": 0.01, "l2": 0.01})
    module, tuner = fit(2, module=with_loss(loss=loss))
    with torch.no_grad():
        assert tuner.history[-1].error == pytest.approx(log_loss(module, VALIDATION.tensors).item(), rel=1e-6)


@pytest.mark.parametrize("kind", [FSDPStrategy, DeepSpeedStrategy])
def test_strategies_that_shard_parameters_are_refused(kind):
    """Neither runs here: the first needs GPUs, the second its library too."""
    with pytest.raises(InvalidInput, match=f"keeps whole parameters, such as DDP; found {kind.__name__}. Use Trainer"):
        check_strategy(object.__new__(kind))
