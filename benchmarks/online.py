"""Cost of tuning inside one run: ratios measured side by side on one thread, and memory in copies of the parameters.

python benchmarks/online.py            everything
python benchmarks/online.py --quick    smaller sizes, to see that it works

Set TUNELOSS_DATA for the MLP on tf_flowers; without it scikit-learn's digits are used.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from cnn_augmentations import AUGMENTATIONS, BATCH, CURVED, augmented_loss, cnn, digit_images
from common import Batches, load, logloss, mlp
from mlp_five_terms import five_terms

from tuneloss.torch import L1, L2, ConvexPiecewiseLinear, Dropout, LinearLoss, OnlineTuner, UniformLabels
from tuneloss.torch import observe as observe_model
from tuneloss.torch.observing import ObserveOptions
from tuneloss.torch.terms.columns import gram_and_values
from tuneloss.tuning import OnlinePolicy

torch.set_num_threads(1)


def side_by_side(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each call, taken in turns so that all meet the same noise of the machine."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if turn > 0:  # the first is to warm up
                seconds[name].append(time.perf_counter() - began)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


def epoch_with_tuner(quick: bool) -> None:
    """An epoch and a step of the tuner, against an epoch with the same weights held fixed.

    A step computes the validation error, which everyone who stops early computes anyway. So the last row is against an
    epoch and the validation error.
    """
    torch.manual_seed(0)
    split = load("tf_flowers", os.environ.get("TUNELOSS_DATA"))
    model, loss = mlp(split, seed=0), five_terms()
    train, validation = Batches(split.train, 32, seed=0), Batches(split.validation, 512)
    optimizer = torch.optim.Adam(model.parameters())
    fixed = {"smooth": 0.01, "dropout": 0.5, "noise": 0.5, "l1": 1e-6, "l2": 1e-4}
    loss.set_weights(fixed)

    def epoch() -> None:
        for batch in train:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()

    def evaluated() -> None:
        epoch()
        model.eval()
        with torch.no_grad():
            sum(float(logloss(model, batch)) * len(batch[0]) for batch in validation)
        model.train()

    def tuned(**options: Any) -> Callable[[], None]:
        policy, look = OnlinePolicy(patience=10**6), ObserveOptions(**options)
        tuner = OnlineTuner(model, loss, logloss, train, validation, policy=policy, observe=look)

        def call() -> None:
            epoch()
            tuner.step()
            loss.set_weights(fixed)  # the same terms are evaluated in every epoch

        return call

    options: dict[str, dict[str, Any]] = {"default": {}, "half": {"batches": 0.5}, "all batches": {"batches": None}}
    options["curvature metric"] = {"gradient_metric": "curvature"}
    calls = {"fixed": epoch, "evaluated": evaluated} | {name: tuned(**option) for name, option in options.items()}
    taken = side_by_side(calls, 3 if quick else 15)
    print(f"\nThe MLP of examples/mlp_five_terms.py on {split.name}, batch 32: an epoch and `tuner.step()`,")
    print(f"against the epoch with the same weights held fixed ({taken['fixed']:.2f} s):")
    for option in options:
        print(f"  {option:16} {taken[option] / taken['fixed']:.2f}")
    print("against that epoch and a plain evaluation of the validation error:")
    print(f"  {'default':16} {taken['default'] / taken['evaluated']:.2f}")


def step_on_cnn(n_train: int, quick: bool) -> None:
    """A step of the tuner on a small CNN with eleven augmentations, in both metrics, against an epoch."""
    split, model, loss = digit_images(50, n_train), cnn(50), augmented_loss(CURVED, 50, None)
    fixed = dict.fromkeys(AUGMENTATIONS, 0.4) | {"l2": 1e-3}
    loss.set_weights(fixed)
    train, validation = Batches(split.train, BATCH, seed=0), Batches(split.validation, 512)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)

    def epoch() -> None:
        for batch in train:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()

    def step(**options: Any) -> Callable[[], None]:
        policy, look = OnlinePolicy(patience=10**6), ObserveOptions(**options)
        tuner = OnlineTuner(model, loss, logloss, train, validation, policy=policy, observe=look)

        def call() -> None:
            tuner.step()
            loss.set_weights(fixed)

        return call

    for _ in range(2 if quick else 20):
        epoch()
    steps = {"plain metric": step(), "curvature metric": step(gradient_metric="curvature")}
    taken = side_by_side({"epoch": epoch} | steps, 3 if quick else 15)
    print(f"\nThe CNN of examples/cnn_augmentations.py with {n_train} training images: `tuner.step()` alone,")
    print(f"against an epoch of {len(train)} batches ({1e3 * taken['epoch']:.0f} ms):")
    for metric in steps:
        print(f"  {metric:16} {taken[metric] / taken['epoch']:.2f}")


def piecewise_step(quick: bool) -> None:
    """A training step with 50 knots, against one with L2, on models of a million parameters."""
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 100))
    widths = (3, 64, 128, 256, 256)
    blocks = [(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for a, b in pairwise(widths)]
    cnn = nn.Sequential(*(layer for block in blocks for layer in block), nn.Flatten(), nn.Linear(1024, 100))
    print("\nA training step with ConvexPiecewiseLinear(50), Adam, against the step with L2:")
    for name, model, inputs in (("MLP", mlp, (128, 700)), ("CNN", cnn, (32, 3, 32, 32))):
        taken = step_times(model, torch.randn(inputs), 10 if quick else 100)
        n = sum(p.numel() for p in model.parameters())
        print(f"  {name}, {n / 1e6:.2f}M parameters, inputs {inputs}, {1e3 * taken['l2']:.1f} ms with L2(): ", end="")
        print(f"{taken['learned'] / taken['l2']:.2f}; with L2 by hand: {taken['learned'] / taken['hand']:.2f}")


def step_times(model: nn.Module, x: Tensor, repeats: int) -> dict[str, float]:
    batch = (x, torch.randint(100, (len(x),)))
    optimizer = torch.optim.Adam(model.parameters())
    box = {"logloss": 1.0, "penalty": (0, 1)}
    plain = LinearLoss({"logloss": logloss, "penalty": L2()}, box)
    plain.set_weights({"penalty": 1e-5})
    learned = LinearLoss({"logloss": logloss, "penalty": ConvexPiecewiseLinear(knots=50)}, box)
    learned.place_knots(model)
    learned.set_weights({"penalty": 1e-6})

    def by_hand(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        weights = [p for p in model.parameters() if p.ndim > 1]
        return logloss(model, batch) + 1e-5 * torch.stack([p.square().sum() for p in weights]).sum()

    def step(loss: Callable[..., Tensor]) -> Callable[[], None]:
        def call() -> None:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()

        return call

    return side_by_side({"hand": step(by_hand), "l2": step(plain), "learned": step(learned)}, repeats)


def piecewise_gram(quick: bool) -> None:
    """The gram of 100 hinges and a gradient, against an explicit Jacobian of n x 101."""
    n = 100_000 if quick else 1_000_000
    generator = torch.Generator().manual_seed(0)
    x, gradient = torch.randn(2, n, generator=generator)
    term = ConvexPiecewiseLinear(knots=50, params="x")
    params = {"x": x}
    term.place(params)
    at = list(range(100))

    def by_bins() -> Tensor:
        return gram_and_values(params, term.columns("learned", at, params, params), {100: {"x": gradient}}, 100)[0]

    def by_jacobian(dtype: torch.dtype) -> Tensor:
        distance = x.unsqueeze(1) - term.knots[0]
        columns = [(distance > 0).to(dtype), -(distance < 0).to(dtype), gradient.unsqueeze(1).to(dtype)]
        jacobian = torch.cat(columns, dim=1)
        return jacobian.T @ jacobian

    dtypes = (torch.float32, torch.float64)
    calls = {"bins": by_bins} | {str(dtype): partial(by_jacobian, dtype) for dtype in dtypes}
    taken = side_by_side(calls, 3 if quick else 7)
    gap = float((by_bins() - by_jacobian(torch.float64)).abs().max() / n)
    print(f"\nThe gram of ConvexPiecewiseLinear(50), summed in float64, at n = {n} ({1e3 * taken['bins']:.0f} ms;")
    print(f"largest difference {gap:.0e} of n); the time of an explicit Jacobian, as a multiple of that:")
    for dtype in dtypes:
        print(f"  in {dtype}: {taken[str(dtype)] / taken['bins']:.1f}")


def memory(quick: bool) -> None:
    """Peaks of memory, each in a process of its own, in copies of the parameters."""
    n = 4 if quick else 64  # million parameters
    print(f"\nPeak memory beyond what is there before, in copies of {n}M float32 parameters:")
    for what in ("gram", "observe"):
        program = [sys.executable, __file__, "--peak", what, "--size", str(n)]
        freed = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # tensors go back to the system at once, so that peaks can be seen
        shown = subprocess.run(program, capture_output=True, text=True, check=True, env=os.environ | freed)
        print(shown.stdout, end="")


def peak(what: str, million: int) -> None:
    """Print the peak of one job; run alone, since the system keeps one peak a process."""
    side = int((million * 1e6 / 2) ** 0.5)
    model = nn.Sequential(nn.Linear(side, side), nn.Tanh(), nn.Linear(side, side))
    size = 4 * sum(p.numel() for p in model.parameters())
    data = [(torch.randn(4, side), torch.randint(side, (4,)))] * 2
    if what == "gram":
        term = ConvexPiecewiseLinear(knots=50)
        params = dict(model.named_parameters())
        term.place(params)
        gradient = {name: torch.ones_like(p) for name, p in params.items()}
        bound = 3

        def job() -> object:
            return gram_and_values(params, term.columns("learned", range(100), params, params), {100: gradient}, 100)
    else:
        loss = LinearLoss(
            {"logloss": logloss, "smooth": UniformLabels(), "dropout": Dropout(0.5), "l2": L2(), "l1": L1()},
            box={"logloss": 1.0, "smooth": (0, 1), "dropout": (0, 1), "l2": (0, 1), "l1": (0, 1)},
        )
        bound = 3 + 3

        def job() -> object:
            return observe_model(model, loss, logloss, data, data)

    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    job()
    print(f"  {what:8} {(_status('VmHWM') - before) / size:.2f} (bound {bound})")


def _status(field: str) -> int:
    """Bytes in memory now (VmRSS), or at most so far (VmHWM)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--peak", choices=["gram", "observe"], help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak(options.peak, options.size)
        return
    print("One thread; medians of calls taken in turns.")
    steps = [partial(step_on_cnn, n_train) for n_train in (100, 1000)]
    for part in (epoch_with_tuner, *steps, piecewise_step, piecewise_gram, memory):
        part(options.quick)


if __name__ == "__main__":
    main()
