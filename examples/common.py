"""What the examples share: data, models, one training run, and records that survive a killed process."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tuneloss.paper.datasets import digits, load_features
from tuneloss.paper.experiment import run_units
from tuneloss.paper.results import Record

ROOT = Path(__file__).resolve().parents[1]
DIGITS = "digits, 100 training examples"  # the data set that replaces features files without TUNELOSS_DATA

Examples = tuple[Tensor, Tensor]  # inputs (N, D) and labels (N,)


# Data


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled examples for training, validation and test."""

    name: str
    n_classes: int
    train: Examples
    validation: Examples
    test: Examples

    @property
    def n_inputs(self) -> int:
        """Number of inputs per example."""
        return self.train[0].shape[1]


@lru_cache(maxsize=2)
def load(name: str, folder: str | None, *, standardize: bool = True) -> Split:
    """Load a data set with its fixed split.

    A seed of an example then sets where the model starts and the order of its examples, but not the split.

    Parameters
    ----------
    name : str
        Name of a features file, without its suffix; see `tuneloss.paper.datasets`.
    folder : str or None
        Folder of features files; without it, digits are loaded.
    standardize : bool, default True
        Whether features are centred and divided by their standard deviation over the training examples. A feature that
        is constant in training is only centred.
    """
    if not folder:
        file = digits(0)
        parts = [(file.train_x, file.train_y), (file.validation_x, file.validation_y), (file.test_x, file.test_y)]
        name = DIGITS
    else:
        file = load_features(Path(folder) / f"{name}.npz")
        x, y, split = file.x, file.y, file.part
        mean, spread = x[split == 0].mean(axis=0), x[split == 0].std(axis=0)
        x = (x - mean) / np.where(spread > 0, spread, 1.0) if standardize else x
        parts = [(x[split == part], y[split == part]) for part in range(3)]
    tensors = [(torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in parts]
    return Split(name, int(max(y.max() for _, y in tensors)) + 1, *tensors)


class Batches:
    """Batches of examples: a DataLoader without its cost per example.

    Parameters
    ----------
    examples : (inputs, labels)
    size : int
        Examples per batch.
    seed : int, optional
        If given, each pass takes the examples in a new order.
    """

    def __init__(self, examples: Examples, size: int, *, seed: int | None = None) -> None:
        self.examples, self.size = examples, size
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.examples[1]) // self.size)

    def __iter__(self) -> Iterator[Examples]:
        x, y = self.examples
        if self.generator is None:
            return zip(x.split(self.size), y.split(self.size), strict=True)
        order = torch.randperm(len(y), generator=self.generator)
        return ((x[some], y[some]) for some in order.split(self.size))


# Models


