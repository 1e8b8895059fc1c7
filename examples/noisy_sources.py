"""Eight data sources, some with wrong labels: which of them to trust is learned inside one training run.

python examples/noisy_sources.py            small: digits, one seed
python examples/noisy_sources.py --full     also two sets of image features (TUNELOSS_DATA), ten seeds, into docs/
python examples/noisy_sources.py --choose   what was chosen from: pets, seeds 100 to 103

Each class is spread unevenly over the sources, so no single source is enough. 200 examples with right labels are for
validation. Every method trains the same MLP for the same number of steps. Its model is the one of least validation log
loss, after its outputs were divided by a temperature that is fitted to the same 200 examples: wrong labels make a model
unsure, and calibration alone would repair much of that.

Weights are updated every five training steps, by `OnlineTuner` with its default policy and by hypergradients. This
number and the rates of hypergradients were chosen on oxford_iiit_pet. The figure shows three other data sets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from common import Batches, Examples, Record, Split, arguments, load, markdown, run_missing
from sklearn.datasets import load_digits
from torch import Tensor, nn

from tuneloss import Box
from tuneloss.paper.statistics import interval, paired_difference
from tuneloss.torch import LinearLoss, OnlineTuner, PerSource
from tuneloss.torch.observing import ObserveOptions
from tuneloss.torch.sources import MixtureLoader, SourceLoader

WRONG = (0.0, 0.0, 0.2, 0.2, 0.5, 0.5, 1.0, 1.0)  # the share of labels of each source that are random
NAMES = [f"{'AB'[j % 2]}, {share:.0%} wrong" for j, share in enumerate(WRONG)]
VALIDATION, ROWS, STEPS, PERIOD = 200, 16, 600, 25  # rows of each source in a batch; steps between two measurements
RANDOM = 20  # runs of random search
RATES = (0.05, 0.15, 0.4, 1.0)  # of hypergradients
RARE, RARELY = 25, "tuned, every 25"
EVERY, EVERIES = 5, (5, 10, RARE)  # training steps between two steps of the tuner, by --choose from the latter
CHOSEN = {"one-step hypergradient": 0.4, "Neumann hypergradient": 0.4}  # by --choose
COLORS = {"tuned": "#D55E00", "oracle": "#009E73"}


@dataclass(frozen=True, eq=False)
class Problem:
    """Sources with wrong labels, and right examples for validation and test."""

    sources: dict[str, Examples]
    validation: Examples
    test: Examples
    n_classes: int


def draw(key: Record, folder: str | None) -> Problem:
    """Spread training examples over the sources, and replace some labels by random ones."""
    rng = np.random.default_rng([key["seed"], 17])
    split = digits_split(rng) if key["data"] == "digits" else load(key["data"], folder)
    x, y = split.train
    home = np.zeros(len(y), dtype=int)
    for label in range(split.n_classes):
        members = np.flatnonzero(y.numpy() == label)
        home[members] = rng.choice(len(WRONG), size=len(members), p=rng.dirichlet(np.full(len(WRONG), 0.5)))
    sources = {}
    for j, (name, share) in enumerate(zip(NAMES, WRONG, strict=True)):
        rows = torch.from_numpy(np.flatnonzero(home == j))
        labels = y[rows].clone()
        wrong = torch.from_numpy(rng.random(len(rows)) < share)
        labels[wrong] = torch.from_numpy(rng.integers(split.n_classes, size=int(wrong.sum())))
        sources[name] = (x[rows], labels)
    chosen = rng.permutation(len(split.validation[1]))[:VALIDATION]
    validation = (split.validation[0][chosen], split.validation[1][chosen])
    return Problem(sources, validation, split.test, split.n_classes)


def digits_split(rng: np.random.Generator) -> Split:
    """Split scikit-learn's digits: 1000 for training, 200 for validation, the rest for test."""
    x, y = load_digits(return_X_y=True)
    x, order = (x - x.mean()) / x.std(), rng.permutation(len(y))
    parts = np.split(order, [1000, 1200])
    tensors = [(torch.tensor(x[rows], dtype=torch.float32), torch.tensor(y[rows])) for rows in parts]
    return Split("digits", 10, *tensors)


