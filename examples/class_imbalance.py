"""When not to tune: classes of unequal size, where inverse frequency and a fitted bias need no tuner.

python examples/class_imbalance.py            small: digits, one seed, few epochs
python examples/class_imbalance.py --full     two sets of image features, 5 seeds, into docs/

Some classes have 10 training examples, others hundreds. The error counts all classes alike: it is the mean over classes
of the log loss. The tuner learns one weight per class while the model trains. It is compared with

- no weights;
- inverse frequency: each class weighs as the largest one;
- logit adjustment (Menon et al. 2021): in training, the logarithm of a class's frequency is added to its logit.

Each of the four is also run with a bias: one number per class, added to the logits, with least error on the validation
examples. This is a convex problem. The bias is fitted after each epoch, and costs almost nothing.

No option was tuned. All methods share data, first parameters and batches; each is reported at its epoch of least
validation error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from common import Batches, Examples, Record, Split, arguments, load, markdown, mlp, run_missing
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuneloss.paper.datasets import digits
from tuneloss.paper.statistics import interval
from tuneloss.torch import LinearLoss, OnlineTuner

COUNTS = {  # training examples per class
    "tf_flowers": [200, 20, 100, 10, 50],
    "nct_crc_he_3class": [400, 40, 10],
    "digits": [60, 6] * 5,
}
REPORTED = ("tf_flowers", "nct_crc_he_3class")
PLAIN, INVERSE, ADJUSTED, TUNED = KINDS = ("no weights", "inverse frequency", "logit adjustment", "OnlineTuner")
BIAS = " + bias"
METHODS = tuple(kind + bias for bias in ("", BIAS) for kind in KINDS)
BEST = INVERSE + BIAS  # what to use, and what all methods are compared with
LEARNING_RATE, BATCH, EPOCHS = 1e-3, 32, 30
MOST = 100.0  # the largest weight of a class; the largest class has 1


def unbalanced(name: str, folder: str | None, seed: int) -> Split:
    """Draw the training examples: so many of each class as COUNTS says. Validation and test keep all examples."""
    if name == "digits":
        file = digits(seed, n_train=900)
        pairs = [(file.train_x, file.train_y), (file.validation_x, file.validation_y), (file.test_x, file.test_y)]
        parts = [(torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in pairs]
    else:
        split = load(name, folder)
        parts = [split.train, split.validation, split.test]
    x, y = parts[0]
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    keep = torch.cat([order[y[order] == c][:n] for c, n in enumerate(COUNTS[name])])
    return Split(name, len(COUNTS[name]), (x[keep], y[keep]), *parts[1:])


def balanced(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean over classes of the log loss."""
    n = torch.bincount(labels, minlength=logits.shape[1]).clamp(min=1)
    return cross_entropy(logits, labels, weight=(1 / n).to(logits))


