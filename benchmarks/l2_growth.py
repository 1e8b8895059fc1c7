"""How the best L2 weight grows with the number of examples: the exponent, 0 as a prior's, 1 as a part of a mean.

    python benchmarks/l2_growth.py [--sets digits tf_flowers ...] [--first 60] [--repeats 10]

Logistic regression with L2 alone, on a training set and on two random halves of it; the best weight by test log loss,
from exact fits at nine weights around it. The splits are those of tuned_logistic.py. One thread.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse

import numpy as np
from tuned_logistic import IMAGES, TABLES, load, shown

from tuneloss.sklearn.fitting import fit
from tuneloss.sklearn.paths import only_l2, vertex
from tuneloss.sklearn.softmax import make_data, predicted

AROUND = dict.fromkeys(TABLES, 0.6) | dict.fromkeys(IMAGES, 3.5)  # the middle of the nine weights
STEP = 1.8


def best_l2(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, middle: float) -> float:
    """The L2 weight of least test log loss, between its neighbours by a parabola."""
    data = make_data(x, y, np.ones(len(y)), int(y_test.max()) + 1)
    params, losses, weights = data.zeros(), [], middle * STEP ** np.arange(4, -5, -1)
    for l2 in weights:  # from strong to weak
        params = fit(data, only_l2(l2), params, tol=3e-5, max_iter=2000).params
        losses.append(-predicted(data, params, x_test)[np.arange(len(y_test)), y_test].mean())
    i = int(np.argmin(losses))
    if i in (0, len(losses) - 1):
        raise RuntimeError(f"The best L2 weight is not within {weights[-1]:.3g} and {weights[0]:.3g}.")
    return float(weights[i] * STEP ** -vertex(losses[i - 1 : i + 2]))


def exponent(name: str, repeat: int) -> float:
    """log2 of the best weight on all examples over that on half of them, the mean of two halves."""
    x, y, x_test, y_test = load(name, repeat)
    half = np.random.default_rng(repeat).permutation(len(y)) % 2 == 0
    parts = [best_l2(x[part], y[part], x_test, y_test, AROUND[name]) for part in (half, ~half)]
    return float(np.log2(best_l2(x, y, x_test, y_test, AROUND[name])) - np.log2(parts).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    images = IMAGES if os.environ.get("TUNELOSS_DATA") else ()
    parser.add_argument("--sets", nargs="+", choices=[*TABLES, *IMAGES], default=[*TABLES, *images])
    parser.add_argument("--repeats", type=int, default=10, help="how many splits")
    parser.add_argument("--first", type=int, default=60, help="the number, and seed, of the first of them")
    options = parser.parse_args()
    for one in options.sets:
        found = np.array([exponent(one, options.first + i) for i in range(options.repeats)])
        print(
            f"{one}, {options.repeats} splits: the best L2 weight grows as n to the power {shown(found, 2)}", flush=True
        )
