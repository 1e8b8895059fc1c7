"""How many fits each method needs to be within 5% and 1% of the best validation error, from far starts in wide boxes.

python -m benchmarks.far_starts.hypergradients > benchmarks/far_starts/hypergradients.txt    seeds 1000 to 1019
python -m benchmarks.far_starts.hypergradients --seeds 0 20                                  for choosing options

All methods begin with the same weights. One fit is one trained model. `Hoag` and `HypergradientLbfgs` are also told the
exact derivative of the error, at no cost in fits. The best error is the least that any method finds, or that L-BFGS
finds on exact hypergradients from eight starts, with up to 100 iterations each.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.far_starts.problems import FAMILIES, Problem
from tuneloss import LossTuner, Observation
from tuneloss.baselines import Hoag, HypergradientLbfgs, OptunaSearch, RandomSearch
from tuneloss.types import Array

FITS = 30  # per method and problem
REPORTED = (1000, 1020)  # seeds; those below 1000 are for choosing
WITHIN = (0.05, 0.01)  # of the best error
METHODS: dict[str, Callable[..., Any]] = {  # called with a box, seed and start
    "L-BFGS on hypergradients": HypergradientLbfgs,
    "HOAG": Hoag,
    "LossTuner": LossTuner,
    "Optuna GP, 3 start-up trials": partial(OptunaSearch, sampler="gp", n_startup=3),
    "random search": RandomSearch,
}


def errors_by_fit(method: str, problem: Problem, seed: int, fits: int = FITS) -> Array:
    """Return the validation error of each fit, (fits,)."""
    tuner = METHODS[method](problem.box, seed=seed, start=problem.start)
    errors = []
    for _ in range(fits):
        weights = tuner.ask()
        if isinstance(tuner, Hoag | HypergradientLbfgs):
            free = problem.box.as_array(weights)[:-1]
            error, by_logs = problem.hypergradient(np.log(free))
            observation = Observation(error, np.zeros(len(problem.box)))
            tuner.tell(weights, observation, derivative=np.append(by_logs / free, 0.0))
        else:
            observation = problem.observe(weights)
            tuner.tell(weights, observation)
        errors.append(observation.error)
    return np.array(errors)


def excesses(family: str, seeds: Sequence[int], fits: int = FITS) -> dict[str, Array]:
    """Return, for each method, the least error so far as a fraction above the best: (seeds, fits)."""
    rows: dict[str, list[Array]] = {method: [] for method in METHODS}
    for seed in seeds:
        # Each method has a problem of its own, since logistic regression starts from the model before.
        errors = {method: errors_by_fit(method, FAMILIES[family](seed), seed, fits) for method in METHODS}
        best = min(FAMILIES[family](seed).least_error(), *(float(e.min()) for e in errors.values()))
        for method in METHODS:
            rows[method].append(np.minimum.accumulate(errors[method]) / best - 1)
    return {method: np.array(values) for method, values in rows.items()}


def fits_needed(excess: Array, within: float) -> Array:
    """Return the number of fits until the excess (problems, fits) is small enough; one more than all if it never is."""
    reached = excess <= within
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, excess.shape[1] + 1)


def cells(excess: Array, within: float) -> list[str]:
    """Return the fits that half of the problems need (a quarter, three quarters), and the share that gets there."""
    needed, most = fits_needed(excess, within), excess.shape[1]
    middle, low, high = np.quantile(needed, (0.5, 0.25, 0.75), method="inverted_cdf").astype(int)
    text = [str(n) if n <= most else f">{most}" for n in (middle, low, high)]
    return [f"{text[0]} ({text[1]} to {text[2]})", f"{100 * np.mean(needed <= most):.0f}%"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=REPORTED, help="first seed, and one after the last")
    first, end = parser.parse_args().seeds
    warnings.simplefilter("ignore")  # Optuna's words on what is experimental
    print(f"Fits to within 5% and 1% of the best, on seeds {first} to {end - 1}: median (quartiles), and the share of")
    print(f"problems that get there within {FITS} fits.")
    print()
    print("| problems | method | fits to 5% | share | fits to 1% | share |")
    print("|---|---|---|---|---|---|")
    for family in FAMILIES:
        for method, excess in excesses(family, range(first, end)).items():
            columns = [cell for within in WITHIN for cell in cells(excess, within)]
            print(f"| {family} | {method} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
