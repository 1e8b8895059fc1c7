"""Tune the weights of eleven augmentations and of weight decay in one run of a small CNN.

    plain * log loss + sum over augmentations of weight * log loss on augmented images + l2 * |w|_2^2

python examples/cnn_augmentations.py            small: one seed and few epochs, only to see that it works
python examples/cnn_augmentations.py --full     100 epochs, 5 seeds, 20 random policies, into docs/

The data are scikit-learn's digits, 8 x 8 pixels, with 100 training images. A seed sets the split, the start of the
model and the order of its examples. Eight augmentations keep the meaning of a digit; mirror, upside_down and
quarter_turn do not.

The tuner runs three times: with the plain loss pinned at 1, with all weights on a simplex, as a policy, and with the
plain loss pinned and gradients compared in the curvature metric. It is compared with

- no augmentation;
- all augmentations at weight 1;
- "useful equal", which is what an expert would do: the eight useful augmentations at weight 1, without the others;
- the best of 20 random policies by validation log loss. A policy has the plain loss at 1. Each augmentation is left out
  with probability 1/2; otherwise its weight is log-uniform in (0.01, 2). Weight decay is log-uniform in (1e-5, 1e-2).

Every run is reported at its epoch of least validation log loss.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from augmentations import HARMFUL, USEFUL
from common import (
    Batches,
    Record,
    Split,
    arguments,
    logloss,
    markdown,
    run_missing,
    train,
)
from sklearn.datasets import load_digits
from torch import nn

from tuneloss import Box
from tuneloss.paper.statistics import interval
from tuneloss.torch import L2, Augmented, LinearLoss, OnlineTuner
from tuneloss.torch.observing import ObserveOptions

AUGMENTATIONS = USEFUL | HARMFUL
NAMES = ("plain", *AUGMENTATIONS, "l2")
NONE, EQUAL, EXPERT, RANDOM = "no augmentation", "all equal", "useful equal", "best random policy"
PINNED, SIMPLEX, CURVED = ONLINE = ("online, plain pinned", "online, simplex", "online, curvature metric")
METHODS = (NONE, EQUAL, EXPERT, RANDOM, *ONLINE)
LEARNING_RATE, BATCH, N_TRAIN = 3e-3, 25, 100
MOST, MOST_L2 = 2.0, 1e-2  # upper bounds of the box; random policies have the same
DRAWS = 2  # of each augmentation per observation; the curvature metric was level with one draw, which costs less


def digit_images(seed: int, n_train: int = N_TRAIN) -> Split:
    """Draw a split: 100 training images (1, 8, 8) in [0, 1]; the rest is halved into validation and test."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    ends = [n_train, (len(order) + n_train) // 2]
    x, y = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)
    return Split("digits", 10, *((x[part], y[part]) for part in map(torch.from_numpy, np.split(order, ends))))


def cnn(seed: int) -> nn.Module:
    """Make a CNN: two convolutions, each with ReLU and pooling, and a linear layer, with 12,010 parameters."""
    torch.manual_seed(seed)
    first = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(256, 10))


def augmented_loss(method: str, seed: int, draw: int | None) -> LinearLoss:
    """Make the loss of a method, with its first weights."""
    terms = {"plain": logloss} | {name: Augmented(f) for name, f in AUGMENTATIONS.items()} | {"l2": L2()}
    if method == SIMPLEX:
        # By default all weights would be equal, and a weight decay of 1/13 would shrink the model to nothing.
        return LinearLoss(terms, box=Box.simplex(NAMES), weights=dict.fromkeys(NAMES, 0.0) | {"plain": 1.0})
    loss = LinearLoss(terms, box={"plain": 1.0} | dict.fromkeys(AUGMENTATIONS, (0.0, MOST)) | {"l2": (0.0, MOST_L2)})
    if method in (EQUAL, EXPERT):
        loss.set_weights(dict.fromkeys(AUGMENTATIONS if method == EQUAL else USEFUL, 1.0))
    elif draw is not None:
        loss.set_weights(random_policy(seed, draw))
    return loss


def random_policy(seed: int, draw: int) -> dict[str, float]:
    """Draw the random policy number `draw` of a seed."""
    rng = np.random.default_rng([seed, draw])
    used = rng.random(len(AUGMENTATIONS)) < 0.5
    weights = np.where(used, np.exp(rng.uniform(*np.log([0.01, MOST]), size=len(used))), 0.0)
    l2 = float(np.exp(rng.uniform(*np.log([1e-5, MOST_L2]))))
    return dict(zip(AUGMENTATIONS, weights.tolist(), strict=True)) | {"l2": l2}


