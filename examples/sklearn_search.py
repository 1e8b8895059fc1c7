"""Show how TunedLogisticRegression searches, and what it learns, on digits.

python examples/sklearn_search.py            small: 300 examples, 3 folds, into build/examples/
python examples/sklearn_search.py --full     all examples, 5 folds, into docs/

Left: validation log loss of each fit by its L2 weight, or by its L1 weight if it has no L2, beside that of fits with L2
alone. Right: the penalty of a coefficient, as learned by the last fit and by `strategy="online"`, which learns a convex
function.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from tuneloss.sklearn import TunedLogisticRegression
from tuneloss.sklearn.paths import is_l2_only, is_plain

Array = NDArray[np.float64]
Folds = list[tuple[Any, Any]]
ROOT = Path(__file__).resolve().parents[1]
TERMS = ("l2", "l1", "uniform", "dropout")
L2, L1, LEARNED = "fits with L2 alone", "fits with L1 alone", "fits with learned weights"
COLORS = {L2: "#7F7F7F", L1: "#009E73", LEARNED: "#0072B2"}
ONLINE = "#E69F00"


def l2_alone(x: Array, y: Array, folds: Folds, weights: Array) -> Array:
    """Compute the mean validation log loss of fits with L2 alone, for L2 weights from large to small."""
    total = np.zeros(len(weights))
    for train, held in folds:
        model = LogisticRegression(tol=1e-6, max_iter=9999, warm_start=True)
        for j, l2 in enumerate(weights):
            model.set_params(C=1 / (2 * l2)).fit(x[train], y[train])
            total[j] += log_loss(y[held], model.predict_proba(x[held]), normalize=False)
    return total / len(y)


def kind(weights: dict[str, float]) -> str:
    """Return what kind of fit has these weights."""
    if is_l2_only(weights):
        return L2
    return L1 if is_plain(weights) else LEARNED


def strength(weights: dict[str, float]) -> float:
    """Return the weight of L2, or that of L1 without L2."""
    return weights["l2"] or weights["l1"]


def table(model: TunedLogisticRegression) -> str:
    """Return the table of all fits: weights and validation log loss; the chosen fit is marked."""
    rows = [
        [
            f"{number}{' (chosen)' if number == model.best_run_ + 1 else ''}",
            *(f"{run['weights'][name]:.3g}" for name in TERMS),
            f"{run['validation_loss']:.4f}",
        ]
        for number, run in enumerate(model.history_, start=1)
    ]
    lines = [["fit", *TERMS, "validation log loss"], ["---"] * (len(TERMS) + 2), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def draw_figure(model: TunedLogisticRegression, online: TunedLogisticRegression, plain: Array, path: Path) -> None:
    """Draw the figure; `plain` (n, 2) holds L2 weights and validation log losses of fits with L2 alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    search, penalty = figure.subplots(1, 2)
    search.plot(*plain.T, color=COLORS[L2], label="L2 alone, all weights")
    for label, color in COLORS.items():
        fits = [(i, run) for i, run in enumerate(model.history_, start=1) if kind(run["weights"]) == label]
        at = np.array([(strength(run["weights"]), run["validation_loss"]) for _, run in fits]).reshape(-1, 2)
        search.plot(*at.T, "o", color=color, markersize=7, label=label)
        offset = (0, 7 if label == L2 else -14)  # points may be close, so the numbers of other fits are below
        for (number, _), point in zip(fits, at, strict=True):
            search.annotate(str(number), point, offset, textcoords="offset points", color=color, ha="center", size=8)
    losses = [run["validation_loss"] for run in model.history_]
    room = 0.15 * (max(losses) - min(losses))
    search.set(
        xscale="log",
        xlabel="weight of L2, or of L1 alone",
        ylabel="validation log loss",
        ylim=(min(losses) - room, max(losses) + room),
    )
    points, values = online.regularizer_
    w = np.linspace(*(1.2 * np.abs(online.coef_).max() * np.array([-1, 1])), 401)
    learned = np.interp(w, points, values)
    for end, beyond in ((slice(2), w < points[0]), (slice(-2, None), w > points[-1])):
        learned[beyond] = np.polynomial.Polynomial.fit(points[end], values[end], 1)(w[beyond])
    weights = model.loss_weights_
    chosen = weights["l1"] * np.abs(w) + weights["l2"] * w**2
    penalty.plot(w, chosen, color=COLORS[LEARNED], label="L1 and L2 of the last fit")
    learned_too = learned - np.interp(0.0, w, learned) + online.loss_weights_["l2"] * w**2
    penalty.plot(w, learned_too, color=ONLINE, label='strategy="online"')
    penalty.plot(online.coef_.ravel(), np.zeros(online.coef_.size), "|", color=ONLINE, label="its coefficients")
    penalty.set(xlabel="coefficient", ylabel="penalty")
    for axes in (search, penalty):
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> str:
    """Fit, draw the figure, and return the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--full", action="store_true", help="the committed figure: all examples, 5 folds, a finer curve"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the folds")
    parser.add_argument("--out", type=Path, help="folder for images/ (default: docs, or build/examples)")
    options = parser.parse_args(argv)
    out = options.out or ROOT / ("docs" if options.full else "build/examples")
    n_examples, n_folds, n_points = (None, 5, 40) if options.full else (300, 3, 8)
    x, y = (array[:n_examples] for array in load_digits(return_X_y=True))
    x = StandardScaler().fit_transform(x)
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=options.seed).split(x, y))
    model, online = (TunedLogisticRegression(strategy=s, cv=folds).fit(x, y) for s in ("runs", "online"))
    tried = [run["weights"]["l2"] for run in model.history_ if is_l2_only(run["weights"])]
    grid = np.geomspace(max(tried) * 2, min(tried) / 2, n_points)
    draw_figure(
        model, online, np.column_stack([grid, l2_alone(x, y, folds, grid)]), out / "images" / "sklearn_search.png"
    )
    return table(model)


if __name__ == "__main__":
    sys.stdout.write(main())
