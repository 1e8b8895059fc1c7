"""TunedLogisticRegression against LogisticRegressionCV with L2 and with L1: test log loss, processor time, memory.

    python benchmarks/tuned_logistic.py --half report [--sets wine_noise ...] [--repeats 10] [--methods l1 runs]

The data sets are in `logistic_sets.py`, in two halves. Rules are chosen on the half "choose"; the half "report" is run
once, with other seeds. LogisticRegressionCV has 10 Cs, 5 folds, and log loss as its score. With * its Cs lie halfway
between its own, so that one sees how much of a difference is the luck of where they lie. With L1 it uses liblinear for
two classes and SAGA with at most 100 epochs for more. On image features of many classes, L1 would take hours, and is
left out. The elastic-net grid uses SAGA, 10 Cs, 3 ratios of L1 to L2, and 5 folds.

One thread. Each method has a process of its own. They take turns on the same splits. Times are processor times.
Intervals are 95% intervals over splits; with one split, over test examples. `--records` keeps results line by line, so
that a killed run resumes.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import inspect
import json
import multiprocessing
import time
import warnings
from pathlib import Path

import numpy as np
from logistic_sets import FIRST_SEED, HALVES, IMAGES, SETS
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV

from tuneloss.paper.statistics import Interval, interval
from tuneloss.sklearn import TunedLogisticRegression
from tuneloss.sklearn.comparison import l2_cv

CS, RATIOS = np.logspace(-4, 4, 10), (0.25, 0.5, 0.75)
OLD = inspect.signature(LogisticRegression).parameters["penalty"].default == "l2"  # scikit-learn before 1.8
ELASTIC = {"penalty": "elasticnet"} if OLD else {}
L1 = {"penalty": "l1"} if OLD else {"l1_ratios": (1,), "use_legacy_attributes": False}
NO_L1 = ("oxford_iiit_pet", "caltech101")  # sets on which L1 would take hours
METHODS = {
    "l2": "LogisticRegressionCV, L2",  # always there: the others are compared with it
    "l1": "LogisticRegressionCV, L1",
    "runs": "TunedLogisticRegression",
    "online": 'strategy="online"',
    "between": "LogisticRegressionCV, L2, *",
    "grid": "elastic-net grid",
}


def make(method: str, seed: int, n_classes: int):
    """An estimator that has not been fitted."""
    if method in ("runs", "online"):
        return TunedLogisticRegression(strategy=method, random_state=seed)
    if method in ("l2", "between"):
        return l2_cv(Cs=CS if method == "l2" else CS * np.sqrt(CS[1] / CS[0]))
    if method == "l1":
        two = {"solver": "liblinear", "intercept_scaling": 10, "max_iter": 1000}
        solver = two if n_classes == 2 else {"solver": "saga", "max_iter": 100}
        return LogisticRegressionCV(Cs=CS, scoring="neg_log_loss", cv=5, random_state=seed, **solver, **L1)
    grid = {"C": CS, "l1_ratio": RATIOS}
    return GridSearchCV(LogisticRegression(solver="saga", max_iter=100, **ELASTIC), grid, scoring="neg_log_loss", cv=5)


def measure(method: str, name: str, seed: int) -> dict:
    """Mean test log loss, that of each test example, test error, seconds, and MB beyond the data."""
    warnings.simplefilter("ignore")  # SAGA mostly stops at max_iter
    x, y, x_test, y_test = SETS[name](seed)
    model = make(method, seed, len(np.unique(y)))
    before, start = memory(reset=True), time.process_time()
    model.fit(x, y)
    seconds, after = time.process_time() - start, memory()
    p = model.predict_proba(x_test)
    codes = np.searchsorted(model.classes_, y_test)
    losses = -np.log(np.maximum(p[np.arange(len(codes)), codes], np.finfo(float).eps))
    wrong = float(np.mean(p.argmax(axis=1) != codes))
    return {"losses": losses, "loss": losses.mean(), "error": wrong, "seconds": seconds, "MB": after - before}


def memory(*, reset: bool = False) -> float:
    """The most MB this process has held since the last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(held.split()[1]) / 1024


class Records:
    """Results by method, set and seed, each made only once."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._pools, self._found = path, {}, {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                key, result = json.loads(line)
                self._found[tuple(key)] = result | {"losses": np.array(result["losses"])}

    def get(self, *key) -> dict:
        """The result of `measure`, in the process of the method."""
        if key not in self._found:
            if key[0] not in self._pools:
                self._pools[key[0]] = multiprocessing.get_context("spawn").Pool(1)
            result = self._pools[key[0]].apply(measure, key)
            self._found[key] = result
            if self._path:
                with self._path.open("a") as file:
                    file.write(json.dumps([key, result | {"losses": result["losses"].round(6).tolist()}]) + "\n")
        return self._found[key]


def difference(rows: list[dict], base: list[dict]) -> Interval:
    """The mean difference in test log loss, paired, over splits or over the test examples of one split."""
    if len(rows) > 1:
        return interval([row["loss"] - other["loss"] for row, other in zip(rows, base, strict=True)])
    return interval(rows[0]["losses"] - base[0]["losses"])


def compare(name: str, seeds: range, methods: list[str], records: Records) -> None:
    """Print what each method does on one set, and how each is compared with the better LogisticRegressionCV."""
    methods = [method for method in methods if not (method == "l1" and name in NO_L1)]
    results = {method: [] for method in methods}
    for seed in seeds:
        for method in methods:
            results[method].append(records.get(method, name, seed))
    better = min(
        (method for method in methods if method in ("l2", "l1")),
        key=lambda method: np.mean([row["loss"] for row in results[method]]),
    )
    print(f"{name}, {len(seeds)} split{'s' if len(seeds) > 1 else ''}")
    seconds = {method: np.mean([row["seconds"] for row in rows]) for method, rows in results.items()}
    for method, rows in results.items():
        loss, error = interval([row["loss"] for row in rows]), interval([row["error"] for row in rows])
        cost = f"{seconds[method]:.2f} s, {seconds[method] / seconds['l2']:.2f} of L2's time"
        held = np.mean([row["MB"] for row in rows])
        print(f"  {METHODS[method]:27s} log loss {loss}, error {error.percent(2)}; {cost}, {held:.0f} MB")
    for method in methods:
        if method not in ("l2", "l1"):
            gap = difference(results[method], results[better])
            verdict = "above" if gap.mean > gap.half else "below" if gap.mean < -gap.half else "level"
            print(f"  {METHODS[method]:27s} minus {METHODS[better]}: {gap}, {verdict}")
    print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, default="report", help="which half of the sets, and which seeds")
    parser.add_argument("--sets", nargs="+", choices=SETS, help="default: the whole half, images only if TUNELOSS_DATA")
    parser.add_argument("--repeats", type=int, default=1, help="how many splits")
    parser.add_argument("--first", type=int, default=0, help="how many splits of the half to skip")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["l1", "runs"], help="L2 and these")
    parser.add_argument("--records", type=Path, help="file that keeps the results, one line each")
    options = parser.parse_args()
    known = [name for name in HALVES[options.half] if name not in IMAGES or os.environ.get("TUNELOSS_DATA")]
    if options.sets and {*options.sets} & {*IMAGES} and not os.environ.get("TUNELOSS_DATA"):
        parser.error("image sets need TUNELOSS_DATA, a folder of features files")
    first = FIRST_SEED[options.half] + options.first
    kept = Records(options.records)
    for one in options.sets or known:
        compare(one, range(first, first + options.repeats), list(dict.fromkeys(["l2", *options.methods])), kept)
