"""Tune the weights of five loss terms in one run of an MLP; compare with early stopping and 20 random runs.

    log loss + l1 |w|_1 + l2 |w|_2^2 + smooth * uniform labels + dropout * log loss under dropout
             + noise * log loss on noisy inputs

python examples/mlp_five_terms.py            small: one seed, on scikit-learn's digits if TUNELOSS_DATA is not set
python examples/mlp_five_terms.py --full     nct_crc_he_3class and tf_flowers, 40 epochs, 5 seeds, into docs/

Every run is reported at its epoch of least validation log loss. The best random run is the one of least validation log
loss among 20 (small: 3) whose weights are drawn log-uniformly from ranges that end at the upper bounds of the tuner.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from common import (
    Record,
    arguments,
    load,
    logloss,
    markdown,
    mlp,
    run_missing,
    train,
)
from torch import Tensor

from tuneloss.paper.statistics import interval
from tuneloss.torch import L1, L2, Augmented, Dropout, LinearLoss, OnlineTuner, UniformLabels
from tuneloss.torch.observing import ObserveOptions

LEARNING_RATE, ON_DIGITS = 1e-3, 1e-2  # Adam's default; at the larger one digits overfit within the epochs
SLOW = 3e-4  # the best of 1e-4, 3e-4 and 1e-3 for early stopping, on seeds that are not reported
MEASURES = ("validation_loss", "test_loss", "test_error")  # in the table
DATASETS = ("nct_crc_he_3class", "tf_flowers")
PLAIN, RANDOM, ONLINE = "early stopping", "best random run", "one online run"
PLAIN_SLOW = f"early stopping, rate {SLOW:g}"
HALF, FULL = "one online run, observing half of the batches", "one online run, observing all batches"
BATCHES = {ONLINE: "auto", HALF: 0.5, FULL: None}  # how many of the batches the tuner observes per epoch

# Ranges of the weights. Random search draws log-uniformly from them; the box of the tuner begins at 0. They hold the
# weights that helped when each term was tried alone, on seeds that are not reported. Wider ranges would make random
# search worse. Data terms are means over examples, penalties are sums over parameters.
RANGES = {
    "smooth": (1e-3, 0.1),
    "dropout": (0.1, 10.0),
    "noise": (0.1, 10.0),
    "l1": (1e-6, 1e-3),
    "l2": (1e-5, 1e-2),
}


def add_noise(x: Tensor) -> Tensor:
    """Add noise of standard deviation 1, which is that of the features."""
    return x + torch.randn_like(x)


def five_terms() -> LinearLoss:
    """Make the loss: log loss, pinned at 1, and five terms to tune, which start at 0."""
    terms = {
        "logloss": logloss,
        "smooth": UniformLabels(),
        "dropout": Dropout(0.5),
        "noise": Augmented(add_noise),
        "l1": L1(),
        "l2": L2(),
    }
    return LinearLoss(terms, box={"logloss": 1.0} | {name: (0.0, high) for name, (_, high) in RANGES.items()})


def random_weights(seed: int, draw: int) -> dict[str, float]:
    """Draw the random weights number `draw` of a seed, log-uniformly."""
    rng = np.random.default_rng([seed, draw])
    return {name: float(np.exp(rng.uniform(*np.log(ends)))) for name, ends in RANGES.items()}


def run(key: Record, *, folder: str | None) -> Record:
    """Make one training run; `draw` in the key is the number of a random run."""
    seed, online = key["seed"], key["method"] in BATCHES
    split = load(key["dataset"], folder)
    model, loss = mlp(split, seed), five_terms()
    if key["draw"] is not None:
        loss.set_weights(random_weights(seed, key["draw"]))
    tuners: list[OnlineTuner] = []

    def tune(train: object, validation: object) -> OnlineTuner:
        look = ObserveOptions(batches=BATCHES[key["method"]])
        tuners.append(OnlineTuner(model, loss, logloss, train, validation, observe=look))
        return tuners[0]

    optimizer = torch.optim.Adam(model.parameters(), lr=key["learning_rate"], fused=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")  # the best epoch is reported in any case
        trained = train(split, model, loss, optimizer, epochs=key["epochs"], seed=seed, tune=tune if online else None)
    record = trained.summary()
    if key["draw"] is None:
        record |= {"validation_curve": trained.curves["validation_loss"], "test_curve": trained.curves["test_loss"]}
    if online:
        history = tuners[0].history
        record["weights"] = {n: [float(f"{r.weights[n]:.4g}") for r in history] for n in RANGES}
        record["tuner_seconds"] = round(sum(r.seconds for r in history), 3)
    elif key["draw"] is not None:
        record["weights"] = {name: float(f"{value:.4g}") for name, value in loss.as_dict().items() if name in RANGES}
    return record


def keys(datasets: Sequence[str], seeds: Sequence[int], rate: float, epochs: int, draws: int) -> list[Record]:
    """Return the key of each run."""
    methods = [(PLAIN, None, rate), (PLAIN_SLOW, None, SLOW), *((method, None, rate) for method in BATCHES)]
    methods += [(RANDOM, draw, rate) for draw in range(draws)]
    return [
        {
            "dataset": dataset,
            "method": method,
            "seed": seed,
            "draw": draw,
            "learning_rate": method_rate,
            "epochs": epochs,
        }
        for dataset in datasets
        for seed in seeds
        for method, draw, method_rate in methods
    ]


def by_seed(records: Sequence[Record], dataset: str, method: str) -> list[Record]:
    """Return one record per seed; for random runs the best one, with the seconds of all."""
    runs = [r for r in records if r["dataset"] == dataset]
    seeds = sorted({r["seed"] for r in runs})
    if method != RANDOM:
        return [next(r for r in runs if r["seed"] == seed and r["method"] == method) for seed in seeds]
    chosen = []
    for seed in seeds:
        draws = [r for r in runs if r["seed"] == seed and r["method"] == RANDOM]
        best = min(draws, key=lambda r: r["validation_loss"])
        chosen.append({**best, **{name: sum(r[name] for r in draws) for name in ("seconds", "cpu_seconds")}})
    return chosen


def table(records: Sequence[Record]) -> str:
    """Return the table: mean and 95% interval over seeds, and the online run minus each method, by seed."""
    rows = []
    for dataset in dict.fromkeys(r["dataset"] for r in records):
        online = by_seed(records, dataset, ONLINE)
        for method in (PLAIN, PLAIN_SLOW, RANDOM, FULL, HALF, ONLINE):
            runs = by_seed(records, dataset, method)
            differences = [a["test_loss"] - b["test_loss"] for a, b in zip(online, runs, strict=True)]
            compared = f"{interval(differences)}; {sum(d <= 0 for d in differences)} of {len(differences)}"
            rows.append(
                [
                    dataset,
                    method,
                    *(
                        str(interval([r[name] for r in runs]))
                        for name in ("validation_loss", "test_loss", "test_error")
                    ),
                    "" if method == ONLINE else compared,
                    f"{interval([r['seconds'] for r in runs]).mean:.1f}",
                    f"{interval([r['cpu_seconds'] for r in runs]).mean:.1f}",
                ]
            )
    header = ("data", "method", "validation log loss", "test log loss", "test error")
    compared = "online minus this, test log loss; seeds in which online is not above"
    return markdown([*header, compared, "seconds", "processor seconds"], rows)


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw one row per data set: test log loss by epoch, and the learned weights of the first seed."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    from tuneloss.report.colors import COLORS, INK

    datasets = list(dict.fromkeys(r["dataset"] for r in records))
    figure, axes = plt.subplots(
        len(datasets), 2, figsize=(10, 3.6 * len(datasets)), squeeze=False, layout="constrained"
    )
    for (left, right), dataset in zip(axes, datasets, strict=True):
        for method, color in ((PLAIN, INK), (ONLINE, COLORS["TuneLoss"])):
            curves = np.array([r["test_curve"] for r in by_seed(records, dataset, method)])
            epochs = np.arange(1, curves.shape[1] + 1)
            left.plot(epochs, curves.mean(axis=0), color=color, label="no terms" if method == PLAIN else method)
            left.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.2, lw=0)
        chosen = interval([r["test_loss"] for r in by_seed(records, dataset, RANDOM)]).mean
        left.axhline(chosen, color=COLORS["random search"], ls="--", label=RANDOM)
        left.set(title=dataset, xlabel="epoch", ylabel="test log loss")
        left.legend()
        for name, values in by_seed(records, dataset, ONLINE)[0]["weights"].items():
            right.plot(np.arange(1, len(values) + 1), np.maximum(values, RANGES[name][0] / 10), label=name)
        right.set(title="learned weights, first seed", xlabel="epoch", yscale="log")
        right.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the table."""
    options = arguments(__doc__, "mlp_five_terms", argv)
    datasets = DATASETS if options.data else ("digits",)
    epochs, draws = options.epochs or (40 if options.full else 15), 20 if options.full else 3
    wanted = keys(datasets, options.seeds, LEARNING_RATE if options.data else ON_DIGITS, epochs, draws)
    records = run_missing(options.results, wanted, partial(run, folder=options.data), options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