def row_losses(model: nn.Module, batch: Examples) -> Tensor:
    """Compute the log loss of each example."""
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def log_loss(model: nn.Module, batch: Examples) -> Tensor:
    """Compute the mean log loss."""
    return F.cross_entropy(model(batch[0]), batch[1])


class Hypergradient:
    """Adam on the log weights, along the derivative of the validation error by them.

    With no `terms`, the derivative is that of the error after one step of training. With more, it is the implicit one:
    the inverse Hessian of the loss is a Neumann series of so many terms.
    """

    def __init__(
        self, model: nn.Module, loss: LinearLoss, problem: Problem, rate: float, terms: int, lr: float
    ) -> None:
        self.model, self.loss, self.problem, self.rate, self.terms, self.lr = model, loss, problem, rate, terms, lr
        self.log = torch.tensor(loss.numbers(), dtype=torch.float64).log().requires_grad_()
        self.optimizer = torch.optim.Adam([self.log], lr=rate, betas=(0.9, 0.99))

    def step(self, batch: Any) -> None:
        params = list(self.model.parameters())
        v = torch.autograd.grad(log_loss(self.model, self.problem.validation), params)
        if self.terms:
            slope = torch.autograd.grad(self.loss(self.model, batch), params, create_graph=True)
            total = v
            for _ in range(self.terms):
                product = torch.autograd.grad(slope, params, grad_outputs=v, retain_graph=True)
                v = tuple(a - self.lr * b for a, b in zip(v, product, strict=True))
                total = tuple(a + b for a, b in zip(total, v, strict=True))
            v = total
        gains = []
        for value in self.loss.data_values(self.model, batch).values():
            slopes = torch.autograd.grad(value, params, retain_graph=True)
            gains.append(sum(float((a * b).sum()) for a, b in zip(slopes, v, strict=True)))
        self.log.grad = -torch.tensor(gains, dtype=torch.float64) * self.log.detach().exp()
        self.optimizer.step()
        with torch.no_grad():
            self.log.clamp_(min=np.log(1e-4)).sub_(torch.logsumexp(self.log, 0))
        self.loss.set_weights(self.log.detach().exp().numpy())


def fixed_weights(method: str, problem: Problem, seed: int) -> dict[str, float] | None:
    """Return the weights of a method that does not change them; None for other methods."""
    right, sizes = 1 - np.array(WRONG), np.array([len(y) for _, y in problem.sources.values()])
    word, _, number = method.partition(" ")
    weights = {
        "equal": np.ones(len(NAMES)),
        "by size": sizes,
        "right labels only (oracle)": sizes * (right == 1),
        "size × (1 - wrong)² (oracle)": sizes * right**2,
        "(1 - wrong)² (oracle)": right**2,
    }
    if word == "random":
        weights[method] = np.random.default_rng([seed, int(number)]).dirichlet(np.ones(len(NAMES)))
    return dict(zip(NAMES, weights[method] / weights[method].sum(), strict=True)) if method in weights else None


def run(key: Record, folder: str | None) -> Record:
    """Train with one method; record test log loss and error of the model of least calibrated validation log loss."""
    method, seed = key["method"], key["seed"]
    problem = draw(key, folder)
    torch.manual_seed(seed)
    width = problem.test[0].shape[1]
    model = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, problem.n_classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    train = SourceLoader({name: Batches(part, ROWS, seed=seed) for name, part in problem.sources.items()})
    loss = LinearLoss(
        [PerSource(train, row_losses, sampled=method.endswith("sampled"))],
        Box.simplex(NAMES),
        weights=fixed_weights(method, problem, seed),
    )
    after_step = tuning(method, key, model, loss, train, problem)
    best: Record = {"validation_loss": np.inf}
    weights = []
    for step, batch in enumerate(islice(batches(method, train, problem, loss, seed), STEPS), 1):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        after_step(step, batch)
        weights.append(loss.numbers())
        if step % PERIOD == 0:
            mean = np.mean(weights, axis=0).round(4).tolist()
            now = {"step": step, **measure(model, problem), "weights": mean}
            best = min(best, now, key=lambda one: one["validation_loss"])
    return best


