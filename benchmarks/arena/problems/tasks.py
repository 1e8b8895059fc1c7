"""A main task with few labels, and auxiliary tasks that share its trunk: useful, useless and harmful ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from benchmarks.arena.problem import Instance, Problem, features, log_uniform

ROWS = 50  # rows of the main task, and of the others, in a batch
UPPER = 10.0


class Heads(nn.Module):
    """A trunk with one linear head per task."""

    def __init__(self, n_inputs: int, hidden: int, outputs: Mapping[str, int], seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, n) for name, n in outputs.items()})

    def forward(self, x: Tensor, task: str) -> Tensor:
        out: Tensor = self.heads[task](self.trunk(x))
        return out


class TaskBatches:
    """Batches with rows of the main task and as many rows without its label, each with all auxiliary labels."""

    def __init__(self, main: tuple[Tensor, Tensor], x: Tensor, labels: Mapping[str, Tensor], n: int, seed: int) -> None:
        self.main, self.x, self.labels, self.n = main, x, labels, n
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for _ in range(self.n):
            some = torch.randint(len(self.main[1]), (ROWS,), generator=self.generator)
            other = torch.randint(len(self.x), (ROWS,), generator=self.generator)
            noise = torch.randn(ROWS, self.x.shape[1], generator=self.generator)
            batch = {"x": self.main[0][some], "main": self.main[1][some], "other x": self.x[other], "noise": noise}
            yield batch | {name: column[other] for name, column in self.labels.items()}


def instance(
    main: tuple[Tensor, Tensor],
    x: Tensor,
    labels: Mapping[str, Tensor],
    validation: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    seed: int,
) -> Instance:
    """Make an instance: classification by each column of labels, and reconstruction of the inputs from noisy ones."""
    outputs = {name: int(column.max()) + 1 for name, column in labels.items()}
    outputs = {"main": int(test[1].max()) + 1, "denoise": x.shape[1]} | outputs
    names = [name for name in outputs if name != "main"]

    def all_tasks(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        main = cross_entropy(model(batch["x"], "main"), batch["main"])
        rebuilt = model(batch["other x"] + batch["noise"], "denoise")
        others = {name: cross_entropy(model(batch["other x"], name), batch[name]) for name in labels}
        return {"main": main, "denoise": mse_loss(rebuilt, batch["other x"])} | others

    def error(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(model(batch[0], "main"), batch[1])

    ones = dict.fromkeys(outputs, 1.0)
    return Instance(
        model=Heads(x.shape[1], 96, outputs, seed),
        terms=[all_tasks],
        box={"main": 1.0} | dict.fromkeys(names, (0.0, UPPER)),
        error=error,
        train=TaskBatches(main, x, labels, 20, seed),
        validation=[validation],
        test=[test],
        epochs=30,
        plain={"main": 1.0},
        named={"equal": ones, "expert": ones | {"random": 0.0}},
        random=lambda rng: log_uniform(rng, names, dict.fromkeys(names, UPPER)),
        learning_rate=2e-3,
        rivals=("uncertainty", "loss ratios", "UPGrad"),
    )


def digits(seed: int) -> Instance:
    """Draw digits with 50 labels: parity, size, the rotation of the image's halves, and random labels as tasks."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    rows = np.split(rng.permutation(len(y)), [600, 900])
    x = torch.tensor((x - x.mean()) / x.std(), dtype=torch.float32)
    y = torch.tensor(y)
    parts = [(x[r], y[r]) for r in map(torch.from_numpy, rows)]
    (x0, y0), validation, test = parts
    labels = {"parity": y0 % 2, "large": (y0 > 4).long(), "random": torch.from_numpy(rng.integers(10, size=600))}
    return instance((x0[:50], y0[:50]), x0, labels, validation, test, seed)


