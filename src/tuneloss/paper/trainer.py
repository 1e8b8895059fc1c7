"""The paper's trainer: AdaGrad, one example a step, on the five-term loss of softmax regression (app. B)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuneloss.core.checks import Array
from tuneloss.errors import InvalidInput, RunFailed
from tuneloss.paper.datasets import Labels, Split
from tuneloss.paper.terms import KEEP, NAMES, check_params, with_bias

TINY = 1e-12  # keeps 0 / 0 out of the first step of a param whose gradient is 0


def train(
    split: Split,
    weights: Mapping[str, float],
    rng: np.random.Generator,
    *,
    epochs: int = 30,
    learning_rate: float = 0.1,
    start: Array | None = None,
) -> Array:
    """Minimise weights . terms on the training examples by AdaGrad, and return params (D + 1, C).

    Each epoch takes the examples in a new order, one a step. A step follows an unbiased estimate of the
    gradient of the loss divided by the number of examples: dropout is applied to the example with probability
    dropout / (logloss + dropout), its gradient is multiplied by logloss + dropout, and the penalties count
    1/N each.

    Args:
        weights: one non-negative number for each of l1, l2, uniform, dropout, logloss.
        rng: gives the order of examples and the dropout masks.
        start: params (D + 1, C) to start from; zeros if None. It is not changed.

    Raises RunFailed if params stop being finite.

    >>> from tuneloss.paper.datasets import digits
    >>> weights = {"l1": 0.1, "l2": 1, "uniform": 0, "dropout": 0.5, "logloss": 1}
    >>> train(digits(0), weights, np.random.default_rng(0), epochs=1).shape
    (65, 10)
    """
    w = _weights_array(weights)
    if epochs < 0 or not learning_rate > 0:
        raise InvalidInput(
            "`epochs` must be at least 0 and `learning_rate` above 0; "
            f"found epochs={epochs}, learning_rate={learning_rate}."
        )
    params = np.zeros(split.params_shape) if start is None else np.array(start, dtype=float)
    check_params(params, split, "start")
    squares = np.zeros_like(params)
    for epoch in range(epochs):
        pairs, labels = _one_epoch_of_examples(split, w, rng)
        with np.errstate(over="ignore", invalid="ignore"):
            adagrad(params, squares, pairs, labels, w, learning_rate)
        if not np.isfinite(params).all():
            raise RunFailed(
                f"Training diverged in epoch {epoch + 1} of {epochs}: params are no longer finite. "
                f"Take a learning_rate below {learning_rate}, or smaller weights."
            )
    return params


def adagrad(params: Array, squares: Array, pairs: Array, labels: Labels, weights: Array, learning_rate: float) -> None:
    """One AdaGrad step an example, in place on params and squares (both (D + 1, C)).

    squares += g^2; params -= learning_rate * g / sqrt(squares), with g the step's gradient.

    Args:
        pairs: (N, 2, D + 1), each example as it is (for the uniform term), then with its dropout (for the
            log loss). A bias input is in it.
        weights: (5,) in the order of NAMES.
    """
    for pair, label in zip(pairs, labels, strict=True):
        gradient = step_gradient(params, pair, label, weights, len(pairs))
        squares += gradient * gradient
        params -= learning_rate * gradient / (np.sqrt(squares) + TINY)


def step_gradient(params: Array, pair: Array, label: int, weights: Array, n: int) -> Array:
    """Gradient of one example's share of the loss: its own terms, and the penalties over n.

    Args: params (D + 1, C); pair (2, D + 1), the example clean and as seen; weights (5,).
    """
    w_l1, w_l2, w_uniform, w_dropout, w_logloss = weights
    logits = pair @ params
    logits -= logits.max(axis=1, keepdims=True)
    slope = np.exp(logits)
    slope /= slope.sum(axis=1, keepdims=True)
    slope[0] -= 1 / params.shape[1]
    slope[0] *= w_uniform
    slope[1, label] -= 1
    slope[1] *= w_logloss + w_dropout
    gradient: Array = pair.T @ slope
    gradient[:-1] += (w_l1 * np.sign(params[:-1]) + 2 * w_l2 * params[:-1]) / n
    return gradient


def _one_epoch_of_examples(split: Split, weights: Array, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Examples in random order as (N, 2, D + 1): clean, then with dropout at the rate the weights ask for."""
    order = rng.permutation(len(split.train_y))
    clean = split.train_x[order]
    w_dropout, w_logloss = weights[3:]
    total = w_dropout + w_logloss
    dropped = rng.random(len(order)) < (w_dropout / total if total > 0 else 0.0)
    seen = clean.copy()
    seen[dropped] *= (rng.random(seen[dropped].shape) < KEEP) / KEEP
    return with_bias(np.stack([clean, seen], axis=1)), split.train_y[order]


def _weights_array(weights: Mapping[str, float]) -> Array:
    if set(weights) != set(NAMES):
        raise InvalidInput(f"`weights` must name {', '.join(NAMES)}; found {', '.join(weights) or 'none'}.")
    array = np.array([weights[name] for name in NAMES], dtype=float)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise InvalidInput(f"`weights` must be finite and not negative; found {dict(weights)}.")
    if not array.any():
        raise InvalidInput("`weights` must not all be 0, since every model then has loss 0. Take e.g. logloss=1.")
    return array
