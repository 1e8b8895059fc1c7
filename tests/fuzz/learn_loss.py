"""Random programs for learn_loss, each answer checked against the theorem and an independent LP solver.

    python -m tests.fuzz.learn_loss --count 200000 --seed 0 --jobs 2

Every instance has m = 2 to 12 models and k = 1 to 6 weights. Checked of every answer: the weights lie in the box, they
select `argmin`, the residual of the optimality conditions is at most 1e-7, the scale is positive (calibrated) or not
negative (paper's form), and no better model can be selected by any weights in the box (Theorem 3, by linprog). Prints a
table of counts; any wrong answer is printed whole, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

from tests.properties import TOLERANCE, margin
from tuneloss import Box, LearnedLoss, Observation, learn_loss
from tuneloss.errors import SolverError

KINDS = ("normal", "whole numbers", "duplicates", "simplex", "no upper bound", "negative weights", "unequal units")
CLEAR = 1e-9  # a margin beyond this, of rows of unit length, is no matter of rounding; on whole numbers 0 is exact
CHUNK = 500


def instance(kind: str, rng: np.random.Generator) -> tuple[list[Observation], Box, dict[str, object]]:
    """Observations, a box, and options for learn_loss."""
    m, k = int(rng.integers(2, 13)), int(rng.integers(1, 7))
    box = random_box(kind, k, rng)
    features = rng.normal(size=(m, k))
    errors = rng.normal(size=m) + (1.5 if rng.random() < 0.5 else 0.0)
    if kind == "whole numbers":
        features, errors = rng.integers(-2, 3, (m, k)).astype(float), rng.integers(0, 4, m).astype(float)
    elif kind == "duplicates":
        features = features[rng.integers(0, max(m // 2, 1), m)]
    elif kind == "unequal units":
        features = np.abs(features) * 10.0 ** rng.uniform(-3, 3, k)
    grams = [None] * m
    if rng.random() < 0.5:
        grams = [half.T @ half for half in rng.normal(size=(m, int(rng.integers(1, k + 3)), k + 1))]
    options: dict[str, object] = {"objective": "calibrated" if rng.random() < 0.5 else "paper"}
    if rng.random() < 0.3:
        options["offset"] = True
    if rng.random() < 0.5:
        weight = rng.exponential(size=m) * (rng.random(m) < 0.6)
        weight[int(rng.integers(m))] = rng.exponential()  # often the only one that counts
        options["sample_weight"] = weight
    observations = [Observation(e, f, gram) for e, f, gram in zip(errors, features, grams, strict=True)]
    return observations, box, options


def random_box(kind: str, k: int, rng: np.random.Generator) -> Box:
    if kind == "simplex":
        return Box.simplex([f"weight_{j}" for j in range(k)])
    if kind == "whole numbers":
        lower, upper = rng.integers(0, 2, k).astype(float), rng.integers(1, 4, k).astype(float)
        lower[-1] = upper[-1] = 1.0
        return Box(lower, upper)
    lower = 10.0 ** rng.uniform(-3, 1, k) * (rng.random(k) < 0.7)
    upper = lower + 10.0 ** rng.uniform(-2, 3, k)
    if kind == "negative weights":
        lower = lower - 10.0 ** rng.uniform(-1, 1, k) * (rng.random(k) < 0.5)
    if kind == "no upper bound":
        upper = np.where(rng.random(k) < 0.5, np.inf, upper)
    if rng.random() < 0.8:
        lower[-1] = upper[-1] = 1.0
    else:
        lower[-1] = max(lower[-1], 0.1)
        upper[-1] = max(upper[-1], lower[-1])
    return Box(lower, upper)


def wrong(learned: LearnedLoss, observations: list[Observation], box: Box, kind: str) -> str:
    """What is wrong with an answer; "" if nothing is."""
    features = np.array([o.features for o in observations])
    weights = learned.weights
    if not ((weights >= box.lower) & (weights <= box.upper)).all() or (
        box.is_simplex and abs(weights.sum() - 1) > 1e-12
    ):
        return "weights outside the box"
    if (
        not np.isfinite(learned.scale)
        or learned.scale < 0
        or (learned.objective == "calibrated" and learned.scale == 0)
    ):
        return "scale"
    if not learned.residual <= 1e-7:
        return "residual"
    losses = features @ weights
    if losses[learned.argmin] - losses.min() > TOLERANCE * np.abs(features * weights).max():
        return "argmin not selected"
    order = np.lexsort((-np.arange(len(features)), [o.error for o in observations]))
    least = -1e-11 if kind == "whole numbers" else CLEAR
    for better in order[: int(np.flatnonzero(order == learned.argmin)[0])]:
        if margin(int(better), observations, box) > least:
            return f"model {better} is better and can be selected"
    return ""


def run_chunk(seed: int, first: int, count: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    counts: Counter[tuple[str, str]] = Counter()
    found = []
    for number in range(first, first + count):
        kind = KINDS[number % len(KINDS)]
        observations, box, options = instance(kind, np.random.default_rng([seed, number]))
        try:
            learned = learn_loss(observations, box, **options)  # type: ignore[arg-type]
        except SolverError as reason:
            counts[kind, "unsolved"] += 1
            found.append(f"instance {number} ({kind}) {options}: {reason}")
            continue
        counts[kind, "programs"] += 1
        counts[kind, "not the best model"] += learned.argmin != min(
            range(len(observations)), key=lambda i: (observations[i].error, -i)
        )
        if what := wrong(learned, observations, box, kind):
            counts[kind, "wrong"] += 1
            found.append(f"instance {number} ({kind}) {options}: {what}; {learned}")
    return counts, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    began, bad = time.monotonic(), 0
    chunks = [(i, min(CHUNK, options.count - i)) for i in range(0, options.count, CHUNK)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for some, found in pool.map(run_chunk, [options.seed] * len(chunks), *zip(*chunks, strict=True)):
            counts += some
            bad += len(found)
            for line in found:
                print(line, flush=True)
    columns = ("programs", "not the best model", "unsolved", "wrong")
    print(f"{'kind':18}" + "".join(f"{name:>20}" for name in columns))
    for kind in (*KINDS, "all"):
        cells = [
            sum(n for (own, what), n in counts.items() if what == name and kind in (own, "all")) for name in columns
        ]
        print(f"{kind:18}" + "".join(f"{cell:20}" for cell in cells))
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s with {options.jobs} processes")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
