"""What is run in the example of auxiliary tasks: methods, the options that they were chosen from, and all runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from common import Record
from task_data import DIGITS, TASKS, USEFUL
from task_methods import (
    MOST,
    NAMES,
    GradNorm,
    Hypergradient,
    Joined,
    LossRatios,
    Method,
    Online,
    Uncertainty,
    by_cosine,
    gated,
    torchjd,
)

REPORTED, CHOOSING = ("oxford_iiit_pet", "tf_flowers"), (DIGITS, "nct_crc_he_3class", "caltech101")
CHOOSING_SEEDS = range(100, 104)
MAIN_ONLY, EQUAL, EXPERT, RANDOM = "main only", "equal", "useful only", "best random run"
KENDALL, GRADNORM, DWA = "uncertainty (Kendall)", "GradNorm", "DWA"
UPGRAD, MGDA, COSINE = "UPGrad", "MGDA", "cosine gating"
HYPERGRADIENT, ARENA = "hypergradient", "hypergradient, arena's rate"
DEFAULT, TUNED = "OnlineTuner, default", "OnlineTuner, tuned"
OURS = (DEFAULT, TUNED)

# What --choose chooses from. The first of each family is what its authors suggest, or our defaults.
CANDIDATES: dict[str, dict[str, Callable[..., Method]]] = {
    DEFAULT: {"default": Online},
    TUNED: {
        "every 10": partial(Online, every=10, observe={"batches": 8}),
        "every 5, 2 batches": partial(Online, every=5, observe={"batches": 2}),
        "cost 1, 2 batches": partial(Online, cost=1.0, observe={"batches": 2}),
        "cost 0.5, 1 batch": partial(Online, cost=0.5, observe={"batches": 1}),
        "cost 0.5": partial(Online, cost=0.5, observe={"batches": 8}),
        "cost 0.2": partial(Online, cost=0.2, observe={"batches": 8}),
        "once per epoch, all batches": partial(Online, observe={"batches": None}),
        "once per epoch, simplex": partial(Online, simplex=True),
        "every 10, simplex": partial(Online, simplex=True, every=10, observe={"batches": 8}),
    },
    HYPERGRADIENT: {f"rate {r}": partial(Hypergradient, rate=r, every=5) for r in (0.4, 0.05, 0.15, 1.0, 2.5, 6.0)},
    KENDALL: {f"rate {r}": partial(Uncertainty, rate=r) for r in (0.01, 0.002, 0.05, 0.2)},
    GRADNORM: {
        f"alpha {a}, rate {r}": partial(GradNorm, alpha=a, rate=r) for a in (1.5, 0.5, 0.0) for r in (0.025, 0.1)
    },
    DWA: {f"temperature {t}": partial(LossRatios, temperature=t) for t in (2.0, 0.5)},
    UPGRAD: {"as it is": partial(Joined, join=torchjd("UPGrad"))},
    MGDA: {"as it is": partial(Joined, join=torchjd("MGDA"))},
    COSINE: {"gate": partial(Joined, join=gated), "times cosine": partial(Joined, join=by_cosine)},
}

# The options of each family with the least mean test loss over the choosing problems: see --choose.
CHOSEN = {
    DEFAULT: "default",
    TUNED: "cost 1, 2 batches",
    HYPERGRADIENT: "rate 6.0",
    KENDALL: "rate 0.05",
    GRADNORM: "alpha 0.5, rate 0.1",
    DWA: "temperature 0.5",
    UPGRAD: "as it is",
    MGDA: "as it is",
    COSINE: "gate",
}
FIXED: dict[str, dict[str, float]] = {
    MAIN_ONLY: {"main": 1.0},
    EQUAL: dict.fromkeys(NAMES, 1.0),
    EXPERT: dict.fromkeys(("main", *USEFUL), 1.0),
} | {f"main + {task}": {"main": 1.0, task: 1.0} for task in TASKS}
METHODS = (MAIN_ONLY, EQUAL, DWA, UPGRAD, MGDA, COSINE, GRADNORM, KENDALL, HYPERGRADIENT, ARENA, *OURS, RANDOM, EXPERT)


def key(data: str, method: str, option: str, seed: int, epochs: int) -> Record:
    """Return the key of a run."""
    return {"data": data, "method": method, "option": option, "seed": seed, "epochs": epochs}


def keys(data: Sequence[str], seeds: Sequence[int], epochs: int, draws: int) -> list[Record]:
    """Return the keys of all runs that are reported: every method, each task alone, and the random runs."""
    methods = [(name, "") for name in FIXED] + list(CHOSEN.items())
    methods += [(ARENA, "rate 0.4")] + [(RANDOM, str(draw)) for draw in range(draws)]
    return [key(name, *method, seed, epochs) for seed in seeds for name in data for method in methods]


def candidates(epochs: int) -> list[Record]:
    """Return the keys of all runs from which options are chosen."""
    methods = [(MAIN_ONLY, "")] + [(family, option) for family, options in CANDIDATES.items() for option in options]
    return [key(name, *method, seed, epochs) for seed in CHOOSING_SEEDS for name in CHOOSING for method in methods]


def random_weights(seed: int, number: int) -> dict[str, float]:
    """Draw the weights of a random run: each auxiliary weight is log-uniform in (0.01, 10)."""
    rng = np.random.default_rng([seed, number])
    return {"main": 1.0} | {name: float(MOST * 10.0 ** rng.uniform(-3, 0)) for name in TASKS}


def maker(key: Record) -> Callable[..., Method]:
    """Return what makes the method of a run."""
    if key["method"] == RANDOM:
        return partial(Method, weights=random_weights(key["seed"], int(key["option"])))
    if key["method"] in FIXED:
        return partial(Method, weights=FIXED[key["method"]])
    family = HYPERGRADIENT if key["method"] == ARENA else key["method"]
    return CANDIDATES[family][key["option"]]
