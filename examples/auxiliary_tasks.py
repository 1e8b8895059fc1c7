"""Weigh five auxiliary tasks of a main task with few labels, in one run, and compare with other ways to weigh them.

    main + sum over tasks of weight * loss of the task,   with weights in (0, 10)

python examples/auxiliary_tasks.py            small: digits, one seed, few epochs, only to see that it works
python examples/auxiliary_tasks.py --full     two data sets, 8 seeds, 20 random runs, into docs/
python examples/auxiliary_tasks.py --choose   how options were chosen: three other data sets, other seeds

A trunk of two hidden layers has one head per task. The main task is classification with 3 to 10 labels per class. The
auxiliary tasks have all training rows. Three of them are useful: "coarse" and "odd" are groupings of the classes, and
"denoise" rebuilds the inputs from noisy ones. "random" is useless: its labels are drawn. "signs" is harmful: it asks
for the signs of four random projections of the inputs.

The split was written down before any option was chosen. The options of every method (of OnlineTuner too: how often it
steps, and how many batches it reads) are those of least mean test loss on digits, nct_crc_he_3class and caltech101,
with seeds 100 to 103. What is reported is oxford_iiit_pet and tf_flowers with seeds 0 to 7. The defaults of OnlineTuner
come from the arena, whose choosing half does not contain these two data sets. The row "arena's rate" is the rate of
hypergradients that was the best on that half. Where the best option of a rival was the last of its range, the range was
extended.

Every run is reported at its epoch of least validation loss; all methods share data, first parameters and batches.
UPGrad and MGDA are those of TorchJD, which `pip install "tuneloss[arena]"` brings.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial

import torch
from common import Record, arguments, run_missing
from task_data import DIGITS, Examples, draw, main_loss
from task_methods import NAMES, Online
from task_options import REPORTED, candidates, keys, maker
from task_tables import alone_table, choice_table, draw_figure, table
from torch import nn
from torch.optim import Adam

EPOCHS, BATCHES, LEARNING_RATE = 30, 20, 2e-3


def run(key: Record, folder: str | None, curves: bool = True) -> Record:
    """Train once; record losses and weights at the epoch of least validation loss, and the curves of the tuner."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")  # the best epoch counts in any case
        return train(key, folder, curves)


def train(key: Record, folder: str | None, curves: bool) -> Record:
    """Do what `run` does."""
    problem = draw(key["data"], folder, key["seed"], BATCHES)
    torch.manual_seed(key["seed"])
    optimizer = Adam(problem.model.parameters(), lr=LEARNING_RATE, fused=True)
    method = maker(key)(problem, optimizer, key["seed"])
    best: Record = {"validation_loss": math.inf}
    course: dict[str, list[float]] = {name: [] for name in NAMES}
    step, seconds, start = 0, 0.0, time.process_time()
    for epoch in range(key["epochs"]):
        for batch in problem.train:
            optimizer.zero_grad()
            method.backward(batch)
            optimizer.step()
            step += 1
            method.after_step(step)
        method.after_epoch()
        loss, _ = measure(problem.model, problem.validation)
        seconds += time.process_time() - start
        if loss < best["validation_loss"]:
            test_loss, test_error = measure(problem.model, problem.test)
            best = {"validation_loss": loss, "test_loss": test_loss, "test_error": test_error, "best_epoch": epoch + 1}
            best["weights"] = {name: rounded(w) for name, w in method.weights().items()}
        for name, w in method.weights().items():
            course[name].append(rounded(w))
        start = time.process_time()
    drawn = {"course": course, **learning_curves(method)} if curves and isinstance(method, Online) else {}
    return {**best, "cpu_seconds": round(seconds, 3), **drawn}


def learning_curves(method: Online) -> Record:
    """Return the steps at which the tuner observed, and the loss of each task at them, from its history."""
    history = method.tuner.history
    losses = {name: [rounded(r.features[name]) for r in history] for name in NAMES}
    return {"steps": [r.step if method.within_epochs else r.step * BATCHES for r in history], "task_losses": losses}


def rounded(number: float) -> float:
    """Round to three digits, for records."""
    return float(f"{number:.3g}")


@torch.no_grad()
def measure(model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Compute the mean log loss of the main task, and the share of wrong labels."""
    wrong = model(examples[0], "main")[0].argmax(dim=1) != examples[1]
    return round(float(main_loss(model, examples)), 6), round(float(wrong.double().mean()), 6)


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the figure, and return the tables."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--choose", action="store_true")
    which, rest = first.parse_known_args(argv)
    options = arguments(__doc__, "auxiliary_tasks", rest, full_seeds=8)
    work = partial(run, folder=options.data, curves=not which.choose)
    if which.choose:
        path = options.out / "results" / "auxiliary_tasks_choice.jsonl"
        return choice_table(run_missing(path, candidates(options.epochs or EPOCHS), work, options.jobs))
    sets = REPORTED if options.full and options.data else (DIGITS,)
    epochs, draws = options.epochs or (EPOCHS if options.full else 4), 20 if options.full else 2
    records = run_missing(options.results, keys(sets, options.seeds, epochs, draws), work, options.jobs)
    draw_figure(records, options.image)
    return table(records) + "\n" + alone_table(records)


if __name__ == "__main__":
    sys.stdout.write(main())
