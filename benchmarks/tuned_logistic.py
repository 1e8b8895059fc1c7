"""TunedLogisticRegression against LogisticRegressionCV and an elastic-net grid: test log loss, seconds, memory.

    python benchmarks/tuned_logistic.py [--sets digits tf_flowers ...] [--repeats 5] [--methods runs online]

LogisticRegressionCV has 10 Cs over eight decades; with * they lie halfway between those, so that one sees how much of a
difference is the luck of where they lie. One thread. Each method runs in a process of its own, on the same split: the
first of a features file in TUNELOSS_DATA is its own (training and validation examples together against test), all
others are drawn, stratified, of the same sizes; the tables of scikit-learn, standardised, have 60% for training. The
grid (SAGA, 10 Cs, 3 ratios of L1 to L2, 5 folds) is run in full on the tables; on image features, where it takes from
minutes to hours, one of its folds is timed at three of its Cs, and that time multiplied (`whole-grid` runs it in full).
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import inspect
import multiprocessing
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler

from tuneloss.paper.statistics import interval
from tuneloss.sklearn import TunedLogisticRegression
from tuneloss.sklearn.comparison import l2_cv

TABLES = {"digits": load_digits, "breast_cancer": load_breast_cancer}
IMAGES = ("tf_flowers", "nct_crc_he_3class", "oxford_iiit_pet", "caltech101")
CS, RATIOS = np.logspace(-4, 4, 10), (0.25, 0.5, 0.75)
OLD = inspect.signature(LogisticRegression).parameters["penalty"].default == "l2"  # scikit-learn before 1.8
ELASTIC = {"penalty": "elasticnet"} if OLD else {}
METHODS = {
    "cv": "LogisticRegressionCV",  # always there: the others are compared with it
    "runs": "TunedLogisticRegression",
    "online": 'strategy="online"',
    "between": "LogisticRegressionCV, *",  # how much of a difference is the luck of where its ten Cs lie
    "grid": "elastic-net grid",
    "whole-grid": "elastic-net grid, whole",  # on image features too
}


def load(name: str, repeat: int):
    """Training and test examples of one split."""
    if name in TABLES:
        x, y = TABLES[name](return_X_y=True)
        x, x_test, y, y_test = train_test_split(x, y, train_size=0.6, stratify=y, random_state=repeat)
        scaler = StandardScaler().fit(x)
        return scaler.transform(x), y, scaler.transform(x_test), y_test
    file = np.load(Path(os.environ["TUNELOSS_DATA"]) / f"{name}.npz")
    x, y, test = file["features"].astype(np.float64), file["labels"].astype(int), file["split"] == 2
    if repeat == 0:
        return x[~test], y[~test], x[test], y[test]
    x, x_test, y, y_test = train_test_split(x, y, train_size=int((~test).sum()), stratify=y, random_state=repeat)
    return x, y, x_test, y_test


def make(method: str, repeat: int):
    if method in ("runs", "online"):
        return TunedLogisticRegression(strategy=method, random_state=repeat)
    if method in ("cv", "between"):
        cs = CS if method == "cv" else CS * np.sqrt(CS[1] / CS[0])
        return l2_cv(Cs=cs)
    grid = {"C": CS, "l1_ratio": RATIOS}
    return GridSearchCV(LogisticRegression(solver="saga", max_iter=100, **ELASTIC), grid, scoring="neg_log_loss", cv=5)


def measure(method: str, name: str, repeat: int) -> tuple[float, float, float, float]:
    """Test log loss, test error, seconds, and MB beyond the data."""
    warnings.simplefilter("ignore")  # SAGA mostly stops at max_iter
    x, y, x_test, y_test = load(name, repeat)
    before, start = memory(reset=True), time.perf_counter()
    if method == "grid" and name in IMAGES:
        fold = np.random.default_rng(0).random(len(y)) < 0.8
        for c in CS[[2, 5, 8]]:
            LogisticRegression(solver="saga", max_iter=100, C=c, l1_ratio=0.5, **ELASTIC).fit(x[fold], y[fold])
        seconds = (time.perf_counter() - start) / 3 * len(CS) * len(RATIOS) * 5
        return np.nan, np.nan, seconds, np.nan
    model = make(method, repeat).fit(x, y)
    seconds = time.perf_counter() - start
    after = memory()
    probabilities = model.predict_proba(x_test)
    wrong = float(np.mean(model.classes_[probabilities.argmax(axis=1)] != y_test))
    return log_loss(y_test, probabilities, labels=model.classes_), wrong, seconds, after - before


def memory(*, reset: bool = False) -> float:
    """The most MB this process has held since the last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(held.split()[1]) / 1024


def in_its_own_process(*job) -> tuple[float, float, float, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, job)


def compare(name: str, splits: range, methods: list[str]) -> None:
    found = {method: [] for method in methods}
    for repeat in splits:
        for method in methods:
            if not (method == "grid" and repeat > splits[0] and name in IMAGES):
                found[method].append(in_its_own_process(method, name, repeat))
    parts = {method: np.array(rows) for method, rows in found.items()}
    base = parts["cv"]
    print(f"{name}, {len(splits)} split{'s' if len(splits) > 1 else ''}")
    for method, rows in parts.items():
        ratio = base[:, 2].mean() / rows[:, 2].mean()
        known = not np.isnan(rows[:, 0]).any()
        quality = (
            f"test log loss {interval(rows[:, 0])}, error {interval(rows[:, 1]).percent(2)}" if known else "not run"
        )
        cost = f"{rows[:, 2].mean():.1f} s{'' if known else ' (estimated)'}, {ratio:.2f} times as fast as the L2 path"
        memory = f", {rows[:, 3].mean():.0f} MB beyond the data" if known else ""
        print(f"  {METHODS[method]:24s} {quality}; {cost}{memory}")
        if method in ("runs", "online", "between"):
            print(f"  {'':24s} test log loss minus that of the L2 path: {interval(rows[:, 0] - base[:, 0])}")
    print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sets", nargs="+", choices=[*TABLES, *IMAGES], help="default: all, except images without features files"
    )
    parser.add_argument("--repeats", type=int, default=1, help="how many splits")
    parser.add_argument("--first", type=int, default=0, help="the number, and seed, of the first of them")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS)[:-1], help="LogisticRegressionCV and these"
    )
    options = parser.parse_args()
    if options.sets is None:
        options.sets = [*TABLES, *(IMAGES if os.environ.get("TUNELOSS_DATA") else ())]
    elif not {*options.sets} <= {*TABLES} and not os.environ.get("TUNELOSS_DATA"):
        parser.error("image sets need TUNELOSS_DATA, a folder of features files")
    for one in options.sets:
        compare(
            one, range(options.first, options.first + options.repeats), list(dict.fromkeys(["cv", *options.methods]))
        )
