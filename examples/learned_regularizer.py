"""Learn a regularizer while softmax regression trains: the paper's Figure 3, on features of tf_flowers.

    loss = log loss + sum of r(w) over the weights w, r convex and piecewise linear with 50 knots

python examples/learned_regularizer.py            small: 60 epochs, on scikit-learn's digits if TUNELOSS_DATA is not set
python examples/learned_regularizer.py --full     1000 epochs, 5 seeds, with and without the tuner, into docs/

As in the paper, the optimizer is AdaGrad, the knots are quantiles of the weights after the first epoch, the log loss is
pinned at 1, and r has no upper bound. Unlike in the paper, batches have 32 examples. Features are not standardised.
Each run is reported at the epoch of least validation log loss, and at the last.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from common import Record, arguments, load, logloss, markdown, run_missing, softmax, train

from tuneloss.paper.statistics import interval
from tuneloss.torch import ConvexPiecewiseLinear, LinearLoss, OnlineTuner
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy

# The best of 0.01, 0.03 and 0.1 for AdaGrad alone, on a seed that is not reported; digits need a larger one.
LEARNING_RATE, ON_DIGITS = 0.01, 0.03
# The long run is for hundreds of epochs. The short run on digits has the defaults.
LONG_RUN, EVERY_BATCH = OnlinePolicy.long_run(), ObserveOptions(batches=None)
KNOTS = 50
DATASET = "tf_flowers"
METHODS = ("AdaGrad", "AdaGrad + tuner")
DRAWN = (10, 100, 1000)  # epochs after which r is drawn


def learned_loss() -> LinearLoss:
    """Make the loss: log loss plus a learned regularizer, which is 0 at first."""
    terms = {"logloss": logloss, "learned": ConvexPiecewiseLinear(knots=KNOTS)}
    return LinearLoss(terms, box={"logloss": 1.0, "learned": (0.0, math.inf)})


def run(key: Record, *, folder: str | None) -> Record:
    """Make one training run, with or without the tuner."""
    seed, online = key["seed"], key["method"] == METHODS[1]
    split = load(key["dataset"], folder, standardize=False)
    model, loss = softmax(split, seed), learned_loss()
    regularizers: dict[str, Record] = {}

    def tune(train: object, validation: object) -> OnlineTuner:
        options = {"policy": LONG_RUN, "observe": EVERY_BATCH} if folder else {}
        return OnlineTuner(model, loss, logloss, train, validation, **options)

    def look(epoch: int, tuner: OnlineTuner | None) -> None:
        if tuner is not None and (epoch in DRAWN or epoch == key["epochs"]):
            knots, values = loss.regularizers()["learned"]
            regularizers[str(epoch)] = {"knots": _short(knots), "values": _short(values)}

    optimizer = torch.optim.Adagrad(model.parameters(), lr=key["learning_rate"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")  # if it does, the table shows it
        trained = train(
            split,
            model,
            loss,
            optimizer,
            epochs=key["epochs"],
            seed=seed,
            tune=tune if online else None,
            after_epoch=look,
            parts=("train", "validation", "test"),
        )
    at = _epochs_kept(key["epochs"])
    curves = {part: [trained.curves[f"{part}_loss"][e - 1] for e in at] for part in ("train", "validation", "test")}
    return {**trained.summary(), "epochs_kept": at, "curves": curves, "regularizers": regularizers}


def _epochs_kept(epochs: int) -> list[int]:
    """Keep the first 50 epochs, then ever fewer: enough for a curve on a logarithmic axis."""
    later = np.geomspace(50, max(epochs, 50), 120).round().astype(int).tolist()
    return sorted({e for e in [*range(1, 51), *later, epochs] if e <= epochs})


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def by_seed(records: Sequence[Record], method: str) -> list[Record]:
    """Return the records of a method, in the order of seeds."""
    return [r for r in records if r["method"] == method]


def table(records: Sequence[Record]) -> str:
    """Return the table: mean and 95% interval over seeds, and the difference by seed in the last row."""
    plain, tuned = (by_seed(records, method) for method in METHODS)
    measures = ("validation_loss", "test_loss", "test_error", "last_validation_loss", "last_test_loss", "cpu_seconds")
    rows = [
        [method, str(sorted(r["best_epoch"] for r in runs)), *(str(interval([r[m] for r in runs])) for m in measures)]
        for method, runs in zip(METHODS, (plain, tuned), strict=True)
    ]
    paired = list(zip(tuned, plain, strict=True))
    rows.append(["difference", "", *(str(interval([a[m] - b[m] for a, b in paired])) for m in measures)])
    risen = [r["last_validation_loss"] / r["validation_loss"] - 1 for r in tuned]
    below = [a["last_validation_loss"] <= b["validation_loss"] for a, b in paired]
    words = (
        f"\nUnder the tuner, validation log loss at the last epoch is at most {100 * max(risen):.2f}% above its least, "
        f"and not above the best epoch of {METHODS[0]} alone in {sum(below)} of {len(below)} seeds.\n"
    )
    header = ("method", "best epochs", "validation log loss", "test log loss", "test error")
    return markdown([*header, "validation, last epoch", "test, last epoch", "processor seconds"], rows) + words


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw (a) log loss by epoch, as means with bands of all seeds, and (b) the learned r of the first seed."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for method, style in zip(METHODS, (":", "-"), strict=True):
        runs = by_seed(records, method)
        epochs = runs[0]["epochs_kept"]
        for part, color in (("train", "tab:gray"), ("validation", "tab:orange"), ("test", "tab:blue")):
            curves = np.array([r["curves"][part] for r in runs])
            left.plot(epochs, curves.mean(axis=0), style, color=color, label=f"{part}, {method}")
            left.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.15, lw=0)
    left.set(xscale="log", xlabel="epoch", ylabel="log loss", title=f"(a) {records[0]['dataset']}")
    left.set_ylim(0, 2 * max(r["validation_loss"] for r in records))
    left.legend(fontsize=8)
    for epoch, r in by_seed(records, METHODS[1])[0]["regularizers"].items():
        right.plot(r["knots"], r["values"], label=f"after {epoch} epochs")
    right.set(xlabel="weight w", ylabel="r(w)", title="(b) learned regularizer, first seed")
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the table."""
    options = arguments(__doc__, "learned_regularizer", argv)
    epochs = options.epochs or (1000 if options.full else 60)
    dataset = DATASET if options.data else "digits"
    rate = LEARNING_RATE if options.data else ON_DIGITS
    keys = [
        {"dataset": dataset, "method": method, "seed": seed, "learning_rate": rate, "epochs": epochs}
        for seed in options.seeds
        for method in METHODS
    ]
    records = run_missing(options.results, keys, partial(run, folder=options.data), options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
