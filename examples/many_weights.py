"""How many weights can a validation set determine? 1, 5 or 40 L2 weights for 40 inputs, 25 to 3200 examples.

python examples/many_weights.py            small: one seed, few sizes
python examples/many_weights.py --full     20 seeds, all sizes, into docs/

Logistic regression on 100 training examples. In one problem every fifth input matters: the best loss has a small weight
on these inputs and large weights on the others, which takes 40 weights. In the other problem all inputs matter alike,
so that the best loss needs only one weight.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import Record, arguments, markdown, run_missing
from numpy.typing import NDArray
from scipy.optimize import minimize

from tuneloss import Box, LossTuner, Observation
from tuneloss.paper.statistics import interval

Array = NDArray[np.float64]
INPUTS, TRAIN, TEST, RUNS = 40, 100, 10000, 10
SIZES = (25, 50, 100, 200, 400, 800, 1600, 3200)  # of the validation set
MATTER = {5: "every fifth input matters", 1: "all inputs matter alike"}
COLORS = {1: "#0072B2", 5: "#E69F00", 40: "#D55E00"}  # by the number of weights


def examples(n: int, every: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw inputs (n, INPUTS) and labels 0 or 1 (n,); inputs 0, `every`, 2 `every`, ... matter."""
    x = rng.standard_normal((n, INPUTS))
    z = x[:, ::every].sum(axis=1) * np.sqrt(every / 5)
    return x, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float)


def log_loss(x: Array, y: Array, params: Array) -> tuple[float, Array]:
    """Compute the mean log loss and its gradient."""
    z = x @ params
    return float(np.mean(np.logaddexp(0, z) - y * z)), x.T @ (1 / (1 + np.exp(-z)) - y) / len(y)


def run(key: Record) -> Record:
    """Make ten runs of LossTuner; record validation and test log loss of the run with least validation log loss."""
    rng = np.random.default_rng([key["seed"], key["validation"]])  # the same data for all numbers of weights
    train, validation, test = (examples(n, key["every"], rng) for n in (TRAIN, key["validation"], TEST))
    groups = np.repeat(np.eye(key["weights"]), INPUTS // key["weights"], axis=0)  # (INPUTS, weights)
    names = [f"l2 of group {j}" for j in range(key["weights"])]

    def fit(weights: dict[str, float]) -> Array:
        l2 = groups @ [weights[name] for name in names]

        def loss(params: Array) -> tuple[float, Array]:
            value, gradient = log_loss(*train, params)
            return value + float(l2 @ params**2), gradient + 2 * l2 * params

        params: Array = minimize(loss, np.zeros(INPUTS), jac=True, method="L-BFGS-B").x
        return params

    def observe(weights: dict[str, float]) -> Observation:
        params = fit(weights)
        (value, slope), (error, gradient) = log_loss(*train, params), log_loss(*validation, params)
        features = dict(zip(names, groups.T @ params**2, strict=True)) | {"logloss": value}
        return Observation.from_gradients(
            error, features, gradient, np.column_stack([2 * groups * params[:, None], slope])
        )

    box = Box.from_dict(dict.fromkeys(names, (0.001, 1.0)) | {"logloss": 1.0})
    best = LossTuner(box, seed=key["seed"]).run(observe, n_runs=RUNS, progress=False)
    return {"validation_loss": best.observation.error, "test_loss": log_loss(*test, fit(best.weights))[0]}


def values(records: Sequence[Record], measure: str, **key: int) -> list[float]:
    """Return a measure of all seeds."""
    return [r[measure] for r in records if all(r[name] == value for name, value in key.items())]


def table(records: Sequence[Record]) -> str:
    """Return the table of test log loss by size of the validation set and number of weights."""
    rows = []
    for every, title in MATTER.items():
        for size in dict.fromkeys(r["validation"] for r in records):
            cells = [values(records, "test_loss", every=every, validation=size, weights=n) for n in COLORS]
            rows.append([title, str(size), *(interval(cell).text(3) for cell in cells)])
    return markdown(["data", "validation examples", *map(counted, COLORS)], rows)


def counted(weights: int) -> str:
    """Return the number of weights in words."""
    return f"{weights} weight{'s' * (weights > 1)}"


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw test and validation log loss by the size of the validation set, with 95% intervals of test log loss."""
    from matplotlib.figure import Figure

    sizes = np.array(list(dict.fromkeys(r["validation"] for r in records)))
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panels = figure.subplots(1, len(MATTER), sharey=True)
    for axes, (every, title) in zip(panels, MATTER.items(), strict=True):
        for weights, color in COLORS.items():
            for measure, style in (("validation_loss", ":"), ("test_loss", "-")):
                cells = [values(records, measure, every=every, validation=size, weights=weights) for size in sizes]
                estimates = [interval(cell) for cell in cells]
                mean, half = np.array([e.mean for e in estimates]), np.array([e.half for e in estimates])
                axes.plot(sizes, mean, style, color=color, label=counted(weights) if style == "-" else None)
            axes.fill_between(sizes, mean - half, mean + half, color=color, alpha=0.15, lw=0)
        axes.plot([], [], ":", color="gray", label="on the validation examples")
        axes.set(title=title, xscale="log", xticks=sizes, xticklabels=sizes, xlabel="validation examples")
        axes.minorticks_off()
    panels[0].set_ylabel("log loss (solid lines: test examples)")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the table."""
    options = arguments(__doc__, "many_weights", argv, without=("data", "epochs"), full_seeds=20)
    sizes = SIZES if options.full else SIZES[::4]
    wanted = [
        {"every": every, "validation": size, "weights": weights, "seed": seed}
        for every in MATTER
        for size in sizes
        for weights in COLORS
        for seed in options.seeds
    ]
    records = run_missing(options.results, wanted, run, options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