@lru_cache(maxsize=1)
def _pet_labels() -> dict[str, Tensor]:
    """Return the species, the first letter of the breed and a cluster of the features, for all pets."""
    file = np.load(Path(os.environ["TUNELOSS_DATA"]) / "oxford_iiit_pet.npz")
    data = features("oxford_iiit_pet", 128)
    names = [Path(str(name)).name for name in file["filenames"]]
    clusters = KMeans(40, n_init=1, random_state=0).fit(data.x[data.part == 0]).predict(data.x)
    return {
        "species": torch.tensor([int(name[0].isupper()) for name in names]),
        "letter": torch.tensor([ord(name[0].lower()) - ord("a") for name in names]),
        "cluster": torch.tensor(clusters, dtype=torch.long),
    }


def pets(seed: int, per_class: int = 3) -> Instance:
    """Draw pets with a few labels per breed."""
    data, rng = features("oxford_iiit_pet", 128), np.random.default_rng(seed)
    rows = rng.permutation(np.flatnonzero(data.part.numpy() == 0))
    y = data.y.numpy()
    few = np.concatenate([rows[y[rows] == c][:per_class] for c in range(data.n_classes)])
    labels = {name: column[torch.from_numpy(rows)] for name, column in _pet_labels().items()}
    labels["random"] = torch.from_numpy(rng.integers(37, size=len(rows)))
    x, validation, test = data.x[torch.from_numpy(rows)], data.of(1, rng, 400), data.of(2, rng)
    return instance((data.x[torch.from_numpy(few)], data.y[torch.from_numpy(few)]), x, labels, validation, test, seed)


def flowers(seed: int) -> Instance:
    """Draw flowers with 40 labels; the tasks are three groupings of the classes, and random labels."""
    data, rng = features("tf_flowers", 128), np.random.default_rng(seed)
    x, y = data.of(0, rng)
    labels = {
        "first two": (y < 2).long(),
        "odd": y % 2,
        "random": torch.from_numpy(rng.integers(5, size=len(y))),
        "sign": (x[:, 5] > 0).long(),
    }
    return instance((x[:40], y[:40]), x, labels, data.of(1, rng, 300), data.of(2, rng), seed)


def teacher(seed: int) -> Instance:
    """Draw labels from random networks: two tasks share the hidden features of the main one, one has its own."""
    rng = np.random.default_rng(seed)
    shared, own = (rng.normal(size=(30, 10)) / np.sqrt(30) for _ in range(2))
    x = rng.normal(size=(3500, 30))
    hidden, other = np.tanh(3 * x @ shared), np.tanh(3 * x @ own)
    columns = {
        "main": (hidden @ rng.normal(size=(10, 4))).argmax(axis=1),
        "sister": (hidden @ rng.normal(size=(10, 5))).argmax(axis=1),
        "side": (hidden @ rng.normal(size=10) > 0).astype(int),
        "stranger": (other @ rng.normal(size=(10, 5))).argmax(axis=1),
        "random": rng.integers(4, size=len(x)),
    }
    inputs, y = torch.tensor(x, dtype=torch.float32), {name: torch.from_numpy(c) for name, c in columns.items()}
    labels = {name: y[name][:1200] for name in columns if name != "main"}
    train, validation, test = ((inputs[a:b], y["main"][a:b]) for a, b in ((0, 60), (1200, 1500), (1500, 3500)))
    return instance(train, inputs[:1200], labels, validation, test, seed)


def histology(seed: int) -> Instance:
    """Draw histology tiles with 15 labels; the tasks are one class against the others, two signs, and random labels."""
    data, rng = features("nct_crc_he_3class", 128), np.random.default_rng(seed)
    x, y = data.of(0, rng)
    labels = {
        "muscle": (y == 0).long(),
        "first sign": (x[:, 0] > 0).long(),
        "ninth sign": (x[:, 8] > 0).long(),
        "random": torch.from_numpy(rng.integers(3, size=len(y))),
    }
    return instance((x[:15], y[:15]), x, labels, data.of(1, rng, 300), data.of(2, rng), seed)


PROBLEMS = [
    Problem("tasks, digits", "tasks", "choose", digits),
    Problem("tasks, teacher", "tasks", "choose", teacher),
    Problem("tasks, histology", "tasks", "choose", histology, needs_features=True),
    Problem("tasks, pets", "tasks", "report", pets, needs_features=True),
    Problem("tasks, flowers", "tasks", "report", partial(flowers), needs_features=True),
]
