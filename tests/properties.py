"""What the theorems promise, as assertions and as independent computations to check against."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from tuneloss import Box, LearnedLoss, Observation

TOLERANCE = 1e-8


def features_of(observations: Sequence[Observation]) -> np.ndarray:
    return np.array([o.features for o in observations])


def assert_in_box(weights: np.ndarray, box: Box) -> None:
    assert (weights >= box.lower).all()
    assert (weights <= box.upper).all()
    if box.is_simplex:
        assert abs(weights.sum() - 1) < 1e-12


def assert_selects(weights: np.ndarray, observations: Sequence[Observation], argmin: int) -> None:
    """No observation has a lower loss than the argmin, relative to the largest part of any loss."""
    features = features_of(observations)
    loss = features @ weights
    size = max(float(np.abs(features * weights).max()), 1e-300)
    assert (loss[argmin] <= loss + TOLERANCE * size).all()


def assert_verified(learned: LearnedLoss, observations: Sequence[Observation], box: Box) -> None:
    assert_in_box(learned.weights, box)
    assert_selects(learned.weights, observations, learned.argmin)
    assert learned.residual <= 1e-7


def margin(guess: int, observations: Sequence[Observation], box: Box) -> float:
    """By how much weights in the box can prefer the guess to all others: >= 0 if and only if it is reachable.

    A plain LP by linprog: maximise v <= 1 with (features_i - features_guess) . weights >= v |difference|, in units in
    which the largest value of each term is 1.
    """
    features = features_of(observations)
    unit = np.abs(features).max(axis=0)
    unit[unit == 0] = 1.0
    rows = (features - features[guess]) / unit
    length = np.linalg.norm(rows, axis=1)
    rows = rows[length > 0] / length[length > 0, None]
    k = len(box)
    lower, upper = np.zeros(k), np.ones(k)  # a simplex, as a cone
    if not box.is_simplex:
        outside = np.maximum(np.maximum(box.lower, -box.upper), 0) * unit
        lower, upper = box.lower * unit / outside.max(), box.upper * unit / outside.max()
    found = linprog(
        np.append(np.zeros(k), -1.0),
        A_ub=np.column_stack([-rows, np.ones(len(rows))]),
        b_ub=np.zeros(len(rows)),
        A_eq=np.append(np.ones(k), 0.0)[None] if box.is_simplex else None,
        b_eq=[1.0] if box.is_simplex else None,
        bounds=np.column_stack([np.append(lower, -np.inf), np.append(upper, 1.0)]),
        method="highs",
    )
    return float(found.x[-1])


def gradients_cost(
    weights: np.ndarray,
    scale: float,
    models: Sequence[tuple[float, np.ndarray, np.ndarray, np.ndarray]],
    epsilon: float,
) -> float:
    """Equation (cost) from the raw gradients: models are (error, features, gradient, jacobian)."""
    return sum(
        (weights @ features - scale * error) ** 2 + epsilon * np.sum((jacobian @ weights - scale * gradient) ** 2)
        for error, features, gradient, jacobian in models
    )
