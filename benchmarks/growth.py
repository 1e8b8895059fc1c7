"""How the work of one step grows with what was told before: processor time, one thread, and memory.

    python benchmarks/growth.py            about 5 minutes
    python benchmarks/growth.py --quick    smaller sizes, to see that it works

Models are exact fits of a ridge regression with two penalties at random weights, with gradients (k = 3 terms). Optuna's
own time is that of the same study with its RandomSampler. The online tuner trains a small linear model; its step is the
median of 50. Memory is what the process holds more at the end than at the start, per step.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tuneloss import Box, LossTuner, Observation
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.run import Header, Run

BOX = Box.from_dict({"l2": (0.01, 100.0), "pull": (0.01, 100.0), "fit": 1.0})


class Ridge:
    """min |x params - y|^2 + l2 |params|^2 + pull |params - 0.3|^2, solved exactly."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x, truth = rng.normal(size=(40, 12)), rng.normal(size=12)
        self.y, self.other = self.x @ truth + 2 * rng.normal(size=40), self.x @ truth + 2 * rng.normal(size=40)

    def train(self, weights: dict[str, float]) -> Observation:
        hessian = self.x.T @ self.x + (weights["l2"] + weights["pull"]) * np.eye(12)
        params = np.linalg.solve(hessian, self.x.T @ self.y + 0.3 * weights["pull"])
        residual, other = self.x @ params - self.y, self.x @ params - self.other
        jacobian = np.column_stack([2 * params, 2 * (params - 0.3), 2 * self.x.T @ residual])
        features = [params @ params, np.sum((params - 0.3) ** 2), residual @ residual]
        return Observation.from_gradients(float(other @ other), features, 2 * self.x.T @ other, jacobian)


def random_runs(n: int) -> Iterator[tuple[dict[str, float], Observation]]:
    rng, ridge = np.random.default_rng(1), Ridge()
    for _ in range(n):
        l2, pull = 10.0 ** rng.uniform(-2, 2, 2)
        weights = {"l2": float(l2), "pull": float(pull), "fit": 1.0}
        yield weights, ridge.train(weights)


def optuna_ask(sizes: list[int], repeats: int = 15) -> None:
    """One ask with all weights suggested, as trials go on; the model's own time left out."""
    import optuna

    from tuneloss.integrations.optuna import KEY, TuneLossSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    taken: dict[str, dict[int, float]] = {}
    for name, sampler in {
        "Optuna alone": optuna.samplers.RandomSampler(seed=0),
        "TuneLossSampler": TuneLossSampler(BOX, seed=0),
    }.items():
        study, ridge = optuna.create_study(sampler=sampler), Ridge()
        taken[name] = {}
        for size in sizes:
            for weights, seen in random_runs(size - len(study.trials)):
                study.add_trial(
                    optuna.create_trial(
                        params={"l2": weights["l2"], "pull": weights["pull"]},
                        distributions=dict.fromkeys(
                            ("l2", "pull"), optuna.distributions.FloatDistribution(0.01, 100.0, log=True)
                        ),
                        user_attrs={KEY: seen.to_dict()},
                        value=seen.error,
                    )
                )
            own = []
            for turn in range(repeats + 1):
                began = time.process_time()
                trial = study.ask()
                weights = {key: trial.suggest_float(key, 0.01, 100.0, log=True) for key in ("l2", "pull")}
                if turn > 0:  # the first takes in what was added at once
                    own.append(time.process_time() - began)
                seen = ridge.train(weights)
                trial.set_user_attr(KEY, seen.to_dict())
                study.tell(trial, seen.error)
            taken[name][size] = float(np.median(own))
    print("\nAn ask of Optuna, ms: median of", repeats)
    for size in sizes:
        alone, ours = (1e3 * taken[name][size] for name in taken)
        print(f"  {size:6} trials: {ours:7.1f}, of which Optuna alone {alone:5.1f}; ours {ours - alone:6.1f}")


