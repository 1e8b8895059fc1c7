"""Augmentations of few examples: some keep the meaning of an example, others change it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor, nn

from benchmarks.arena.problem import Batches, Instance, Problem, log_loss, log_uniform
from tuneloss.torch import Augmented

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

import augmentations as images  # the example's functions of grey images

UPPER = 2.0
WAVE = 64  # samples of a wave
SHAPES = ("sine", "square", "saw", "reversed saw", "triangle")
PATCH = 16  # pixels, both ways
Augmentation = Callable[[Tensor], Tensor]
Examples = tuple[Tensor, Tensor]


def instance(
    parts: tuple[Examples, Examples, Examples],
    model: nn.Module,
    useful: Mapping[str, Augmentation],
    harmful: Mapping[str, Augmentation],
    seed: int,
    *,
    batch: int,
    epochs: int,
) -> Instance:
    """Make an instance: log loss on plain examples, and one term per augmentation."""
    train, validation, test = parts
    names = [*useful, *harmful]
    terms = {name: Augmented(change) for name, change in {**useful, **harmful}.items()}
    return Instance(
        model=model,
        terms={"plain": log_loss} | terms,
        box={"plain": 1.0} | dict.fromkeys(names, (0.0, UPPER)),
        error=log_loss,
        train=Batches(train, batch, seed),
        validation=[validation],
        test=[test],
        epochs=epochs,
        plain={"plain": 1.0},
        named={"equal": dict.fromkeys(["plain", *names], 1.0), "expert": dict.fromkeys(["plain", *useful], 1.0)},
        random=lambda rng: log_uniform(rng, names, dict.fromkeys(names, UPPER)),
        learning_rate=2e-3,
    )


def digits(seed: int) -> Instance:
    """Draw 100 images of digits for training, 300 for validation, and the rest for test."""
    x, y = load_digits(return_X_y=True)
    rows = np.split(np.random.default_rng(seed).permutation(len(y)), [100, 400])
    x = x.reshape(-1, 1, 8, 8) / 16
    train, validation, test = ((torch.tensor(x[r], dtype=torch.float32), torch.tensor(y[r])) for r in rows)
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 16, 10),
    )  # fmt: skip
    useful = {name: images.USEFUL[name] for name in ("shift", "rotate", "zoom", "erase")}
    return instance((train, validation, test), model, useful, images.HARMFUL, seed, batch=10, epochs=40)


def shift(x: Tensor) -> Tensor:
    """Move each wave by a random number of samples; what leaves at one end enters at the other."""
    by = torch.randint(x.shape[2], (len(x), 1))
    return x.gather(2, ((torch.arange(x.shape[2]) + by) % x.shape[2]).unsqueeze(1))


def scale(x: Tensor) -> Tensor:
    """Multiply each wave by a factor between 1/2 and 2."""
    return x * torch.exp2(2 * torch.rand(len(x), 1, 1) - 1)


def noise(x: Tensor) -> Tensor:
    """Add Gaussian noise with a standard deviation of 0.3."""
    return x + 0.3 * torch.randn_like(x)


def mask(x: Tensor) -> Tensor:
    """Set an eighth of each wave to 0."""
    at = torch.arange(x.shape[2])
    start = torch.randint(x.shape[2] * 7 // 8, (len(x), 1, 1))
    return x.masked_fill((at >= start) & (at < start + x.shape[2] // 8), 0.0)


def reverse(x: Tensor) -> Tensor:
    """Reverse the time, which turns a saw into a reversed saw."""
    return x.flip(2)


def negate(x: Tensor) -> Tensor:
    """Change the sign, which turns a saw into a reversed saw."""
    return -x


def smooth(x: Tensor) -> Tensor:
    """Average over 9 samples, which turns the other shapes into sines."""
    return nn.functional.avg_pool1d(x, 9, stride=1, padding=4, count_include_pad=False)


def make_waves(n: int, rng: np.random.Generator) -> Examples:
    """Make noisy waves (n, 1, WAVE) of random phase, frequency and amplitude; the label is the shape."""
    y = rng.integers(len(SHAPES), size=n)
    frequency, phase = rng.uniform(1.5, 5.0, size=(n, 1)), rng.random((n, 1))
    t = (frequency * np.arange(WAVE) / WAVE + phase) % 1.0
    shapes = [np.sin(2 * math.pi * t), np.sign(0.5 - t), 2 * t - 1, 1 - 2 * t, 4 * np.abs(t - 0.5) - 1]
    x = np.stack(shapes)[y, np.arange(n)] * rng.uniform(0.5, 1.5, size=(n, 1))
    x = x + 0.4 * rng.standard_normal(x.shape)
    return torch.tensor(x[:, None], dtype=torch.float32), torch.from_numpy(y)


def wave_model(n_classes: int, seed: int) -> nn.Module:
    """Make a convolutional net for signals of `WAVE` samples."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv1d(1, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 16, 5, padding=2), nn.ReLU(),
        nn.MaxPool1d(2), nn.Flatten(), nn.Linear(16 * WAVE // 4, n_classes),
    )  # fmt: skip


