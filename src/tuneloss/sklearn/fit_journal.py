"""The journal of `tuneloss fit`: its header, and the runs or epochs of its search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuneloss.sklearn.comparison import MAJORITY, MEASURES, ModelComparison
from tuneloss.sklearn.estimator import TunedLogisticRegression
from tuneloss.sklearn.online import PENALTY, POLICY
from tuneloss.sklearn.paths import is_plain
from tuneloss.tuning.online_journal import online_runs
from tuneloss.tuning.run import Header, LastLearned, Run

MADE_BY = "fit"  # names the writer in the header of the journal


def fit_header(title: str, comparison: ModelComparison) -> Header:
    """Return the header of the journal."""
    tuned = comparison.tuned
    models = {name: values for name, values in comparison.scores.items() if name != MAJORITY}  # it would dwarf the rest
    reference = {name: {m: values[m] for m in MEASURES} for name, values in models.items()}
    balanced = " Every class counts the same, in training and in all scores." if comparison.is_balanced else ""
    parts = _online_parts(tuned) if tuned.strategy == "online" else _runs_parts(tuned)
    note = parts.pop("note") + balanced
    return Header(tuned.box_, title, MADE_BY, reference, chosen=tuned.best_run_, note=note, **parts)


def _runs_parts(tuned: TunedLogisticRegression) -> dict[str, Any]:
    """Return what the header says about a search of several runs."""
    weights = tuned.history_[tuned.best_run_]["weights"]
    penalty = "l2" if weights["l2"] > 0 else "l1"
    growth = tuned.loss_weights_[penalty] / weights[penalty]
    alone = f"{penalty.upper()} alone is used: no run with learned weights was clearly better. "
    note = alone if is_plain(weights) else ""
    note += f"The saved model was fitted to all training examples, with L1 and L2 {growth:.4g} times as large."
    learned = tuned.learned_
    search = LastLearned() if learned is None else LastLearned(learned.as_dict(), learned.scale, learned.note)
    return {"note": note, "search": search, "final": dict(tuned.loss_weights_)}


def _online_parts(tuned: TunedLogisticRegression) -> dict[str, Any]:
    """Return what the header says about one run of several epochs."""
    steps, best = tuned.steps_, tuned.steps_[tuned.best_run_]
    growth = tuned.loss_weights_["l2"] / best.weights["l2"]
    grown = {name: growth * weight for name, weight in best.weights.items() if name.startswith(f"{PENALTY}/")}
    alone = "L2 alone is used: no epoch with learned weights was better. "
    note = alone if tuned.best_run_ == 0 else ""
    note += (
        "Epoch 0 is a fit with L2 alone, from which the run starts. The saved model repeats the run up to the chosen "
        f"epoch on all training examples, with L2 and the learned penalty {growth:.4g} times as large."
    )
    last = next((step for step in reversed(steps) if step.learned is not None), None)
    search = LastLearned() if last is None else LastLearned(last.learned, last.scale or 0.0, last.note)
    final = {name: grown.get(name, tuned.loss_weights_.get(name, 0.0)) for name in tuned.box_.names}
    knots = {PENALTY: tuned.regularizer_[0][1:-1].tolist()}
    return {"note": note, "search": search, "final": final, "knots": knots, "policy": POLICY, "unit": "epoch"}


def fit_runs(comparison: ModelComparison) -> list[Run]:
    """Return the runs of the search, or its epochs, with their test scores."""
    tuned = comparison.tuned
    if tuned.strategy == "online":
        window = [run["observation"] for run in tuned.history_[-(POLICY.span or 0) :]]
        runs = online_runs(tuned.steps_, window)
    else:
        runs = [Run(i, run["weights"], run["observation"]) for i, run in enumerate(tuned.history_)]
    return [replace(run, info=scores) for run, scores in zip(runs, comparison.run_scores, strict=True)]
