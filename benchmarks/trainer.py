"""Speed of the paper's trainer (AdaGrad, one example a step): ratios measured side by side, one thread.

python benchmarks/trainer.py            all sizes
python benchmarks/trainer.py --quick    fewer examples, to see that it works

A step reads and writes every param and its sum of squares, so the yardstick is a copy of the two arrays (float32). The
NumPy loop is the same algorithm in whole-array operations; eager torch is `torch.optim.Adagrad` with a batch of 1.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))

from online import side_by_side

from tuneloss.paper.datasets import Split
from tuneloss.paper.trainer import AdaGrad

torch.set_num_threads(1)
WEIGHTS = np.array([0.5, 2.0, 0.05, 0.5, 1.0])  # of l1, l2, uniform, dropout, logloss
SIZES = ((8, 2048), (5, 1280), (102, 1280))  # classes and inputs: the yardstick, tf_flowers, caltech101


def examples(n: int, n_classes: int, n_inputs: int) -> Split:
    """Random features like those of a ReLU network."""
    rng = np.random.default_rng(0)
    x, y = np.maximum(rng.standard_normal((n, n_inputs)), 0).astype(np.float32), rng.integers(n_classes, size=n)
    return Split("random", n_classes, x, y, x, y, x, y)


def compiled(split: Split) -> Callable[[], None]:
    """An epoch of the package's trainer."""
    trainer = AdaGrad(split, np.random.default_rng(0))
    return lambda: trainer.epoch(WEIGHTS)


def numpy_loop(split: Split, dtype: type) -> Callable[[], None]:
    """The same epoch, a step at a time in NumPy."""
    n, d = split.train_x.shape
    params, squares = np.zeros((2, d + 1, split.n_classes), dtype=dtype)
    x = np.concatenate([split.train_x, np.ones((n, 1))], axis=1).astype(dtype)
    l1, l2, uniform, dropout, logloss = WEIGHTS.astype(dtype)
    rng = np.random.default_rng(0)

    def call() -> None:
        for i in rng.permutation(n):
            pair = np.stack([x[i], x[i]])
            if rng.random() < dropout / (logloss + dropout):
                pair[1, :-1] *= 2 * (rng.random(d, dtype=np.float32) < 0.5)
            logits = pair @ params
            slope = np.exp(logits - logits.max(axis=1, keepdims=True))
            slope /= slope.sum(axis=1, keepdims=True)
            slope[0] = uniform * (slope[0] - 1 / split.n_classes)
            slope[1, split.train_y[i]] -= 1
            slope[1] *= logloss + dropout
            gradient = pair.T @ slope
            gradient[:-1] += (l1 * np.sign(params[:-1]) + 2 * l2 * params[:-1]) / n
            squares[:] += gradient * gradient
            params[:] -= 0.1 * gradient / (np.sqrt(squares) + 1e-12)

    return call


def eager_torch(split: Split) -> Callable[[], None]:
    """The same epoch with torch's autograd and AdaGrad."""
    n, d = split.train_x.shape
    model = torch.nn.Linear(d, split.n_classes)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    x, y = torch.from_numpy(split.train_x), torch.from_numpy(split.train_y)
    l1, l2, uniform, dropout, logloss = WEIGHTS.tolist()

    def call() -> None:
        for i in torch.randperm(n).tolist():
            clean = seen = x[i : i + 1]
            if torch.rand(()) < dropout / (logloss + dropout):
                seen = F.dropout(clean, 0.5)
            optimizer.zero_grad()
            loss = (logloss + dropout) * F.cross_entropy(model(seen), y[i : i + 1])
            loss = loss - uniform * F.log_softmax(model(clean), dim=1).mean()
            loss = loss + (l1 * model.weight.abs().sum() + l2 * model.weight.square().sum()) / n
            loss.backward()
            optimizer.step()

    return call


def copies(split: Split, n: int) -> Callable[[], None]:
    """n copies of params and squares."""
    arrays = np.ones((2, *split.params_shape), dtype=np.float32)
    into = np.empty_like(arrays)

    def call() -> None:
        for _ in range(n):
            np.copyto(into, arrays)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer examples")
    n = 20 if parser.parse_args().quick else 1670  # as many as tf_flowers has to train on
    print(f"An epoch of {n} examples, five terms; one thread, medians of calls taken in turns.")
    for n_classes, n_inputs in SIZES:
        split = examples(n, n_classes, n_inputs)
        calls = {
            "compiled": compiled(split),
            "copy": copies(split, n),
            "NumPy, float64": numpy_loop(split, np.float64),
            "NumPy, float32": numpy_loop(split, np.float32),
            "torch": eager_torch(split),
        }
        taken = side_by_side(calls, 3 if n < 100 else 7)
        steps = n * split.params_shape[0] * n_classes
        print(f"\n{n_classes} x {n_inputs}: {1e9 * taken['compiled'] / steps:.2f} ns a param and step")
        print(f"  against a copy of params and squares: {taken['compiled'] / taken['copy']:.1f} times as long")
        for name in ("NumPy, float64", "NumPy, float32", "torch"):
            print(f"  {name}: takes {taken[name] / taken['compiled']:.0f} times as long")


if __name__ == "__main__":
    main()
