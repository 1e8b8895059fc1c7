"""Training runs that learn a regularizer on the way (section 4.3 of the paper).

Softmax regression is trained by AdaGrad, one example per step. The tuner is `tuneloss.torch.OnlineTuner`. Between its
steps, the compiled trainer runs one epoch. The PyTorch model and the trainer share their params in memory.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuneloss.paper.datasets import Split, fresh_split
from tuneloss.paper.results import Record
from tuneloss.paper.trainer import AdaGrad
from tuneloss.paper.tuner_runs import loss_and_error, repeat_seeds
from tuneloss.torch import ConvexPiecewiseLinear, LinearLoss, OnlineTuner
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy
from tuneloss.types import Array

KNOTS = 50  # number of knots of the learned regularizer
DRAWN = (10, 100, 1000)  # epochs after which the regularizer is recorded
ONLINE: dict[str, OnlinePolicy | None] = {  # tuners inside one run; all of them observe all batches
    "none": None,
    "tuneloss-paper": OnlinePolicy.paper(),
    "tuneloss": OnlinePolicy(start="rise", window=10, damping=0.7, hold_scale=0.0),  # the default of the records
    "tuneloss-long": OnlinePolicy.long_run(),
}
MEASURES = ("train_loss", "validation_loss", "validation_error", "test_loss", "test_error")  # computed at each epoch


def log_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the mean log loss of a batch."""
    return F.cross_entropy(model(batch[0]), batch[1])


@dataclass(frozen=True)
class OnlineRun:
    """One training run, with or without a tuner inside it: a `Unit` with one record.

    The record holds curves by epoch, and the learned regularizer after 10, 100 and 1000 epochs and after the last one.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    dataset : str
        Name of the data set.
    tuner : str
        A name in `ONLINE`.
    repeat : int
        Number of the repeat, from 0. Its split is that of the same repeat in the other experiments.
    epochs : int
        Number of epochs.
    """

    experiment: str
    dataset: str
    tuner: str
    repeat: int
    epochs: int

    @property
    def key(self) -> Record:
        """The fields that identify its record."""
        key = {"experiment": self.experiment, "dataset": self.dataset, "tuner": self.tuner, "repeat": self.repeat}
        return key | {"epochs": self.epochs}

    @property
    def n_records(self) -> int:
        """The number of records, which is one."""
        return 1

    def __str__(self) -> str:
        return f"{self.dataset}, {self.tuner}, repeat {self.repeat}"

    def run(self) -> list[Record]:
        """Train, and return the record."""
        torch.set_num_threads(1)  # units share the cores
        began = time.perf_counter()
        data, noise = repeat_seeds(self.dataset, self.repeat, 2)
        split = fresh_split(self.dataset, np.random.default_rng(data))
        trainer = AdaGrad(split, np.random.default_rng(noise))
        model, loss = shared_model(trainer), learned_loss()
        online = online_tuner(self.tuner, model, loss, split)
        curves: dict[str, list[float]] = {name: [] for name in MEASURES}
        regularizers: dict[str, Record] = {}
        weights: dict[str, float] = {}
        for epoch in range(1, self.epochs + 1):
            train_epoch(trainer, loss)
            for name, value in measure(trainer, split).items():
                curves[name].append(value)
            *before, now = curves["validation_loss"]
            if now < min(before, default=math.inf):
                weights = {name: float(f"{weight:.4g}") for name, weight in loss.as_dict().items()}
            if online is not None:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="Tuning may hurt")  # if it does, the curves show it
                    online.step()
                if epoch in DRAWN or epoch == self.epochs:
                    regularizers[str(epoch)] = drawn_regularizer(loss)
        best, kept = int(np.argmin(curves["validation_loss"])), kept_epochs(self.epochs)
        record = {
            **self.key,
            "run": 0,
            "best_epoch": best + 1,
            "weights": weights,
            **{name: curves[name][best] for name in MEASURES},
            **{f"last_{name}": curves[name][-1] for name in MEASURES},
            "kept": kept,
            "curves": {name: [curve[epoch - 1] for epoch in kept] for name, curve in curves.items()},
            "regularizers": regularizers,
            "seconds": round(time.perf_counter() - began, 3),
        }
        return [record]


def online_tuner(name: str, model: nn.Module, loss: LinearLoss, split: Split) -> OnlineTuner | None:
    """Build the tuner of this name; None for a run without a tuner."""
    policy = ONLINE[name]
    if policy is None:
        return None
    train, validation = batches(split.train_x, split.train_y), batches(split.validation_x, split.validation_y)
    every_batch = ObserveOptions(batches=None)
    return OnlineTuner(model, loss, log_loss, train, validation, policy=policy, observe=every_batch, keep_best=False)


def shared_model(trainer: AdaGrad) -> nn.Module:
    """Build a linear layer whose weight and bias are the params of the trainer."""
    n_classes, n_inputs = trainer.params.shape
    model = nn.Linear(n_inputs - 1, n_classes)
    params = torch.from_numpy(trainer.params)
    model.weight, model.bias = nn.Parameter(params[:, :-1]), nn.Parameter(params[:, -1])
    return model


def learned_loss() -> LinearLoss:
    """Build the loss: log loss, pinned at 1, plus a regularizer of 50 knots, without upper bound and 0 at first."""
    terms: dict[str, Any] = {"logloss": log_loss, "learned": ConvexPiecewiseLinear(KNOTS)}
    return LinearLoss(terms, box={"logloss": 1.0, "learned": (0.0, math.inf)})


def train_epoch(trainer: AdaGrad, loss: LinearLoss) -> None:
    """Train for one epoch with the current weights of the loss. While they are 0, only the log loss counts."""
    (learned,) = loss.layout.learned
    weights = loss.weights[learned.positions].tolist()
    if not any(weights):
        trainer.epoch(np.array([0.0, 0.0, 0.0, 0.0, 1.0]))
        return
    r = learned.penalty.function(weights)
    trainer.epoch_with_slopes(r.knots, r.bin_slopes)


def drawn_regularizer(loss: LinearLoss) -> Record:
    """Return the knots of the learned regularizer and its values there; both are empty if it has no knots yet."""
    knots, values = loss.regularizers().get("learned", (np.empty(0), np.empty(0)))
    return {"knots": _short(knots), "values": _short(values)}


def measure(trainer: AdaGrad, split: Split) -> dict[str, float]:
    """Compute the mean log loss on each part of the split, and the error on validation and test examples."""
    params = trainer.params.T
    train = loss_and_error(params, split.train_x, split.train_y)
    validation = loss_and_error(params, split.validation_x, split.validation_y)
    test = loss_and_error(params, split.test_x, split.test_y)
    return {name: round(value, 6) for name, value in zip(MEASURES, (train[0], *validation, *test), strict=True)}


def batches(x: Any, y: Any, size: int = 512) -> list[tuple[Tensor, Tensor]]:
    """Split examples into batches of tensors."""
    inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    return list(zip(torch.split(inputs, size), torch.split(labels, size), strict=True))


def _short(numbers: Array) -> list[float]:
    """Round numbers to four digits."""
    return [float(f"{number:.4g}") for number in numbers]


def kept_epochs(epochs: int) -> list[int]:
    """Return the epochs of a curve that are recorded: the first 20, then fewer and fewer, and the last."""
    return sorted({*range(1, min(epochs, 20) + 1), *np.geomspace(1, epochs, 80).round().astype(int).tolist()})
