"""Data sources of unequal quality: some of their labels are wrong, and each has its own mix of classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.arena.problem import Instance, Problem, dirichlet, features, log_loss, mlp, share
from tuneloss import Box


class Sources:
    """Batches with the same number of rows of each source: (inputs, labels, number of the source)."""

    def __init__(self, sources: Sequence[tuple[Tensor, Tensor]], size: int, length: int, seed: int) -> None:
        self.sources, self.size, self.length = sources, size, length
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        number = torch.arange(len(self.sources)).repeat_interleave(self.size)
        for _ in range(self.length):
            rows = [torch.randint(len(y), (self.size,), generator=self.generator) for _, y in self.sources]
            x = torch.cat([x[r] for (x, _), r in zip(self.sources, rows, strict=True)])
            y = torch.cat([y[r] for (_, y), r in zip(self.sources, rows, strict=True)])
            yield x, y, number


def draw(
    seed: int, *, data: str, noise: Sequence[float], mixed: float, n_train: int, n_validation: int, hidden: int = 64
) -> Instance:
    """Spread training examples over sources, and replace some labels by random ones.

    Parameters
    ----------
    noise : sequence of float
        The share of labels of each source that are replaced.
    mixed : float
        Parameter of the Dirichlet distribution of a class over sources: with a small one, a class is in few of them.
    """
    rng = np.random.default_rng(seed)
    (x, y), validation, test, n_classes = _parts(data, rng, n_train, n_validation)
    names = [f"source {j}, {100 * rate:.0f}% wrong" for j, rate in enumerate(noise)]
    home = np.zeros(len(y), dtype=int)
    for c in range(n_classes):
        members = np.flatnonzero(y.numpy() == c)
        home[members] = rng.choice(len(noise), size=len(members), p=rng.dirichlet(np.full(len(noise), mixed)))
    sources = []
    for j, rate in enumerate(noise):
        rows = torch.from_numpy(np.flatnonzero(home == j))
        labels = y[rows].clone()
        wrong = torch.from_numpy(rng.random(len(rows)) < rate)
        labels[wrong] = torch.from_numpy(rng.integers(n_classes, size=int(wrong.sum())))
        sources.append((x[rows], labels))

    def per_source(model: object, batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
        losses = cross_entropy(model(batch[0]), batch[1], reduction="none")  # type: ignore[operator]
        return {name: losses[batch[2] == j].mean() for j, name in enumerate(names)}

    sizes = np.array([len(labels) for _, labels in sources], dtype=float)
    good = (1 - np.array(noise)) ** 2
    equal = share(names, np.ones(len(names)))
    return Instance(
        model=mlp(x.shape[1], hidden, n_classes, seed),
        terms=[per_source],
        box=Box.simplex(names),
        error=log_loss,
        train=Sources(sources, 16, 25, seed),
        validation=[validation],
        test=[test],
        epochs=24,
        plain=equal,
        named={"natural": share(names, sizes), "oracle": share(names, sizes * good)},
        random=lambda rng: dirichlet(rng, names),
        learning_rate=2e-3,
    )


def _parts(data: str, rng: np.random.Generator, n_train: int, n_validation: int) -> tuple:  # type: ignore[type-arg]
    """Return training, validation and test examples, and the number of classes."""
    if data != "digits":
        file = features(data, 128)
        return file.of(0, rng, n_train), file.of(1, rng, n_validation), file.of(2, rng), file.n_classes
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    rows = np.split(order, [n_train, n_train + n_validation])
    x = (x - x.mean()) / x.std()
    return *((torch.tensor(x[r], dtype=torch.float32), torch.tensor(y[r])) for r in rows), 10


PROBLEMS = [
    Problem(
        "sources, pets", "sources", "choose",
        partial(
            draw, data="oxford_iiit_pet", noise=(0, 0.2, 0.4, 0.6, 0.8, 1), mixed=1e3, n_train=3000, n_validation=300
        ),
        needs_features=True,
    ),
    Problem(
        "sources, digits", "sources", "choose",
        partial(draw, data="digits", noise=(0, 0, 0.3, 0.3, 0.7, 1), mixed=0.5, n_train=700, n_validation=200),
    ),
    Problem(
        "sources, caltech101", "sources", "report",
        partial(
            draw, data="caltech101", noise=(0.1, 0.1, 0.3, 0.3, 0.5, 0.5, 0.9, 0.9), mixed=0.5, n_train=3000,
            n_validation=500,
        ),
        needs_features=True,
    ),
    Problem(
        "sources, flowers", "sources", "report",
        partial(draw, data="tf_flowers", noise=(0, 0.25, 0.5, 0.75, 1), mixed=1.0, n_train=1600, n_validation=200),
        needs_features=True,
    ),
]  # fmt: skip