def own_ask(sizes: list[int]) -> None:
    """The slowest of eight asks of `LossTuner`, two of each way to propose, after runs that it proposed itself."""
    print("\nAn ask of LossTuner, ms: the slowest of 8")
    tuner, ridge = LossTuner(BOX), Ridge()
    for size in sizes:
        seconds = []
        while tuner.n_runs < size + 8:
            began = time.process_time()
            weights = tuner.ask()
            seconds.append(time.process_time() - began)
            tuner.tell(weights, ridge.train(weights))
        print(f"  {size:6} runs: {1e3 * max(seconds[-8:]):6.1f}")


def learn_command(sizes: list[int]) -> None:
    """`tuneloss learn`, its start included."""
    print("\n`tuneloss learn`, s of processor time, its start included:")
    with tempfile.TemporaryDirectory() as folder:
        box, lines = Path(folder) / "box.toml", Path(folder) / "runs.jsonl"
        box.write_text("l2 = [0.01, 100]\npull = [0.01, 100]\nfit = 1.0\n")
        for size in sizes:
            with lines.open("w") as file:
                for weights, seen in random_runs(size):
                    file.write(json.dumps(seen.to_dict() | {"weights": weights}) + "\n")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "tuneloss", "learn", str(lines), "--box", str(box)]
            subprocess.run(command, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"  {size:6} lines: {used:6.2f}")


def open_journal(sizes: list[int]) -> None:
    """Opening a journal, and the first ask after it."""
    print("\nA journal, s of processor time:")
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.jsonl"
            write_fast(path, size)
            times = [time.process_time()]
            tuner = LossTuner(BOX, journal=path)
            times.append(time.process_time())
            for _ in range(2):
                tuner.ask()
                times.append(time.process_time())
            opened, asked, again = np.diff(times)
            print(f"  {size:6} lines: opened {opened:5.2f}, first ask {asked:5.2f}, second ask {again:5.2f}")


def write_fast(path: Path, size: int) -> None:
    """The same lines that as many `tell`s write, without their waits for the disk."""
    from tuneloss.tuning.journal import _line

    Journal(path, Header(BOX).to_dict())
    with path.open("ab") as file:
        for i, (weights, seen) in enumerate(random_runs(size)):
            file.write(_line(i + 1, Run(i, weights, seen).to_dict()))


def online_step(marks: list[int]) -> None:
    """A step of OnlineTuner with its defaults, from its first to its last."""
    import torch
    from torch import nn

    from tuneloss.torch import L1, L2, LinearLoss, OnlineTuner
    from tuneloss.tuning import OnlinePolicy

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = nn.Linear(8, 1), torch.randn(64, 8)
    y = x.sum(1, keepdim=True) + torch.randn(64, 1)
    train, validation = [(x[:32], y[:32])], [(x[32:], y[32:])]

    def fit(model: Any, batch: Any) -> torch.Tensor:
        return (model(batch[0]) - batch[1]).square().mean()

    loss = LinearLoss({"fit": fit, "l1": L1(), "l2": L2()}, box={"fit": 1.0, "l1": (0, 1), "l2": (0, 1)})
    tuner = OnlineTuner(model, loss, fit, train, validation, policy=OnlinePolicy(patience=10**9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    taken, start = [], 0
    print("\nA step of OnlineTuner, ms: median of 50")
    for step in range(1, max(marks) + 1):
        optimizer.zero_grad()
        loss(model, train[0]).backward()
        optimizer.step()
        began = time.process_time()
        tuner.step()
        taken.append(time.process_time() - began)
        if step in marks:
            gc.collect()
            used = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            start = start or used
            grown = (used - start) / max(step - min(marks), 1)
            print(f"  step {step:6}: {1e3 * float(np.median(taken[-50:])):6.2f}; {grown:6.0f} bytes more a step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    optuna_ask([10, 100] if quick else [10, 100, 1000])
    own_ask([10, 50] if quick else [10, 200, 1000])
    learn_command([10, 100] if quick else [10, 200, 2000])
    open_journal([100, 1000] if quick else [1000, 10_000, 100_000])
    online_step([100, 200] if quick else [100, 1000, 20_000])


if __name__ == "__main__":
    main()
