"""Figure 3: a regularizer learned while softmax regression trains by AdaGrad, one example a step (section 4.3).

The tuner is `tuneloss.torch.OnlineTuner`; between its steps the compiled trainer makes one epoch. Model and trainer
share their memory.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuneloss.paper.datasets import Split, fresh_split
from tuneloss.paper.experiments import loss_and_error, repeat_seeds
from tuneloss.paper.results import Record, Task, run_missing
from tuneloss.paper.trainer import AdaGrad
from tuneloss.torch import ConvexPiecewiseLinear, LinearLoss, OnlineTuner
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy
from tuneloss.types import Array

EXPERIMENT, EPOCHS, REPEATS, KNOTS = "figure3", 1000, 5, 50
DRAWN = (10, 100, 1000)  # epochs after which the regularizer is drawn
ONLINE: dict[str, OnlinePolicy | None] = {  # tuners inside one run
    "none": None,
    "tuneloss-paper": OnlinePolicy.paper(),
    "tuneloss": OnlinePolicy(),
    "tuneloss-long": OnlinePolicy.long_run(),  # for hundreds of epochs: examples/learned_regularizer.py
}
MEASURES = ("train_loss", "validation_loss", "validation_error", "test_loss", "test_error")


def log_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean log loss."""
    return F.cross_entropy(model(batch[0]), batch[1])


def online_run(dataset: str, tuner: str, repeat: int, epochs: int, folder: str | None = None) -> Record:
    """One training run: curves by epoch, and the learned regularizer after 10, 100 and 1000 epochs and the last.

    repeat: its split is that of this repeat in the other experiments.
    """
    began = time.perf_counter()
    data, noise = repeat_seeds(dataset, repeat, 2)
    split = fresh_split(dataset, np.random.default_rng(data), folder)
    trainer = AdaGrad(split, np.random.default_rng(noise))
    model, loss = shared_model(trainer), learned_loss()
    policy = ONLINE[tuner]
    online = None
    if policy is not None:
        train, validation = batches(split.train_x, split.train_y), batches(split.validation_x, split.validation_y)
        every_batch = ObserveOptions(batches=None)
        online = OnlineTuner(
            model, loss, log_loss, train, validation, policy=policy, observe=every_batch, keep_best=False
        )
    curves: dict[str, list[float]] = {name: [] for name in MEASURES}
    regularizers: dict[str, Record] = {}
    weights: dict[str, float] = {}
    for epoch in range(1, epochs + 1):
        one_epoch(trainer, loss)
        for name, value in measured(trainer, split).items():
            curves[name].append(value)
        *before, now = curves["validation_loss"]
        if now < min(before, default=math.inf):
            weights = {name: float(f"{weight:.4g}") for name, weight in loss.as_dict().items()}
        if online is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Tuning may hurt")  # the curves show it, if it does
                online.step()
            if epoch in DRAWN or epoch == epochs:
                regularizers[str(epoch)] = drawn_regularizer(loss)
    kept = kept_epochs(epochs)
    best = int(np.argmin(curves["validation_loss"]))
    return {
        "experiment": EXPERIMENT,
        "dataset": dataset,
        "tuner": tuner,
        "repeat": repeat,
        "run": 0,
        "epochs": epochs,
        "best_epoch": best + 1,
        "weights": weights,
        **{name: curves[name][best] for name in MEASURES},
        **{f"last_{name}": curves[name][-1] for name in MEASURES},
        "kept": kept,
        "curves": {name: [curve[epoch - 1] for epoch in kept] for name, curve in curves.items()},
        "regularizers": regularizers,
        "seconds": round(time.perf_counter() - began, 3),
    }


def shared_model(trainer: AdaGrad) -> nn.Module:
    """A linear layer whose weight and bias are the trainer's params."""
    n_classes, n_inputs = trainer.params.shape
    model = nn.Linear(n_inputs - 1, n_classes)
    params = torch.from_numpy(trainer.params)
    model.weight, model.bias = nn.Parameter(params[:, :-1]), nn.Parameter(params[:, -1])
    return model


def learned_loss() -> LinearLoss:
    """Log loss, pinned at 1, and a regularizer of 50 knots without limit, 0 to begin with."""
    terms: dict[str, Any] = {"logloss": log_loss, "learned": ConvexPiecewiseLinear(KNOTS)}
    return LinearLoss(terms, box={"logloss": 1.0, "learned": (0.0, math.inf)})


def one_epoch(trainer: AdaGrad, loss: LinearLoss) -> None:
    """Train by the loss as it is; before anything was learned by the log loss alone."""
    _, term, places = loss.penalty_terms()[0]
    weights = loss.weights[places].tolist()
    if not any(weights):
        trainer.epoch(np.array([0.0, 0.0, 0.0, 0.0, 1.0]))
        return
    assert isinstance(term, ConvexPiecewiseLinear)
    r = term.function(weights)
    trainer.epoch_with_slopes(r.knots, r.bin_slopes)


def drawn_regularizer(loss: LinearLoss) -> Record:
    """r as its knots and its values there; nothing, if it has no knots yet."""
    knots, values = loss.regularizers().get("learned", (np.empty(0), np.empty(0)))
    return {"knots": _short(knots), "values": _short(values)}


def measured(trainer: AdaGrad, split: Split) -> dict[str, float]:
    """Mean log loss on each part of the split, and error on two."""
    params = trainer.params.T
    parts = {
        part: (getattr(split, f"{part}_x"), getattr(split, f"{part}_y")) for part in ("train", "validation", "test")
    }
    found = {part: loss_and_error(params, *examples) for part, examples in parts.items()}
    losses = {f"{part}_loss": round(loss, 6) for part, (loss, _) in found.items()}
    return losses | {f"{part}_error": round(found[part][1], 6) for part in ("validation", "test")}


def batches(x: Any, y: Any, size: int = 512) -> list[tuple[Tensor, Tensor]]:
    """Examples as tensors, in parts."""
    inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    return list(zip(torch.split(inputs, size), torch.split(labels, size), strict=True))


def _short(numbers: Array) -> list[float]:
    return [float(f"{number:.4g}") for number in numbers]


def kept_epochs(epochs: int) -> list[int]:
    """Epochs to keep of a curve: all of the first 20, then ever fewer, and the last."""
    return sorted({*range(1, min(epochs, 20) + 1), *np.geomspace(1, epochs, 80).round().astype(int).tolist()})


def figure3_records(
    path: Path,
    datasets: Sequence[str],
    repeats: int,
    epochs: int,
    *,
    folder: str | None = None,
    jobs: int = 1,
    on_run: Callable[[int, Any], object] = lambda done, key: None,
) -> list[Record]:
    """The records of all runs, by data set, tuner and repeat; those in the file are not run again.

    on_run: called with the number of runs done, and (data set, tuner, repeat, epochs) of the last; first with None.
    """
    keys = [(dataset, tuner, repeat, epochs) for repeat in range(repeats) for dataset in datasets for tuner in ONLINE]
    there = run_missing(
        path,
        [Task(key, (*key, folder)) for key in keys],
        _one_run,
        lambda record: (record["dataset"], record["tuner"], record["repeat"], record["epochs"]),
        jobs=jobs,
        on_task=on_run,
    )
    ordered = sorted(keys, key=lambda key: (datasets.index(key[0]), list(ONLINE).index(key[1])))
    return [there[key][0] for key in ordered]


def _one_run(dataset: str, tuner: str, repeat: int, epochs: int, folder: str | None) -> list[Record]:
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)  # runs share the cores
    with threadpool_limits(1):
        return [online_run(dataset, tuner, repeat, epochs, folder)]
