"""Tune five loss weights and the learning rate of an MLP in one Optuna study, by TuneLossSampler, TPE or GPSampler.

python examples/optuna_mlp.py            small: one seed, few trials; digits if TUNELOSS_DATA is not set
python examples/optuna_mlp.py --full     30 trials of 20 epochs, 5 seeds, into docs/

The loss is that of examples/mlp_five_terms.py, on tf_flowers. The value of a trial is the validation log loss after its
last epoch. The test log loss in table and figure is that of the best trial so far.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import optuna
import torch
from common import Batches, Record, arguments, load, logloss, markdown, mlp, run_missing, train
from mlp_five_terms import RANGES, five_terms

from tuneloss import Box
from tuneloss.integrations.optuna import TuneLossSampler
from tuneloss.paper.statistics import interval
from tuneloss.torch import observe

RATES = (1e-4, 1e-2)  # range of the learning rate
TUNELOSS, TPE, GP = "TuneLossSampler, TPE as fallback", "TPESampler", "GPSampler"
COLORS = {TUNELOSS: "#0072B2", TPE: "#CC79A7", GP: "#E69F00"}
AFTER = (5, 10, 20, 30)  # numbers of trials in the table


def make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """Make the sampler of this name."""
    if name == TUNELOSS:
        box = Box.from_dict({"logloss": 1.0, **RANGES})
        return TuneLossSampler(box, fallback=optuna.samplers.TPESampler(seed=seed), seed=seed)
    return optuna.samplers.TPESampler(seed=seed) if name == TPE else optuna.samplers.GPSampler(seed=seed)


def run(key: Record, *, folder: str | None) -> Record:
    """Run one study; record test log loss and error of the best trial so far, after each trial, and its parameters."""
    split = load(key["dataset"], folder)
    seed, epochs = key["seed"], key["epochs"]
    test: list[tuple[float, float]] = []
    seconds: list[float] = []

    def objective(trial: optuna.Trial) -> float:
        weights = {name: trial.suggest_float(name, *ends, log=True) for name, ends in RANGES.items()}
        rate = trial.suggest_float("rate", *RATES, log=True)
        model, loss = mlp(split, seed), five_terms()
        loss.set_weights(weights)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        trained = train(split, model, loss, optimizer, epochs=epochs, seed=seed)
        loaders = Batches(split.train, 512), Batches(split.validation, 512)
        trial.set_user_attr("tuneloss", observe(model, loss, logloss, *loaders).to_dict())
        test.append((trained.curves["test_loss"][-1], trained.curves["test_error"][-1]))
        seconds.append(trained.seconds)
        return trained.curves["validation_loss"][-1]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=make_sampler(key["sampler"], seed))
        study.optimize(objective, n_trials=key["trials"])
    values = [trial.values[0] for trial in study.trials]
    best = [int(np.argmin(values[: n + 1])) for n in range(len(values))]
    return {
        "validation": [round(values[i], 6) for i in best],
        "test_loss": [test[i][0] for i in best],
        "test_error": [test[i][1] for i in best],
        "params": {name: float(f"{value:.4g}") for name, value in study.best_params.items()},
        "training_seconds": round(sum(seconds), 1),
    }


def keys(datasets: Sequence[str], seeds: Sequence[int], epochs: int, trials: int) -> list[Record]:
    """Return the key of each study."""
    return [
        {"dataset": dataset, "sampler": sampler, "seed": seed, "epochs": epochs, "trials": trials}
        for seed in seeds
        for dataset in datasets
        for sampler in COLORS
    ]


def table(records: Sequence[Record]) -> str:
    """Return the table: test log loss after some trials, mean and 95% interval over seeds, and differences by seed."""
    rows = []
    for dataset in dict.fromkeys(r["dataset"] for r in records):
        ours = {r["seed"]: r["test_loss"][-1] for r in records if (r["dataset"], r["sampler"]) == (dataset, TUNELOSS)}
        for sampler in COLORS:
            studies = [r for r in records if (r["dataset"], r["sampler"]) == (dataset, sampler)]
            at = [
                str(interval([r["test_loss"][n - 1] for r in studies])) if n <= studies[0]["trials"] else ""
                for n in AFTER
            ]
            difference = str(interval([r["test_loss"][-1] - ours[r["seed"]] for r in studies]))
            error = str(interval([r["test_error"][-1] for r in studies]))
            rows.append([dataset, sampler, *at, error, "" if sampler == TUNELOSS else difference])
    after = [f"after {n} trials" for n in AFTER]
    return markdown(["data", "sampler", *after, "test error, last", "test log loss minus TuneLossSampler, last"], rows)


def draw_figure(records: Sequence[Record], path: Path) -> None:
    """Draw log loss of the best trial so far on validation and test examples: means, with bands of all seeds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    panels = {"validation": "validation log loss", "test_loss": "test log loss of the same trial"}
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    for axes, (measure, label) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        styles = ("-", "-", "--")  # TPE and GP begin with the same trials
        for (sampler, color), style in zip(COLORS.items(), styles, strict=True):
            curves = np.array([r[measure] for r in records if r["sampler"] == sampler])
            trials = np.arange(1, curves.shape[1] + 1)
            axes.plot(trials, curves.mean(axis=0), style, color=color, label=sampler)
            axes.fill_between(trials, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.12, lw=0)
        axes.set(title=records[0]["dataset"], xlabel="trials", ylabel=label, xscale="log")
        axes.xaxis.set_major_locator(FixedLocator([1, 2, 3, 5, 10, 20, 30]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
        lowest = min(min(r[name]) for r in records for name in panels)
        axes.set_ylim(
            0.99 * lowest, max(np.mean([r["validation"][1] for r in records if r["sampler"] == s]) for s in COLORS)
        )
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the table."""
    options = arguments(__doc__, "optuna_mlp", argv)
    datasets = ("tf_flowers",) if options.data else ("digits",)
    epochs, trials = options.epochs or (20 if options.full else 5), 30 if options.full else 6
    wanted = keys(datasets, options.seeds, epochs, trials)
    records = run_missing(options.results, wanted, partial(run, folder=options.data), options.jobs)
    draw_figure(records, options.image)
    return table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
