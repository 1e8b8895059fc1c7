"""Classes of very unequal size, and an error that counts all classes alike: one weight per class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.arena.problem import Batches, Instance, Problem, features, log_uniform, mlp

UPPER = 100.0


def instance(
    x: Tensor, y: Tensor, parts: Sequence[tuple[Tensor, Tensor]], counts: Sequence[int], epochs: int, seed: int
) -> Instance:
    """Keep only so many training examples of each class; validation and test keep all, and count classes alike."""
    keep = torch.cat([torch.nonzero(y == c).flatten()[:n] for c, n in enumerate(counts)])
    x, y = x[keep], y[keep]
    sizes = torch.bincount(y, minlength=len(counts)).double()
    names = [f"class {c}" for c in range(len(counts))]

    def per_class(model: Any, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        losses = cross_entropy(model(batch[0]), batch[1], reduction="none")
        return {name: torch.where(batch[1] == c, losses, 0.0).mean() for c, name in enumerate(names)}

    def balanced(model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return (batch[2] * cross_entropy(model(batch[0]), batch[1], reduction="none")).mean()

    def with_weights(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        n = torch.bincount(part[1], minlength=len(counts)).float()
        return (*part, (len(part[1]) / len(counts) / n)[part[1]])

    largest = int(sizes.argmax())
    ratio = {name: float(sizes.max() / n) for name, n in zip(names, sizes, strict=True)}
    free = [name for c, name in enumerate(names) if c != largest]
    return Instance(
        model=mlp(x.shape[1], 64, len(counts), seed),
        terms=[per_class],
        box={names[largest]: 1.0} | dict.fromkeys(free, (0.01, UPPER)),
        error=balanced,
        train=Batches((x, y), 32, seed),
        validation=[with_weights(parts[0])],
        test=[with_weights(parts[1])],
        epochs=epochs,
        plain=dict.fromkeys(names, 1.0),
        named={"inverse frequency": ratio, "root of inverse frequency": {n: r**0.5 for n, r in ratio.items()}},
        random=lambda rng: {names[largest]: 1.0} | log_uniform(rng, free, dict.fromkeys(free, UPPER), 4.0),
        learning_rate=3e-3,
    )


def of_features(seed: int, *, name: str, counts: Sequence[int], epochs: int) -> Instance:
    """Draw from a features file."""
    data, rng = features(name, 128), np.random.default_rng(seed)
    return instance(*data.of(0, rng), [data.of(1, rng, 400), data.of(2, rng)], counts, epochs, seed)


def digits(seed: int) -> Instance:
    """Draw digits: even ones are ten times as frequent as odd ones."""
    x, y = load_digits(return_X_y=True)
    rows = np.split(np.random.default_rng(seed).permutation(len(y)), [900, 1200])
    x = (x - x.mean()) / x.std()
    parts = [(torch.tensor(x[r], dtype=torch.float32), torch.tensor(y[r])) for r in rows]
    return instance(*parts[0], parts[1:], [60, 6] * 5, 40, seed)


PROBLEMS = [
    Problem(
        "imbalance, histology", "imbalance", "choose",
        partial(of_features, name="nct_crc_he_3class", counts=(400, 40, 10), epochs=30), needs_features=True,
    ),
    Problem("imbalance, digits", "imbalance", "choose", digits),
    Problem(
        "imbalance, flowers", "imbalance", "report",
        partial(of_features, name="tf_flowers", counts=(200, 20, 100, 10, 50), epochs=30), needs_features=True,
    ),
]  # fmt: skip