def batches(method: str, train: SourceLoader, problem: Problem, loss: LinearLoss, seed: int) -> Any:
    """Return the training batches: one of each source at a time, or rows drawn with the weights as probabilities."""
    if method.endswith("sampled"):
        sets = {name: torch.utils.data.TensorDataset(*part) for name, part in problem.sources.items()}
        return MixtureLoader(sets, loss, ROWS * len(NAMES), seed=seed)
    return (batch for _ in range(STEPS) for batch in train)


def tuning(
    method: str, key: Record, model: nn.Module, loss: LinearLoss, train: SourceLoader, problem: Problem
) -> Callable[[int, Any], None]:
    """Return what a method does after each training step."""
    if method.startswith("tuned"):
        often: dict[str, Any] = (
            {"cost": 0.2} if "cost" in method else {"every": key.get("every", RARE if method == RARELY else EVERY)}
        )
        options = ObserveOptions(seed=1000 * key["seed"])
        tuner = OnlineTuner(
            model, loss, log_loss, train, [problem.validation], observe=options, keep_best=False, **often
        )
        return lambda step, batch: tuner.step() and None
    if "hypergradient" in method:
        kind = method.partition(",")[0]
        terms = 5 if kind.startswith("Neumann") else 0
        rate = key.get("rate", CHOSEN[kind])
        follow = Hypergradient(model, loss, problem, rate, terms, lr=0.1)
        return lambda step, batch: follow.step(batch) if step % EVERY == 0 else None
    return lambda step, batch: None


@torch.no_grad()
def measure(model: nn.Module, problem: Problem) -> Record:
    """Fit a temperature on the validation examples, and measure the calibrated model."""
    logits = {name: model(getattr(problem, name)[0]) for name in ("validation", "test")}
    temperatures = torch.logspace(-1, 1, 81)
    scaled = logits["validation"] / temperatures[:, None, None]
    labels = problem.validation[1]
    losses = F.cross_entropy(scaled.flatten(0, 1), labels.repeat(len(temperatures)), reduction="none")
    of_each = losses.view(len(temperatures), -1).mean(1)
    at = int(of_each.argmin())
    test = logits["test"]
    return {
        "validation_loss": round(float(of_each[at]), 6),
        "test_loss": round(float(F.cross_entropy(test / temperatures[at], problem.test[1])), 6),
        "raw_test_loss": round(float(F.cross_entropy(test, problem.test[1])), 6),
        "test_error": round(float((test.argmax(1) != problem.test[1]).double().mean()), 6),
        "temperature": round(float(temperatures[at]), 4),
    }


METHODS = [
    "equal",
    "by size",
    *(f"random {i}" for i in range(RANDOM)),
    *CHOSEN,
    "tuned",
    RARELY,
    "tuned, cost 0.2",
    "tuned, sampled",
    "right labels only (oracle)",
    "(1 - wrong)² (oracle)",
    "size × (1 - wrong)² (oracle)",
]
BEST_RANDOM = f"best of {RANDOM} random runs"


def with_best_random(records: Sequence[Record]) -> list[Record]:
    """Replace the random runs of each data set and seed by the one of least validation log loss."""
    rest = [r for r in records if not r["method"].startswith("random")]
    runs: dict[tuple[str, int], list[Record]] = {}
    for r in records:
        if r["method"].startswith("random"):
            runs.setdefault((r["data"], r["seed"]), []).append(r)
    best = [min(group, key=lambda r: r["validation_loss"]) for group in runs.values()]
    return rest + [{**r, "method": BEST_RANDOM} for r in best]


