"""The result of `tuneloss fit`, as text and as JSON types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tuneloss.cli.console import console, show
from tuneloss.report.words import share_text, term_words, weight_text
from tuneloss.sklearn.coefficients import Coefficient
from tuneloss.sklearn.comparison import TUNED, ModelComparison
from tuneloss.sklearn.estimator import TunedLogisticRegression
from tuneloss.sklearn.saving import learned_loss
from tuneloss.sklearn.scores import AUC, CALIBRATION, ERROR, LOG_LOSS

MAX_CLASSES = 20  # classes up to which each has a line
TITLES = {LOG_LOSS: "log loss", ERROR: "error", AUC: "ROC AUC", CALIBRATION: "calibration"}


def result_as_json(
    comparison: ModelComparison, coefficients: list[Coefficient], paths: dict[str, Path]
) -> dict[str, Any]:
    """Return all numbers of the result, and the paths of the files, as JSON types."""
    return {
        "models": comparison.scores,
        "intervals": comparison.intervals,
        "differences": comparison.differences,
        "classes": comparison.classes,
        **learned_loss(comparison.tuned),
        "coefficients": [{"input": c.name, "class": c.label, "value": c.value} for c in coefficients],
        "verdict": verdict(comparison),
        **{name: str(path) for name, path in paths.items()},
    }


def print_result(comparison: ModelComparison, coefficients: list[Coefficient], paths: dict[str, Path]) -> None:
    """Print the scores of the models, the classes, the largest coefficients, the learned weights, and the paths."""
    n_rows = sum(int(scores["rows"]) for scores in comparison.classes.values())
    balanced = ", where every class counts the same" if comparison.is_balanced else ""
    console.print(f"Scores on the {n_rows} test rows{balanced}:", soft_wrap=True)
    measures = [m for m in TITLES if m in comparison.scores[TUNED]]
    show(
        ("model", *(TITLES[m] for m in measures)),
        [[name, *(_text(m, values[m]) for m in measures)] for name, values in comparison.scores.items()],
    )
    intervals = comparison.intervals[TUNED].items()
    ranges = ", ".join(f"{TITLES[m]} {_text(m, low)} to {_text(m, high)}" for m, (low, high) in intervals)
    console.print(f"95% intervals of the tuned model: {ranges}.", soft_wrap=True)
    console.print(verdict(comparison), soft_wrap=True)
    if len(comparison.classes) <= MAX_CLASSES:
        _show_classes(comparison)
    if coefficients:
        rows = [[c.name, c.label, f"{c.value:+.3f}"] for c in coefficients]
        show(("largest coefficients, standardised inputs", "class", "coefficient"), rows)
    console.print(_learned(comparison.tuned), soft_wrap=True)
    console.print(f"Model: {paths['model']}", soft_wrap=True)
    console.print(f"Report: {paths['report']}", soft_wrap=True)


def verdict(comparison: ModelComparison) -> str:
    """Say which other model comes closest to the tuned one in test log loss, or is better, and how sure that is."""
    losses = {name: scores[LOG_LOSS] for name, scores in comparison.scores.items()}
    tuned = losses.pop(TUNED)
    rival = min(losses, key=lambda name: losses[name])
    low, high = comparison.differences[rival]
    if low > 0:
        return (
            f'A plain model is better: "{rival}" has test log loss {losses[rival]:.4f}, the tuned model {tuned:.4f}. '
            "Prefer the plain model."
        )
    numbers = f"test log loss {tuned:.4f} against {losses[rival]:.4f}"
    if high < 0:
        lower = f"{1 - tuned / losses[rival]:.0%} lower"
        return f'The tuned model is better than the best other model, "{rival}": {numbers}, {lower}.'
    remark = " The plain model does as well." if tuned >= losses[rival] else ""
    return (
        f'The tuned model and "{rival}" cannot be told apart on these rows: {numbers}, and the 95% interval of the '
        f"difference is {low:.4f} to {high:.4f}.{remark}"
    )


def _learned(tuned: TunedLogisticRegression) -> str:
    """Return the learned weights in words, and a few values of a learned penalty, which has no single weight."""
    is_online = tuned.strategy == "online"
    left_out = {"logloss", "l1"} if is_online else {"logloss"}
    weights = {term_words(name): weight for name, weight in tuned.loss_weights_.items() if name not in left_out}
    said = f"Learned weights: {', '.join(f'{name} {weight_text(weight)}' for name, weight in weights.items())}."
    if not is_online or "l1" not in tuned.terms:
        return said
    points, values = tuned.regularizer_
    places = (points[1], 0.0, points[-2])  # the outermost knots, and the middle one
    penalties = np.interp(places, points, values - values.min())
    pairs = ", ".join(f"{weight_text(v)} at {weight_text(w)}" for w, v in zip(places, penalties, strict=True))
    return f"{said} Learned penalty of a coefficient: {pairs}; the report draws it."


def _show_classes(comparison: ModelComparison) -> None:
    """Print a table of the tuned model's scores by class."""
    rows = [
        [name, str(scores["rows"]), f"{scores['recall']:.1%}", f"{scores['precision']:.1%}"]
        for name, scores in comparison.classes.items()
    ]
    show(("class (tuned model)", "rows", "recall", "precision"), rows)


def _text(measure: str, value: float) -> str:
    """Return a score as text: an error in per cent, other scores with four decimals."""
    return share_text(value) if measure == ERROR else f"{value:.4f}"