def fit_bias(logits: Tensor, labels: Tensor) -> Tensor:
    """Find the bias per class with least balanced log loss."""
    bias = torch.zeros(logits.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([bias], max_iter=100, line_search_fn="strong_wolfe")

    def value() -> Tensor:
        optimizer.zero_grad()
        loss = balanced(logits + bias, labels)
        loss.backward()
        return loss

    optimizer.step(value)
    return bias.detach()


def per_class(model: nn.Module, batch: Examples) -> dict[str, Tensor]:
    """Compute one term per class: the log losses of its examples, summed and divided by the size of the batch."""
    logits = model(batch[0])
    losses = cross_entropy(logits, batch[1], reduction="none")
    return {f"class {c}": torch.where(batch[1] == c, losses, 0.0).mean() for c in range(logits.shape[1])}


def class_loss(counts: Sequence[int], kind: str) -> LinearLoss:
    """Make the loss with one weight per class; the largest class is pinned at 1."""
    largest = int(np.argmax(counts))
    box = {f"class {c}": (0.01, MOST) if c != largest else 1.0 for c in range(len(counts))}
    ratios = {f"class {c}": max(counts) / n for c, n in enumerate(counts)}
    return LinearLoss({"classes": per_class}, box=box, weights=ratios if kind == INVERSE else dict.fromkeys(box, 1.0))


def run(key: Record, folder: str | None) -> Record:
    """Train once; record the balanced log loss and error rate at the epoch of least validation loss."""
    kind, with_bias = key["method"].removesuffix(BIAS), key["method"].endswith(BIAS)
    split, seed = unbalanced(key["data"], folder, key["seed"]), key["seed"]
    model, loss = mlp(split, seed), class_loss(COUNTS[key["data"]], kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    train, validation = Batches(split.train, BATCH, seed=seed), Batches(split.validation, len(split.validation[1]))
    tuner = OnlineTuner(
        model, loss, lambda model, batch: balanced(model(batch[0]), batch[1]), train, validation, keep_best=False
    )
    frequency = torch.tensor(COUNTS[key["data"]], dtype=torch.float32)
    prior = torch.log(frequency / frequency.sum()) if kind == ADJUSTED else 0.0
    best: Record = {"validation_loss": math.inf}
    for epoch in range(key["epochs"]):
        for x, y in train:
            optimizer.zero_grad()
            value = cross_entropy(model(x) + prior, y) if kind == ADJUSTED else loss(model, (x, y))
            value.backward()
            optimizer.step()
        with torch.no_grad():
            on_validation, on_test = model(split.validation[0]), model(split.test[0])
        bias = fit_bias(on_validation, split.validation[1]) if with_bias else torch.zeros(split.n_classes)
        score = float(balanced(on_validation + bias, split.validation[1]))
        if score < best["validation_loss"]:
            best = {"validation_loss": round(score, 6), "best_epoch": epoch + 1, "weights": loss.as_dict()}
            best |= measure(on_test + bias, split.test[1])
        if kind == TUNED:
            tuner.step()
    return best


def measure(logits: Tensor, labels: Tensor) -> Record:
    """Compute the balanced log loss and the mean over classes of the share of wrong labels."""
    wrong = (logits.argmax(dim=1) != labels).double()
    errors = [float(wrong[labels == c].mean()) for c in labels.unique()]
    return {"test_loss": round(float(balanced(logits, labels)), 6), "test_error": round(float(np.mean(errors)), 6)}


def by_seed(records: Sequence[Record], data: str, method: str) -> dict[int, Record]:
    """Return the records of a method by seed."""
    return {r["seed"]: r for r in records if (r["data"], r["method"]) == (data, method)}


def difference(runs: Mapping[int, Record], others: Mapping[int, Record]) -> str:
    """Return the mean difference in test log loss, paired by seed, with its interval."""
    return str(interval([r["test_loss"] - others[seed]["test_loss"] for seed, r in runs.items()]))


def table(records: Sequence[Record]) -> str:
    """Return the table: balanced test loss and error, and the differences from inverse frequency, also with a bias."""
    rows = []
    for data in dict.fromkeys(r["data"] for r in records):
        for method in METHODS:
            runs = by_seed(records, data, method)
            loss, error = (interval([r[name] for r in runs.values()]) for name in ("test_loss", "test_error"))
            minus = ["" if m == method else difference(runs, by_seed(records, data, m)) for m in (INVERSE, BEST)]
            rows.append([data, method, str(loss), error.percent(), *minus])
    header = ["data", "method", "balanced test log loss", "balanced test error", f"minus {INVERSE}", f"minus {BEST}"]
    return markdown(header, rows)


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw the balanced test loss by method and data set, with 95% intervals and one mark per seed."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(r["data"] for r in records))
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, data in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        for place, method in enumerate(METHODS):
            losses = [r["test_loss"] for r in by_seed(records, data, method).values()]
            estimate, color = interval(losses), "#0072B2" if method.startswith(TUNED) else "0.45"
            axes.errorbar(estimate.mean, place, xerr=np.nan_to_num(estimate.half), fmt="o", color=color, capsize=4)
            axes.plot(losses, [place + 0.25] * len(losses), "|", color=color, alpha=0.6)
        axes.set(title=data, yticks=range(len(METHODS)), xlabel="balanced test log loss")
        axes.set_yticklabels(METHODS if data == sets[0] else [])
        axes.invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the table."""
    options = arguments(__doc__, "class_imbalance", argv)
    sets = REPORTED if options.full and options.data else ("digits",)
    epochs = options.epochs or (EPOCHS if options.full else 10)
    wanted = [
        {"data": data, "method": method, "seed": seed, "epochs": epochs}
        for seed in options.seeds
        for data in sets
        for method in METHODS
    ]
    records = run_missing(options.results, wanted, partial(run, folder=options.data), options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
