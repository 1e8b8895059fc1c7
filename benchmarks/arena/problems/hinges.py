"""Softmax regression with a learned regularizer: a convex piecewise linear function of the parameters, and L2."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import nn

from benchmarks.arena.problem import Batches, Instance, Problem, features, log_loss, log_uniform
from tuneloss.torch import L2, ConvexPiecewiseLinear

KNOTS = 20
UPPER = {"l2": 0.1}


def draw(seed: int, *, name: str, n: int, epochs: int = 40) -> Instance:
    """Draw training examples of a features file; the model starts at 0."""
    data, rng = features(name, 256), np.random.default_rng(seed)
    train, validation, test = data.of(0, rng, n), data.of(1, rng, 1000), data.of(2, rng)
    model = nn.Linear(256, data.n_classes)
    for param in model.parameters():
        nn.init.zeros_(param)
    return Instance(
        model=model,
        terms={"logloss": log_loss, "l2": L2(), "r": ConvexPiecewiseLinear(KNOTS)},
        box={"logloss": 1.0, "l2": (0.0, UPPER["l2"]), "r": (0.0, 0.01)},
        error=log_loss,
        train=Batches(train, 10, seed),
        validation=[validation],
        test=[test],
        epochs=epochs,
        plain={"logloss": 1.0},
        random=lambda rng: log_uniform(rng, ["l2"], UPPER, decades=4.0),
        learning_rate=5e-3,
    )


PROBLEMS = [
    Problem(
        "hinges, histology", "hinges", "choose", partial(draw, name="nct_crc_he_3class", n=500), needs_features=True
    ),
    Problem("hinges, flowers", "hinges", "report", partial(draw, name="tf_flowers", n=300), needs_features=True),
]
