"""learn_loss on what it meets in practice: checkpoints of a real model with a learned regularizer of many hinges."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from tests.properties import assert_verified
from tuneloss import Box, Observation, learn_loss

FILE = Path(os.environ.get("TUNELOSS_DATA", "")) / "tf_flowers.npz"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="TUNELOSS_DATA names no folder with tf_flowers.npz")
EPOCHS = 14


def log_loss(params, x, y):
    """Sum over examples, and its gradient."""
    logits = x @ params
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    residual = np.exp(log_p)
    residual[np.arange(len(y)), y] -= 1
    return -log_p[np.arange(len(y)), y].sum(), x.T @ residual


def observe(params, knots, train, validation):
    """Training log loss and two hinges a knot, with all their gradients; validation log loss is the error."""
    distance = params.ravel()[:, None] - knots
    hinges = np.hstack([np.maximum(distance, 0), np.maximum(-distance, 0)]).sum(axis=0)
    slopes = np.hstack([np.where(distance > 0, 1.0, 0.0), np.where(distance < 0, -1.0, 0.0)])
    (loss, slope), (error, gradient) = log_loss(params, *train), log_loss(params, *validation)
    return Observation.from_gradients(
        error, np.append(hinges, loss), gradient.ravel(), np.column_stack([slopes, slope.ravel()])
    )


def train_online(objective):
    """One run of AdaGrad on tf_flowers; after each epoch the regularizer is learned anew (objective None: never)."""
    with np.load(FILE) as file:
        x, y, split = file["features"].astype(float), file["labels"].astype(int), file["split"]
    x = (x - x[split == 0].mean(axis=0)) / (x[split == 0].std(axis=0) + 1e-6)
    train, validation = ((x[split == part], y[split == part]) for part in (0, 1))
    rng, n = np.random.default_rng(0), len(train[1])
    params, squares = np.zeros((x.shape[1], 5)), np.full((x.shape[1], 5), 1e-8)
    knots, weights, observations, box = None, None, [], None
    for _ in range(EPOCHS):
        for batch in np.array_split(rng.permutation(n), n // 32):
            _, gradient = log_loss(params, train[0][batch], train[1][batch])
            if weights is not None:
                right, left = weights[: len(knots)], weights[len(knots) : -1]
                slopes = np.append(0, np.cumsum(right)) - np.append(np.cumsum(left[::-1])[::-1], 0)
                gradient += slopes[np.searchsorted(knots, params)] * len(batch) / n
            squares += gradient**2
            params -= 0.03 * gradient / np.sqrt(squares)
        if knots is None:
            knots = np.unique(np.quantile(params, np.linspace(0, 1, 20)))
            box = Box([0.0] * 2 * len(knots) + [1.0], [math.inf] * 2 * len(knots) + [1.0])
        observations.append(observe(params, knots, train, validation))
        if objective is not None:
            learned = learn_loss(observations, box, objective=objective)
            assert_verified(learned, observations, box)
            assert learned.objective == objective
            assert "tie rule not met" not in learned.note
            weights = learned.weights
    return observations


def test_a_regularizer_learned_online_is_verified_at_every_epoch_and_helps():
    """k = 41, P singular since hinges are collinear in pairs; validation log loss ends lower than without one."""
    plain = train_online(None)
    for objective in ("calibrated", "paper"):
        learned = train_online(objective)
        assert learned[-1].error < 0.9 * plain[-1].error
        assert min(o.error for o in learned) < min(o.error for o in plain)
