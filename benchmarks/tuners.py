"""How long each tuner takes to propose, with 10, 50 and 200 observations told; one thread.

python benchmarks/tuners.py            all
python benchmarks/tuners.py --quick    10 observations only

Observations are of models with random weights of the loss of appendix B (four free weights), on embedded digits.
Searches by hypergradients are left out: they propose from the runs that they asked for.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import time
import warnings

import numpy as np

from tuneloss.baselines.random_search import RandomSearch
from tuneloss.paper.datasets import digits
from tuneloss.paper.terms import appendix_box, draw_masks, observe
from tuneloss.paper.trainer import train
from tuneloss.paper.tuners import READ_HYPERGRADIENTS, TUNERS, make_tuner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 observations only")
    sizes = (10,) if parser.parse_args().quick else (10, 50, 200)
    warnings.simplefilter("ignore")  # optuna's words on what is experimental
    split, box = digits(0), appendix_box()
    masks = draw_masks(split, np.random.default_rng(0), draws=4)
    search = RandomSearch(box, seed=0)
    told = []
    for i in range(max(sizes)):
        weights = search.ask()
        params = train(split, weights, np.random.default_rng(i), epochs=3)
        told.append((weights, observe(params, split, masks)))
    print("Seconds a proposal, median of 3:")
    print("  " + "tuner".ljust(16) + "".join(f"{n:>12} told" for n in sizes))
    for name in (tuner for tuner in TUNERS if tuner not in READ_HYPERGRADIENTS):
        cells = []
        for n in sizes:
            tuner = make_tuner(name, box, 0, told[0][0])
            for weights, observation in told[:n]:
                tuner.tell(weights, observation)
            taken = []
            for _ in range(3):
                began = time.perf_counter()
                tuner.ask()
                taken.append(time.perf_counter() - began)
            cells.append(f"{np.median(taken):>17.4f}")
        print("  " + name.ljust(16) + "".join(cells))


if __name__ == "__main__":
    main()
