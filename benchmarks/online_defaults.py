"""Which options of OnlineTuner to make the defaults: measured on four data sets, two models, five seeds.

python benchmarks/online_defaults.py            everything, into docs/results/online_defaults.jsonl; needs TUNELOSS_DATA
python benchmarks/online_defaults.py --quick    one seed, few epochs, to see that it works (into build/)

Softmax regression learns a convex regularizer of 50 knots (AdaGrad, features as they are); the MLP learns the weights
of five terms (Adam, features standardised).
One factor at a time is changed from the first setting; a few settings change more. Every run counts with its model at
the epoch of least validation log loss, as a ratio to the run of the same seed without terms (early stopping).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import learned_regularizer
import mlp_five_terms
from common import ROOT, Record, load, logloss, markdown, mlp, run_missing, softmax, train

from tuneloss.torch import OnlineTuner
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy

# Learning rate and epochs, by data set and model: fast enough to overfit without terms within the epochs.
PROBLEMS = {
    ("tf_flowers", "softmax"): (0.03, 40),
    ("tf_flowers", "mlp"): (1e-3, 20),
    ("nct_crc_he_3class", "softmax"): (0.03, 40),
    ("nct_crc_he_3class", "mlp"): (1e-3, 20),
    ("oxford_iiit_pet", "softmax"): (0.03, 25),
    ("oxford_iiit_pet", "mlp"): (1e-3, 15),
    ("caltech101", "softmax"): (0.03, 25),
    ("caltech101", "mlp"): (1e-3, 15),
}
DATASETS, MODELS = (tuple(dict.fromkeys(part)) for part in zip(*PROBLEMS, strict=True))
NONE, ALL_BATCHES = "no terms", "all batches"
BASE = OnlinePolicy(epsilon="balanced")  # the default when this was measured; "gradients only" replaced it
BATCHES = 0.25  # of the training batches, in an observation
SETTINGS: dict[str, OnlinePolicy] = {
    "base": BASE,
    ALL_BATCHES: BASE,
    "start now": replace(BASE, start="now"),
    "no offset": replace(BASE, offset=False),
    "gradients only": replace(BASE, epsilon=math.inf),
    "paper's epsilon": replace(BASE, epsilon="paper"),
    "window 3": replace(BASE, window=3),
    "all epochs": replace(BASE, window=None),
    "damping 0": replace(BASE, damping=0.0),
    "constraints: all": replace(BASE, constraints="all"),
    "paper's objective": replace(BASE, objective="paper"),
    "the paper": OnlinePolicy.paper(),
}


def run(key: Record, *, folder: str) -> Record:
    """One training run under a setting, or without terms."""
    split, seed = load(key["dataset"], folder, standardize=key["model"] == "mlp"), key["seed"]
    if key["model"] == "softmax":
        model, loss = softmax(split, seed), learned_regularizer.learned_loss()
        optimizer: Any = torch.optim.Adagrad(model.parameters(), lr=key["learning_rate"])
    else:
        model, loss = mlp(split, seed), mlp_five_terms.five_terms()
        optimizer = torch.optim.Adam(model.parameters(), lr=key["learning_rate"], fused=True)
    tuners: list[OnlineTuner] = []

    def tune(train: object, validation: object) -> OnlineTuner:
        look = ObserveOptions(batches=None if key["setting"] == ALL_BATCHES else BATCHES)
        policy = SETTINGS[key["setting"]]
        tuners.append(OnlineTuner(model, loss, logloss, train, validation, policy=policy, observe=look))
        return tuners[0]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tuned = None if key["setting"] == NONE else tune
        found = train(split, model, loss, optimizer, epochs=key["epochs"], seed=seed, tune=tuned)
    notes = sorted({r.note for t in tuners for r in t.history if r.note})
    return {**found.summary(), "notes": notes, "warnings": sorted({str(w.message)[:80] for w in caught})}


def log_ratios(
    records: Sequence[Record], measure: str, *, last: bool = False
) -> dict[tuple[str, str, str], list[float]]:
    """log(measure / the same without terms), seed by seed, by data set, model and setting."""
    plain = {(r["dataset"], r["model"], r["seed"]): r[measure] for r in records if r["setting"] == NONE}
    found: dict[tuple[str, str, str], list[float]] = {}
    for r in records:
        if r["setting"] != NONE:
            value = r[f"last_{measure}" if last else measure] / plain[r["dataset"], r["model"], r["seed"]]
            found.setdefault((r["dataset"], r["model"], r["setting"]), []).append(math.log(value))
    return found


def detail(records: Sequence[Record], settings: Sequence[str], measure: str) -> str:
    """A row a problem, a column a setting: mean over seeds, in percent of early stopping without terms."""
    ratios = log_ratios(records, measure)
    plain: dict[tuple[str, str], list[float]] = {}
    for r in records:
        if r["setting"] == NONE:
            plain.setdefault((r["dataset"], r["model"]), []).append(r[measure])
    rows = [
        [*problem, f"{np.mean(values):.4f}", *(percent(ratios[*problem, name]) for name in settings)]
        for problem, values in plain.items()
    ]
    return markdown(["data", "model", NONE, *settings], rows)


def overall(records: Sequence[Record], settings: Sequence[str]) -> str:
    """A row a setting, over all problems: the geometric mean of the ratios, ranks, and how often it did not hurt."""
    test, validation = log_ratios(records, "test_loss"), log_ratios(records, "validation_loss")
    last = log_ratios(records, "test_loss", last=True)
    problems = list(dict.fromkeys((r["dataset"], r["model"]) for r in records))
    ranks = np.array([np.argsort(np.argsort([np.mean(test[*p, name]) for name in settings])) + 1 for p in problems])
    rows = []
    for j, name in enumerate(settings):
        every = [value for p in problems for value in test[*p, name]]
        rows.append(
            [
                name,
                percent([np.mean(validation[*p, name]) for p in problems]),
                *(
                    percent([np.mean(test[*p, name]) for p in problems if p[1] in models])
                    for models in (MODELS, ["softmax"], ["mlp"])
                ),
                percent([np.mean(last[*p, name]) for p in problems]),
                f"{ranks[:, j].mean():.1f}",
                f"{sum(v <= 0 for v in every)} of {len(every)}",
                percent([max(np.mean(test[*p, name]) for p in problems)]),
                f"{np.mean([r['cpu_seconds'] for r in records if r['setting'] == name]):.1f}",
            ]
        )
    header = ["setting", "validation", "test", "test, softmax", "test, MLP", "test at the last epoch", "mean rank"]
    return markdown([*header, "runs not above no terms", "worst problem", "processor's seconds"], rows)


def percent(logs: Sequence[float]) -> str:
    """The geometric mean of ratios, as a change in percent."""
    return f"{100 * math.expm1(float(np.mean(logs))):+.1f}%"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, two data sets, few epochs, into build/")
    parser.add_argument("--data", default=os.environ.get("TUNELOSS_DATA"), help="folder (default: TUNELOSS_DATA)")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of 10 to 14")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, help="instead of all")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--out", type=Path, help="file of results")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if not given.data:
        parser.error("there are no data: set TUNELOSS_DATA, or give --data")
    quick = given.quick
    out = given.out or ROOT / ("build" if quick else "docs/results") / "online_defaults.jsonl"
    datasets = given.datasets or DATASETS[: 2 if quick else 4]
    keys = [
        {"dataset": d, "model": m, "setting": s, "seed": seed, "learning_rate": rate, "epochs": 3 if quick else epochs}
        for seed in given.seeds or range(10, 11 if quick else 15)  # not those of the examples
        for (d, m), (rate, epochs) in PROBLEMS.items()
        if d in datasets and m in given.models
        for s in (NONE, *given.settings)
    ]
    records = run_missing(out, keys, partial(run, folder=given.data), given.jobs)
    print(f"Log loss relative to {NONE}, every run at its best-validation epoch; below 0 is better.\n")
    print(overall(records, given.settings))
    for measure in ("test_loss", "validation_loss"):
        print(f"{measure.replace('_', ' ')}, mean over seeds:\n")
        print(detail(records, given.settings, measure))


if __name__ == "__main__":
    main()