def softmax(split: Split, seed: int) -> nn.Module:
    """Make a softmax regression that starts at 0."""
    torch.manual_seed(seed)
    model = nn.Linear(split.n_inputs, split.n_classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def mlp(split: Split, seed: int, hidden: int = 128) -> nn.Module:
    """Make an MLP with one hidden layer and ReLU, initialised as PyTorch does."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(split.n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, split.n_classes))


def logloss(model: nn.Module, batch: Examples) -> Tensor:
    """Compute the mean log loss of a batch."""
    return F.cross_entropy(model(batch[0]), batch[1])


# One run


class Tuner(Protocol):
    """What `train` needs of a tuner."""

    def step(self) -> object: ...


@dataclass(frozen=True)
class Training:
    """The course of one training run.

    Parameters
    ----------
    curves : mapping of str to list of float
        Mean log loss (``*_loss``) and error rate (``*_error``) after each epoch.
    seconds : float
        Wall-clock time of what a user needs: training, validation and tuning.
    cpu_seconds : float
        Processor time of the same, in this process. It does not grow when others use the machine.
    """

    curves: Mapping[str, list[float]]
    seconds: float
    cpu_seconds: float

    @property
    def best_epoch(self) -> int:
        """Index of the epoch of least validation log loss; an epoch without a number is never the best."""
        return int(np.argmin(np.nan_to_num(self.curves["validation_loss"], nan=np.inf)))

    def summary(self) -> Record:
        """Return all curves at the best epoch, the log losses at the last epoch, and the seconds."""
        at_best = {name: curve[self.best_epoch] for name, curve in self.curves.items()}
        at_last = {f"last_{name}": curve[-1] for name, curve in self.curves.items() if name.endswith("loss")}
        took = {"seconds": round(self.seconds, 3), "cpu_seconds": round(self.cpu_seconds, 3)}
        return {"best_epoch": self.best_epoch + 1, **at_best, **at_last, **took}


def train(
    split: Split,
    model: nn.Module,
    loss: Callable[[nn.Module, Examples], Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    seed: int,
    batch_size: int = 32,
    tune: Callable[[Batches, Batches], Tuner] | None = None,
    after_epoch: Callable[[int, Any], None] | None = None,
    parts: Sequence[str] = ("validation", "test"),
) -> Training:
    """Train a model, and measure it after each epoch.

    Parameters
    ----------
    split : Split
    model, loss, optimizer
        As in any loop of PyTorch; ``loss(model, batch)`` returns a scalar.
    epochs : int
    seed : int
        Seed of the order of examples, and of PyTorch.
    batch_size : int, default 32
    tune : callable, optional
        Called with the training and the validation batches; returns the tuner whose ``step()`` ends each epoch.
    after_epoch : callable, optional
        Called with the number of epochs done and the tuner.
    parts : sequence of str
        The parts of the split that are measured.
    """
    torch.manual_seed(seed)
    loader, validation = Batches(split.train, batch_size, seed=seed), Batches(split.validation, 512)
    tuner = tune(loader, validation) if tune else None
    curves: dict[str, list[float]] = {f"{part}_{measure}": [] for part in parts for measure in ("loss", "error")}
    took = np.zeros(2)
    for epoch in range(epochs):
        start = clocks()
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()
        took += clocks() - start
        for part in parts:
            start = clocks()
            for measure, value in zip(("loss", "error"), measure_model(model, getattr(split, part)), strict=True):
                curves[f"{part}_{measure}"].append(value)
            took += (part == "validation") * (clocks() - start)
        if tuner is not None:
            start = clocks()
            tuner.step()
            took += clocks() - start
        if after_epoch is not None:
            after_epoch(epoch + 1, tuner)
    return Training(curves, float(took[0]), float(took[1]))


def clocks() -> NDArray[np.float64]:
    """Read the wall clock and the processor time of this process, in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


@torch.no_grad()
def measure_model(model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Compute the mean log loss and the share of wrong labels."""
    model.eval()
    logits = model(examples[0])
    model.train()
    wrong = (logits.argmax(dim=1) != examples[1]).double().mean()
    return round(float(F.cross_entropy(logits.double(), examples[1])), 6), round(float(wrong), 6)


# Results


@dataclass(frozen=True)
class OneRun:
    """A `Unit` of tuneloss.paper.experiment with one record: its key, and what `function` returns for it."""

    key: Record
    function: Callable[[Record], Record]
    n_records: int = 1

    def run(self) -> list[Record]:
        """Run it in one thread: processes share the cores, and on small matrices threads wait for each other."""
        torch.set_num_threads(1)
        return [{**self.key, **self.function(self.key)}]


def run_missing(path: Path, keys: Sequence[Record], run: Callable[[Record], Record], jobs: int = 1) -> list[Record]:
    """Return one record ``{**key, **run(key)}`` per key, in order; those already in the file are not run again.

    Each record is appended to the file, as one line of JSON, as soon as its run ends: a killed process continues.
    """

    def on_unit(done: int, unit: OneRun | None) -> None:
        say(f"{path}: {done}/{len(keys)}  {'' if unit is None else json.dumps(unit.key)}")

    return run_units([OneRun(key, run) for key in keys], path, jobs=jobs, on_unit=on_unit)


def say(text: str) -> None:
    """Print progress to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# Command line


def arguments(
    doc: str | None, name: str, argv: Sequence[str] | None = None, *, without: Sequence[str] = (), full_seeds: int = 5
) -> argparse.Namespace:
    """Parse the options of an example.

    All examples have --full, --seeds and --out, and unless they are in `without`, --data, --epochs and --jobs. Records
    and figures of a --full run belong in docs/, those of a small one in build/.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help=f"make the committed figures, with {full_seeds} seeds")
    parser.add_argument("--seeds", type=int, nargs="+", help=f"seeds (default: 0; with --full 0 to {full_seeds - 1})")
    parser.add_argument("--out", type=Path, help="folder for results/ and images/ (default: docs, or build/examples)")
    optional: dict[str, dict[str, Any]] = {
        "data": {"default": os.environ.get("TUNELOSS_DATA"), "help": "folder of features files (or TUNELOSS_DATA)"},
        "epochs": {"type": int, "help": "epochs per run, instead of the usual number"},
        "jobs": {"type": int, "default": 1, "help": "number of processes"},
    }
    for option in [name for name in optional if name not in without]:
        parser.add_argument(f"--{option}", **optional[option])
    options = parser.parse_args(argv)
    options.seeds = options.seeds or list(range(full_seeds if options.full else 1))
    options.out = options.out or ROOT / ("docs" if options.full else "build/examples")
    options.results, options.image = options.out / "results" / f"{name}.jsonl", options.out / "images" / f"{name}.png"
    if "data" not in without and not options.data:
        say(f"TUNELOSS_DATA is not set: running on {DIGITS}, instead of image features.")
    return options
