"""Cost of a tuner's step by the number of data sources, in training steps: ratios of processor time on one thread.

python benchmarks/sources.py            5, 37 and 102 sources
python benchmarks/sources.py --quick    5 and 9 sources

A batch has four rows of each source. A step observes eight batches, and 256 examples for validation. `PerSource`
differentiates each source on its own rows. The other way is a callable that returns one term per source from one
forward: each of its gradients is taken over all rows.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuneloss import Box
from tuneloss.torch import LinearLoss, OnlineTuner, PerSource
from tuneloss.torch.observing import ObserveOptions

torch.set_num_threads(1)
INPUTS, HIDDEN, CLASSES, ROWS, BATCHES = 256, 256, 10, 4, 8


def row_losses(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Compute the log loss of each row."""
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def step_in_training_steps(k: int, *, apart: bool, repeats: int) -> float:
    """Return the median time of a tuner's step, in units of the median time of a training step."""
    torch.manual_seed(0)
    names = [f"source {j}" for j in range(k)]
    number = torch.arange(k).repeat_interleave(ROWS)
    train = [(torch.randn(k * ROWS, INPUTS), torch.randint(CLASSES, (k * ROWS,)), number) for _ in range(BATCHES)]
    validation = [(torch.randn(256, INPUTS), torch.randint(CLASSES, (256,)))]
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    def together(model: nn.Module, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        losses = row_losses(model, batch)
        return {name: losses[batch[2] == j].mean() for j, name in enumerate(names)}

    loss = LinearLoss([PerSource(names, row_losses, key=2) if apart else together], Box.simplex(names))
    tuner = OnlineTuner(
        model,
        loss,
        lambda model, batch: row_losses(model, batch).mean(),
        train,
        validation,
        observe=ObserveOptions(batches=None),
        keep_best=False,
    )
    optimizer = torch.optim.Adam(model.parameters())
    weights = torch.full((k,), 1 / k)

    def training_step() -> None:
        for batch in train:  # one forward, whatever the number of sources
            optimizer.zero_grad()
            (row_losses(model, batch) @ weights[batch[2]] / ROWS).backward()
            optimizer.step()

    of_training, of_tuner = medians([training_step, tuner.step], repeats)
    return of_tuner / (of_training / BATCHES)


def medians(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median processor time of each call, taken in turns, after one turn to warm up."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        for call, taken in zip(calls, seconds, strict=True):
            began = time.process_time()
            call()
            if turn > 0:
                taken.append(time.process_time() - began)
    return [float(np.median(taken)) for taken in seconds]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sources and repeats")
    quick = parser.parse_args().quick
    print("a tuner's step that observes 8 batches, in training steps:")
    for k in (5, 9) if quick else (5, 37, 102):
        apart, together = (step_in_training_steps(k, apart=a, repeats=2 if quick else 9) for a in (True, False))
        print(f"  {k:3} sources: PerSource {apart:.1f}, all rows for each source {together:.1f}", flush=True)


if __name__ == "__main__":
    main()
