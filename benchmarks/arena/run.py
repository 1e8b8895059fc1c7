"""One training run of the arena, with one method."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.arena.methods import Method, make_method
from benchmarks.arena.problem import Instance, Problem


def run(problem: Problem, seed: int, method: str) -> dict[str, Any]:
    """Train with one method; return the test error at the measurement of least validation error, and the cost.

    Parameters
    ----------
    problem : Problem
    seed : int
        Of the data, the first parameters and the order of batches; the same for all methods.
    method : str
        A name that `make_method` knows.
    """
    torch.set_num_threads(1)
    instance = problem.draw(seed)
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(instance.model.parameters(), lr=instance.learning_rate)
    chosen = make_method(method, instance, optimizer, seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")  # the best measurement counts in any case
        return train(instance, optimizer, chosen)


def train(instance: Instance, optimizer: torch.optim.Optimizer, method: Method) -> dict[str, Any]:
    """Train with a method, measure after each period, and return what `run` returns."""
    best: dict[str, Any] = {"validation": math.inf, "test": math.inf, "at": 0}
    step, measured, seconds = 0, 0, 0.0
    start = time.process_time()
    for _ in range(instance.epochs):
        for batch in instance.train:
            optimizer.zero_grad()
            method.backward(batch)
            optimizer.step()
            step += 1
            method.after_step(step)
            if step % instance.period:
                continue
            measured += 1
            score = method.after_period(mean_error(instance, instance.validation))
            seconds += time.process_time() - start
            if score < best["validation"]:  # never true for NaN
                best = {"validation": score, "test": mean_error(instance, instance.test), "at": measured}
                best["weights"] = {name: float(f"{w:.4g}") for name, w in method.weights().items()}
            start = time.process_time()
    seconds += time.process_time() - start
    last = {name: float(f"{w:.4g}") for name, w in method.weights().items()}
    return {**best, "measured": measured, "cpu_seconds": round(seconds, 3), "last_weights": last}


@torch.no_grad()
def mean_error(instance: Instance, batches: Any) -> float:
    """Compute the error over all examples of some batches, in eval mode."""
    model: nn.Module = instance.model
    model.eval()
    values = [(float(instance.error(model, batch)), _size(batch)) for batch in batches]
    model.train()
    return sum(value * n for value, n in values) / sum(n for _, n in values)


def _size(batch: Any) -> int:
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(first) if isinstance(first, Tensor) else 1
