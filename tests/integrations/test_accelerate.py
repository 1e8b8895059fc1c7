"""The recipe for Accelerate: what it prepared is observed as it is, its checkpoints keep the tuner, its loops go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tuneloss.torch import L2, LinearLoss, OnlineTuner
from tuneloss.torch.observing import ObserveOptions

FEW = 6  # batches per epoch: so few that the tuner reads all of them


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def fit(model: Any, batch: Any) -> torch.Tensor:
    return (model(batch[0]) - batch[1]).square().mean()


class Run:
    """A training loop with Accelerate, and everything that it prepared."""

    def __init__(self, *, accumulate: int = 1, pin: bool = False) -> None:
        torch.manual_seed(0)
        x = torch.randn(8 * FEW, 3)
        y = x.sum(1, keepdim=True) + torch.randn(len(x), 1)
        data, others = TensorDataset(x[::2], y[::2]), TensorDataset(x[1::2], y[1::2])
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        model = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        loaders = DataLoader(data, batch_size=4, shuffle=True), DataLoader(others, batch_size=8)
        self.model, self.optimizer, self.train, validation = self.accelerator.prepare(model, optimizer, *loaders)
        self.loss = LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": 0.01 if pin else (0, 1)})
        self.tuner = OnlineTuner(self.model, self.loss, fit, self.train, validation, observe=ObserveOptions(batches=8))
        self.accelerator.register_for_checkpointing(self.tuner)

    def epoch(self, *, tune_after: tuple[int, ...] = (FEW - 1,)) -> list[bool]:
        """Train for an epoch; return after which batches gradients were used."""
        used = []
        for i, batch in enumerate(self.train):
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(self.loss(self.model, batch))
                used.append(self.accelerator.sync_gradients)
                self.optimizer.step()
                self.optimizer.zero_grad()
            if i in tune_after:
                self.tuner.step()
        return used

    def params(self) -> list[torch.Tensor]:
        return [p.detach() for p in self.model.parameters()]


def equal(a: Run, b: Run) -> bool:
    return all(map(torch.equal, a.params(), b.params()))


def test_the_tuner_leaves_loop_loaders_and_accumulation_alone():
    """Steps within an epoch change neither when gradients are used nor the order of batches in the next epoch."""
    runs = []
    for tune_after in ((), (0, 2, FEW - 1)):
        runs.append(Run(accumulate=4, pin=True))
        for _ in range(2):
            assert runs[-1].epoch(tune_after=tune_after) == [False, False, False, True, False, True]
    assert [len(run.tuner.history) for run in runs] == [0, 6]
    assert equal(*runs)


def test_a_state_that_was_saved_and_loaded_continues_exactly(tmp_path):
    """Model, loss and history after two more epochs are those of a run of one piece."""
    whole = Run()
    for _ in range(4):
        whole.epoch()
    whole.accelerator.save_state(str(tmp_path))
    for _ in range(2):
        whole.epoch()
    resumed = Run()
    resumed.accelerator.load_state(str(tmp_path))
    assert not equal(whole, resumed)
    for _ in range(2):
        resumed.epoch()
    assert equal(whole, resumed)
    assert whole.loss.as_dict() == resumed.loss.as_dict()
    assert whole.loss.as_dict()["l2"] > 0
    assert [r.error for r in whole.tuner.history] == [r.error for r in resumed.tuner.history]


def test_the_saved_state_of_the_tuner_has_no_pickled_objects(tmp_path):
    """Although Accelerate calls the file so, tensors and plain types are all that it holds."""
    run = Run()
    run.epoch()
    run.accelerator.save_state(str(tmp_path))
    state = torch.load(Path(tmp_path) / "custom_checkpoint_0.pkl", weights_only=True)
    assert state["names"] == ["fit", "l2"]