def waves(seed: int) -> Instance:
    """Make 150 waves for training."""
    rng = np.random.default_rng(seed)
    parts = make_waves(150, rng), make_waves(300, rng), make_waves(2000, rng)
    useful = {"shift": shift, "scale": scale, "noise": noise, "mask": mask}
    harmful = {"reverse": reverse, "negate": negate, "smooth": smooth}
    return instance(parts, wave_model(len(SHAPES), seed), useful, harmful, seed, batch=15, epochs=40)


def make_bumps(n: int, rng: np.random.Generator) -> Examples:
    """Make noisy signals (n, 1, WAVE) with a bump somewhere; the label is its sign and whether it is narrow."""
    y = rng.integers(4, size=n)
    width = np.where(y % 2, 2.0, 5.0)[:, None] * rng.uniform(0.8, 1.2, size=(n, 1))
    t = np.arange(WAVE) - rng.uniform(10, WAVE - 10, size=(n, 1))
    x = np.where(y < 2, 1.0, -1.0)[:, None] * np.exp(-0.5 * (t / width) ** 2) * rng.uniform(0.8, 1.6, size=(n, 1))
    x = x + 0.4 * rng.standard_normal(x.shape)
    return torch.tensor(x[:, None], dtype=torch.float32), torch.from_numpy(y)


def bumps(seed: int) -> Instance:
    """Make 120 bumps for training."""
    rng = np.random.default_rng(seed)
    parts = make_bumps(120, rng), make_bumps(300, rng), make_bumps(2000, rng)
    useful = {"shift": shift, "reverse": reverse, "noise": noise, "mask": mask}
    harmful = {"negate": negate, "smooth": smooth}
    return instance(parts, wave_model(4, seed), useful, harmful, seed, batch=15, epochs=40)


@lru_cache(maxsize=1)
def _patches() -> Examples:
    """Cut two photographs into patches (N, 3, PATCH, PATCH); the label is the quarter of a photograph."""
    x, y = [], []
    for number, photograph in enumerate(load_sample_images().images):
        rows, columns = photograph.shape[0] // PATCH, photograph.shape[1] // PATCH
        for i in range(rows):
            for j in range(columns):
                x.append(photograph[PATCH * i : PATCH * (i + 1), PATCH * j : PATCH * (j + 1)])
                y.append(4 * number + 2 * (2 * i >= rows) + (2 * j >= columns))
    return torch.tensor(np.stack(x).transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32), torch.tensor(y)


def wrap(x: Tensor) -> Tensor:
    """Move all patches of a batch by one random shift of up to 4 pixels each way."""
    down, right = torch.randint(-4, 5, (2,)).tolist()
    return x.roll((down, right), dims=(2, 3))


def photographs(seed: int) -> Instance:
    """Draw 200 patches of photographs for training."""
    x, y = _patches()
    rows = map(torch.from_numpy, np.split(np.random.default_rng(seed).permutation(len(y)), [200, 600]))
    train, validation, test = ((x[r], y[r]) for r in rows)
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 4, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(24 * 9, 8),
    )  # fmt: skip
    useful = {
        "mirror": images.mirror,
        "wrap": wrap,
        "noise": lambda x: images.noise(x, 0.2),
        "erase": lambda x: images.erase(x, 5),
        "brightness": lambda x: x + 0.3 * torch.randn(len(x), 1, 1, 1),
    }
    harmful = {"negative": torch.neg, "other colours": lambda x: x.roll(1, dims=1)}
    return instance((train, validation, test), model, useful, harmful, seed, batch=20, epochs=40)


PROBLEMS = [
    Problem("augmentations, digits", "augmentations", "choose", digits),
    Problem("augmentations, bumps", "augmentations", "choose", bumps),
    Problem("augmentations, waves", "augmentations", "report", waves),
    Problem("augmentations, photographs", "augmentations", "report", photographs),
]