def run(key: Record) -> Record:
    """Make one training run; `draw` in the key is the number of a random policy."""
    seed, online = key["seed"], key["method"] in ONLINE
    split, model = digit_images(seed), cnn(seed)
    loss = augmented_loss(key["method"], seed, key["draw"])
    tuners: list[OnlineTuner] = []

    def tune(train: Batches, validation: Batches) -> OnlineTuner:
        curved = key["method"] == CURVED
        look = ObserveOptions(gradient_metric="curvature") if curved else ObserveOptions(draws=DRAWS)
        tuners.append(OnlineTuner(model, loss, logloss, train, validation, observe=look))
        return tuners[0]

    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    options = {"epochs": key["epochs"], "seed": seed, "batch_size": BATCH, "tune": tune if online else None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")  # the best epoch is reported in any case
        record = train(split, model, loss, optimizer, **options).summary()
    if online:
        history = tuners[0].history
        record["weights"] = {name: [float(f"{r.weights[name]:.4g}") for r in history] for name in NAMES}
        record["tuner_seconds"] = round(sum(r.seconds for r in history), 3)
    else:
        record["weights"] = {name: float(f"{weight:.4g}") for name, weight in loss.as_dict().items()}
    return record


def keys(seeds: Sequence[int], epochs: int, draws: int) -> list[Record]:
    """Return the key of each run."""
    each = [(m, draw) for m in METHODS for draw in (range(draws) if m == RANDOM else [None])]
    return [{"method": m, "seed": seed, "draw": draw, "epochs": epochs} for seed in seeds for m, draw in each]


def by_seed(records: Sequence[Record], method: str) -> list[Record]:
    """Return one record per seed; for random policies the best one, with the seconds of all."""
    chosen = []
    for seed in sorted({r["seed"] for r in records}):
        runs = [r for r in records if r["seed"] == seed and r["method"] == method]
        best = min(runs, key=lambda r: r["validation_loss"])
        chosen.append({**best, **{name: sum(r[name] for r in runs) for name in ("seconds", "cpu_seconds")}})
    return chosen


def mean_weights(record: Record) -> dict[str, float]:
    """Return the weights of the reported model; for an online run their mean up to the best epoch."""
    return {n: float(np.mean(np.atleast_1d(w)[: record["best_epoch"]])) for n, w in record["weights"].items()}


def table(records: Sequence[Record]) -> str:
    """Return the table: mean and 95% interval over seeds, and the online runs minus each method, by seed."""
    rows = []
    for method in METHODS:
        runs = by_seed(records, method)
        cells = [str(interval([r[name] for r in runs])) for name in ("validation_loss", "test_loss", "test_error")]
        for online in ONLINE:
            pairs = zip(by_seed(records, online), runs, strict=True)
            cells.append("" if method == online else str(interval([a["test_loss"] - b["test_loss"] for a, b in pairs])))
        seconds = [f"{interval([r[name] for r in runs]).mean:.1f}" for name in ("seconds", "cpu_seconds")]
        rows.append([method, *cells, *seconds])
    header = ["method", "validation log loss", "test log loss", "test error"]
    header += ["pinned minus this, test", "simplex minus this, test", "curvature minus this, test"]
    header += ["seconds", "processor seconds"]
    return markdown(header, rows)


def weights_table(records: Sequence[Record]) -> str:
    """Return the table of the weights of the reported models, as means over seeds."""
    columns = [[mean_weights(r) for r in by_seed(records, method)] for method in (*ONLINE, RANDOM)]
    rows = []
    for name in NAMES:
        label = f"{name} (harmful)" if name in HARMFUL else name
        rows.append([label, *(interval([w[name] for w in column]).text(3) for column in columns)])
    return markdown(["weight", *ONLINE, RANDOM], rows)


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw test log loss by method, with 95% intervals and one mark per seed, and the learned weights."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    for place, method in enumerate(METHODS):
        losses = [r["test_loss"] for r in by_seed(records, method)]
        estimate = interval(losses)
        color = "tab:blue" if method in ONLINE else "tab:gray"
        left.errorbar(estimate.mean, place, xerr=np.nan_to_num(estimate.half), fmt="o", color=color, capsize=4)
        left.plot(losses, [place + 0.2] * len(losses), "|", color=color, alpha=0.6)
    left.set(title="test log loss at the best-validation epoch", yticks=range(len(METHODS)), yticklabels=METHODS)
    left.invert_yaxis()
    places = np.arange(len(AUGMENTATIONS))
    for shift, (method, color) in enumerate(zip(ONLINE, ("tab:blue", "tab:orange", "tab:green"), strict=True)):
        weights = [mean_weights(r) for r in by_seed(records, method)]
        estimates = [interval([w[name] for w in weights]) for name in AUGMENTATIONS]
        means, halves = np.array([e.mean for e in estimates]), np.array([e.half for e in estimates])
        error = np.nan_to_num(np.stack([np.minimum(halves, means), halves]))
        right.bar(places + 0.27 * shift, means, 0.27, yerr=error, color=color, label=method, capsize=2)
    right.set(title="learned weights; the last three are harmful")
    right.set_xticks(places + 0.27, list(AUGMENTATIONS), rotation=45, ha="right")
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the tables."""
    options = arguments(__doc__, "cnn_augmentations", argv, without=("data",))
    epochs, draws = options.epochs or (100 if options.full else 6), 20 if options.full else 2
    records = run_missing(options.results, keys(options.seeds, epochs, draws), run, options.jobs)
    draw_figure(records, options.image)
    return table(records) + "\n" + weights_table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
