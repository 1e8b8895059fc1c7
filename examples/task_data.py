"""Data with a main task of few labels and five auxiliary tasks, for the example of auxiliary tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from tuneloss.paper.datasets import load_features

Examples = tuple[Tensor, Tensor]  # inputs (N, D) and labels (N,) of the main task
DIGITS = "digits"  # needs no file
TASKS = ("coarse", "odd", "denoise", "random", "signs")
USEFUL = TASKS[:3]  # alone, beside the main task; "random" is useless, and "signs" harmful
ROWS = 50  # in a batch: as many with a label of the main task as with labels of the others
HIDDEN, COMPONENTS, N_VALIDATION, N_DIGITS = 96, 128, 300, 600
N_SIGNS = 4
FEW = {DIGITS: 5, "tf_flowers": 8, "nct_crc_he_3class": 10}  # labels of the main task per class; others have 3


class Heads(nn.Module):
    """A trunk of two hidden layers, and one linear head per task."""

    def __init__(self, n_inputs: int, outputs: Mapping[str, int], seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.Linear(n_inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(HIDDEN, n) for name, n in outputs.items()})

    def forward(self, x: Tensor, *tasks: str) -> list[Tensor]:
        hidden = self.trunk(x)
        return [self.heads[task](hidden) for task in tasks]


class TaskBatches:
    """Batches with rows of the main task, and as many other rows with the labels of the auxiliary tasks.

    Parameters
    ----------
    main : (inputs, labels)
    x : (N, D) tensor
        Inputs of the auxiliary tasks.
    labels : mapping of str to (N,) tensor
    n : int
        Batches per epoch.
    seed : int
    """

    def __init__(self, main: Examples, x: Tensor, labels: Mapping[str, Tensor], n: int, seed: int) -> None:
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


def all_tasks(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Compute the mean loss of every task on a batch."""
    x = batch["other x"]
    coarse, odd, random, signs = model(x, "coarse", "odd", "random", "signs")
    return {
        "main": main_loss(model, (batch["x"], batch["main"])),
        "coarse": cross_entropy(coarse, batch["coarse"]),
        "odd": cross_entropy(odd, batch["odd"]),
        "denoise": mse_loss(*model(x + batch["noise"], "denoise"), x),
        "random": cross_entropy(random, batch["random"]),
        "signs": N_SIGNS * binary_cross_entropy_with_logits(signs, batch["signs"]),
    }


def main_loss(model: nn.Module, batch: Examples) -> Tensor:
    """Compute the mean log loss of the main task on examples."""
    return cross_entropy(*model(batch[0], "main"), batch[1])


@dataclass(frozen=True, eq=False)
class Problem:
    """What one seed draws: a model that has not been trained, and data."""

    model: Heads
    train: TaskBatches
    validation: Examples
    test: Examples


def draw(name: str, folder: str | None, seed: int, batches: int) -> Problem:
    """Draw a problem: the rows that have a label of the main task, the labels of "random", and the first parameters.

    Parameters
    ----------
    name : str
        DIGITS, or a features file without its suffix.
    folder : str or None
        The folder of features files.
    seed : int
    batches : int
        Batches per epoch.

    Notes
    -----
    The labels of "coarse" are the first and the second half of the classes. Those of "odd" are every second class.
    "random" has drawn labels, which a net can only learn by heart. "signs" asks for the signs of four random
    projections of the inputs: a net learns them easily, and the main task does not need them.
    """
    x, y, parts = _load(name, folder)
    rng = np.random.default_rng(seed)
    part = _parts(len(y), rng) if parts is None else parts
    rows, validation, test = (rng.permutation(np.flatnonzero(part == p)) for p in range(3))
    few = np.concatenate([rows[y[rows] == c][: FEW.get(name, 3)] for c in range(y.max() + 1)])
    columns = {
        "coarse": y[rows] > y.max() // 2,
        "odd": y[rows] % 2,
        "random": rng.integers(y.max() + 1, size=len(rows)),
    }
    labels = {task: torch.tensor(column, dtype=torch.long) for task, column in columns.items()}
    classes = int(y.max()) + 1
    labels["signs"] = torch.tensor(x[rows] @ rng.standard_normal((x.shape[1], N_SIGNS)) > 0, dtype=torch.float32)
    outputs = {"main": classes, "coarse": 2, "odd": 2, "denoise": x.shape[1], "random": classes, "signs": N_SIGNS}

    def examples(chosen: NDArray[np.int64]) -> Examples:
        return torch.tensor(x[chosen], dtype=torch.float32), torch.tensor(y[chosen], dtype=torch.long)

    train = TaskBatches(examples(few), examples(rows)[0], labels, batches, seed)
    return Problem(Heads(x.shape[1], outputs, seed), train, examples(validation[:N_VALIDATION]), examples(test))


def _parts(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Split digits: 0 for training, 1 for validation and 2 for test."""
    return rng.permutation(np.digitize(np.arange(n), [N_DIGITS, N_DIGITS + N_VALIDATION]))


@lru_cache(maxsize=2)
def _load(name: str, folder: str | None) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64] | None]:
    """Load inputs of mean variance 1, labels, and the split; features are reduced to their principal components."""
    if name == DIGITS:
        x, y = load_digits(return_X_y=True)
        return (x - x.mean()) / x.std(), np.asarray(y, dtype=np.int64), None
    data = load_features(Path(folder or "") / f"{name}.npz")
    x, train = np.asarray(data.x, dtype=np.float64), data.part == 0
    mean, spread = x[train].mean(axis=0), x[train].std(axis=0)
    x = (x - mean) / np.where(spread > 0, spread, 1.0)
    _, axes = np.linalg.eigh(np.cov(x[train], rowvar=False))
    x = x @ axes[:, ::-1][:, :COMPONENTS]
    return x / x[train].std(), np.asarray(data.y, dtype=np.int64), np.asarray(data.part, dtype=np.int64)
