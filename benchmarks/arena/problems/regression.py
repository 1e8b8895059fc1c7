"""Several regressions with one trunk, with noise of very unequal size; the error is the mean over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor

from benchmarks.arena.problem import Batches, Instance, Problem, log_uniform, mlp

UPPER = 30.0


def instance(parts: Sequence[tuple[Tensor, Tensor]], names: Sequence[str], seed: int, epochs: int) -> Instance:
    """Make an instance with one output per task; the first task has weight 1."""
    train, validation, test = parts

    def per_task(model: Any, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        squares = (model(batch[0]) - batch[1]).square().mean(dim=0)
        return dict(zip(names, squares, strict=True))

    def error(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss: Tensor = (model(batch[0]) - batch[1]).square().mean()
        return loss

    free = list(names[1:])
    return Instance(
        model=mlp(train[0].shape[1], 64, len(names), seed),
        terms=[per_task],
        box={names[0]: 1.0} | dict.fromkeys(free, (0.0, UPPER)),
        error=error,
        train=Batches(train, 25, seed),
        validation=[validation],
        test=[test],
        epochs=epochs,
        plain=dict.fromkeys(names, 1.0),
        random=lambda rng: {names[0]: 1.0} | log_uniform(rng, free, dict.fromkeys(free, UPPER)),
        rivals=("uncertainty", "loss ratios", "UPGrad"),
        learning_rate=2e-3,
    )


def synthetic(seed: int) -> Instance:
    """Draw six functions of common non-linear features. Labels have noise from 0.1 to 3 times their spread."""
    rng = np.random.default_rng(seed)
    common, mix = rng.normal(size=(20, 8)) / np.sqrt(20), rng.normal(size=(8, 6)) / np.sqrt(8)
    parts = []
    for n, noisy in ((150, True), (300, False), (2000, False)):
        x = rng.normal(size=(n, 20))
        y = np.sin(2 * x @ common) @ mix
        y = y + noisy * rng.normal(size=y.shape) * np.geomspace(0.05, 2.0, 6)
        parts.append((torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)))
    return instance(parts, [f"task {j}" for j in range(6)], seed, 60)


def images(seed: int) -> Instance:
    """Draw digits: predict eight pixels of the right half from the left half; some training pixels are very noisy."""
    x = load_digits().images / 8 - 1
    rng = np.random.default_rng(seed)
    left, right = x[:, :, :4].reshape(-1, 32), x[:, 1:7, 4:6].reshape(-1, 12)[:, ::2]
    noise = rng.permutation(np.geomspace(0.1, 3.0, 6))
    parts = []
    for number, rows in enumerate(np.split(rng.permutation(len(x)), [200, 500])):
        y = right[rows] + (number == 0) * noise * rng.normal(size=(len(rows), 6))
        parts.append((torch.tensor(left[rows], dtype=torch.float32), torch.tensor(y, dtype=torch.float32)))
    return instance(parts, [f"pixel {j}" for j in range(6)], seed, 50)


def diabetes(seed: int) -> Instance:
    """Draw a table: predict the outcome and four blood values from the others; two targets have much noise."""
    data = load_diabetes()
    table = np.column_stack([data.target, data.data])
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    rng = np.random.default_rng(seed)
    targets, noise = [0, 5, 6, 8, 9], rng.permutation([0.0, 0.0, 0.5, 2.0, 3.0])
    inputs = [j for j in range(table.shape[1]) if j not in targets]
    parts = []
    for number, rows in enumerate(np.split(rng.permutation(len(table)), [150, 300])):
        y = table[np.ix_(rows, targets)] + (number == 0) * noise * rng.normal(size=(len(rows), 5))
        x = torch.tensor(table[np.ix_(rows, inputs)], dtype=torch.float32)
        parts.append((x, torch.tensor(y, dtype=torch.float32)))
    return instance(parts, [f"target {j}" for j in range(5)], seed, 60)


PROBLEMS = [
    Problem("regressions, synthetic", "regressions", "choose", synthetic),
    Problem("regressions, digits", "regressions", "report", images),
    Problem("regressions, diabetes", "regressions", "report", diabetes),
]
