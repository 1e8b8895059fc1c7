"""The five terms of appendix B on softmax regression: L1, L2, uniform labels, dropout, log loss.

Params are a matrix (D + 1, C). Its last row is the bias, which is not penalised. Terms on examples are sums over
examples, not means, because the ranges of appendix B are meant for sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuneloss import Box, Observation
from tuneloss.errors import InvalidInput
from tuneloss.paper.datasets import Labels, Split
from tuneloss.types import Array

NAMES = ("l1", "l2", "uniform", "dropout", "logloss")
Masks = NDArray[np.bool_]
KEEP = 0.5  # probability that dropout keeps an input, app. B


def appendix_box(unit: float = 1.0) -> Box:
    """Return the feasible set of appendix B: four weights in their ranges, and the log loss pinned to 1.

    Parameters
    ----------
    unit : float, default 1.0
        Factor of the ranges of L1 and L2. If the ranges are meant for means, it is the number of examples.

    Examples
    --------
    >>> appendix_box().names
    ('l1', 'l2', 'uniform', 'dropout', 'logloss')
    """
    penalty = (0.1 * unit, 100 * unit)
    return Box.from_dict({"l1": penalty, "l2": penalty, "uniform": (0, 0.1), "dropout": (0, 1), "logloss": 1.0})


def draw_masks(split: Split, rng: np.random.Generator, *, draws: int = 32) -> Masks:
    """Draw dropout masks for the training inputs: (draws, examples, D), True if an input is kept.

    Draw masks once and use them for every model: common random numbers keep models comparable.

    Parameters
    ----------
    split : Split
        Its training inputs decide the shape.
    rng : numpy.random.Generator
        Draws the masks.
    draws : int, default 32
        Number of masks per example.

    Raises
    ------
    InvalidInput
        If `draws` is below 1.
    """
    if draws < 1:
        raise InvalidInput(f"`draws` must be at least 1, since the dropout term is a mean over draws; found {draws}.")
    return rng.random((draws, *split.train_x.shape), dtype=np.float32) < KEEP


def one_hot(labels: Labels, n_classes: int) -> Array:
    """Return labels (N,) as rows of probabilities (N, C)."""
    return np.eye(n_classes)[labels]


def log_probabilities(params: Array, x: Array) -> Array:
    """Compute the log of the softmax of x @ params[:-1] + params[-1], (N, C)."""
    logits = x @ params[:-1] + params[-1]
    logits -= logits.max(axis=-1, keepdims=True)
    result: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return result


def cross_entropy(params: Array, x: Array, targets: Array) -> tuple[float, Array]:
    """Compute the sum over examples of -sum_c targets_c log p_c, and its gradient.

    With p the softmax of x @ params[:-1] + params[-1], the gradient is [x, 1]' (p - targets). One-hot targets give the
    log loss, and targets 1/C the loss on uniformly labelled examples.

    Parameters
    ----------
    params : (D + 1, C) array
    x : (N, D) array
    targets : (N, C) array
        Rows sum to 1.

    Returns
    -------
    value : float
    gradient : (D + 1, C) array

    Examples
    --------
    >>> value, gradient = cross_entropy(np.zeros((3, 2)), np.ones((4, 2)), np.full((4, 2), 0.5))
    >>> round(value, 4), gradient.shape      # 4 log 2
    (2.7726, (3, 2))
    """
    log_p = log_probabilities(params, x)
    slopes = np.exp(log_p) - targets
    return -float(np.sum(targets * log_p)), np.vstack([x.T @ slopes, slopes.sum(axis=0)])


def l1(params: Array) -> tuple[float, Array]:
    """Compute the sum of |params| without the bias, and a subgradient, which is 0 at 0."""
    gradient = np.sign(params)
    gradient[-1] = 0
    return float(np.abs(params[:-1]).sum()), gradient


def l2(params: Array) -> tuple[float, Array]:
    """Compute the sum of squared params without the bias, and its gradient."""
    gradient = 2 * params
    gradient[-1] = 0
    return float(np.square(params[:-1]).sum()), gradient


def dropout_loss(params: Array, x: Array, targets: Array, masks: Masks) -> tuple[float, Array]:
    """Compute the cross entropy on inputs under dropout, as a mean over draws, and its gradient.

    Parameters
    ----------
    params : (D + 1, C) array
    x : (N, D) array
    targets : (N, C) array
    masks : (draws, N, D) array of bool
    """
    doubled = x / KEEP
    drawn = [cross_entropy(params, doubled * mask, targets) for mask in masks]
    value = sum(value for value, _ in drawn) / len(drawn)
    gradient = sum((gradient for _, gradient in drawn), np.zeros_like(params)) / len(drawn)
    return value, gradient


def training_terms(params: Array, split: Split, masks: Masks) -> tuple[Array, Array]:
    """Compute the features of a model, (5,) in the order of `NAMES`, and their jacobian, (params.size, 5).

    Parameters
    ----------
    params : (D + 1, C) array
    split : Split
    masks : (draws, N, D) array of bool
        From `draw_masks`.
    """
    check_params(params, split)
    targets = one_hot(split.train_y, split.n_classes)
    pairs = (
        l1(params),
        l2(params),
        cross_entropy(params, split.train_x, np.full_like(targets, 1 / split.n_classes)),
        dropout_loss(params, split.train_x, targets, masks),
        cross_entropy(params, split.train_x, targets),
    )
    return np.array([value for value, _ in pairs]), np.column_stack([slope.ravel() for _, slope in pairs])


def observe(params: Array, split: Split, masks: Masks) -> Observation:
    """Observe a model for LearnLoss: its validation log loss (a sum), its features, and all gradients.

    Parameters
    ----------
    params : (D + 1, C) array
    split : Split
    masks : (draws, N, D) array of bool
        From `draw_masks`.
    """
    features, jacobian = training_terms(params, split, masks)
    targets = one_hot(split.validation_y, split.n_classes)
    error, gradient = cross_entropy(params, split.validation_x, targets)
    return Observation.from_gradients(error, features, gradient.ravel(), jacobian)


def observe_error(params: Array, split: Split) -> Observation:
    """Observe only the validation log loss (a sum), for tuners that use nothing else. The features are 0."""
    log_p = log_probabilities(params, split.validation_x)
    return Observation(-float(log_p[np.arange(len(log_p)), split.validation_y].sum()), dict.fromkeys(NAMES, 0.0))


def check_params(params: Array, split: Split, what: str = "params") -> None:
    """Raise `InvalidInput` unless params are finite and fit the inputs and classes of the split."""
    if not np.isfinite(params).all():
        raise InvalidInput(f"`{what}` must be finite; found {int((~np.isfinite(params)).sum())} values that are not.")
    if params.shape != split.params_shape:
        raise InvalidInput(
            f"`{what}` must have shape (D + 1, C) = {split.params_shape} for {split.name}, with the bias "
            f"in the last row; found {params.shape}. Start from np.zeros({split.params_shape})."
        )