def table(records: Sequence[Record]) -> str:
    """Return the table of test log loss and error by method, with differences by seed from one tuned run."""
    records, rows = with_best_random(records), []
    for data in dict.fromkeys(r["data"] for r in records):
        of_data = [r for r in records if r["data"] == data]
        tuned = {r["seed"]: r["test_loss"] for r in of_data if r["method"] == "tuned"}
        means = {}
        for method in dict.fromkeys(r["method"] for r in of_data):
            some = [r for r in of_data if r["method"] == method]
            losses, errors = [r["test_loss"] for r in some], [r["test_error"] for r in some]
            raw = interval([r["raw_test_loss"] for r in some]).text(3)
            difference = paired_difference({r["seed"]: r["test_loss"] for r in some}, tuned)
            shown = "" if method == "tuned" or difference is None else difference.text(3)
            row = [data, method, interval(losses).text(3), shown, interval(errors).percent(), raw]
            means[method] = (float(np.mean(losses)), row)
        rows += [row for _, row in sorted(means.values(), key=lambda pair: pair[0])]
    return markdown(["data", "method", "test log loss", "minus tuned", "test error", "not calibrated"], rows)


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw test log loss by method, and the weights that one run learned."""
    from matplotlib.figure import Figure

    records = with_best_random(records)
    sets = list(dict.fromkeys(r["data"] for r in records))
    figure = Figure(figsize=(11, 4.2 * len(sets)), layout="constrained")
    grid = figure.subplots(len(sets), 2, squeeze=False, width_ratios=(1, 1))
    for (left, right), data in zip(grid, sets, strict=True):
        of_data = [r for r in records if r["data"] == data]
        losses = {r["method"]: [o["test_loss"] for o in of_data if o["method"] == r["method"]] for r in of_data}
        order = sorted(losses, key=lambda method: -float(np.mean(losses[method])))
        left.set(title=f"{data}: test log loss, calibrated", yticks=range(len(order)), yticklabels=order)
        for at, (method, label) in enumerate(zip(order, left.get_yticklabels(), strict=True)):
            estimate = interval(losses[method])
            color = next((c for word, c in COLORS.items() if word in method), "#555555")
            left.errorbar(estimate.mean, at, xerr=estimate.half, fmt="o", color=color, capsize=3)
            label.set_color(color)
        left.grid(axis="x", alpha=0.3)
        weights = np.array([r["weights"] for r in of_data if r["method"] == "tuned"])
        right.bar(range(len(NAMES)), weights.mean(0), color=COLORS["tuned"])
        right.plot(np.tile(range(len(NAMES)), len(weights)), weights.ravel(), ".", color="#333333", alpha=0.5)
        labels = [f"{'AB'[j % 2]} {share:.0%}" for j, share in enumerate(WRONG)]
        right.set(title="tuned: mean weights up to the best step", xticks=range(len(NAMES)), xticklabels=labels)
        right.tick_params(axis="x", labelsize=8)
        right.set_xlabel("source, and its share of wrong labels")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def choose(folder: str | None, path: Path, jobs: int) -> str:
    """Return the test log loss on oxford_iiit_pet by rate of hypergradients, and by how often the tuner steps."""
    keys = [
        {"data": "oxford_iiit_pet", "method": f"{kind}, rate {rate}", "rate": rate, "seed": seed}
        for kind in CHOSEN
        for rate in RATES
        for seed in range(100, 104)
    ]
    keys += [
        {"data": "oxford_iiit_pet", "method": f"tuned, every {every}", "every": every, "seed": seed}
        for every in EVERIES
        for seed in range(100, 104)
    ]
    records = run_missing(path, keys, partial(run, folder=folder), jobs)
    methods = dict.fromkeys(r["method"] for r in records)
    rows = [[m, interval([r["test_loss"] for r in records if r["method"] == m]).text(3)] for m in methods]
    return markdown(["method", "test log loss"], rows)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the table."""
    argv = list(sys.argv[1:] if argv is None else argv)
    choosing = "--choose" in argv
    options = arguments(
        __doc__, "noisy_sources", [a for a in argv if a != "--choose"], without=("epochs",), full_seeds=10
    )
    if choosing:
        return choose(options.data, options.results.with_name("noisy_sources_choice.jsonl"), options.jobs)
    sets = ["digits", *(["tf_flowers", "caltech101"] if options.full and options.data else [])]
    few = [f"random {i}" for i in range(3, RANDOM)]
    methods = METHODS if options.full else [m for m in METHODS if m not in few]
    keys = [{"data": d, "method": m, "seed": seed} for seed in options.seeds for d in sets for m in methods]
    records = run_missing(options.results, keys, partial(run, folder=options.data), options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
