"""Softmax regression and the five terms of its loss, with their gradients, and the Hessian of all but L1.

Params are a matrix (F, D + 1), the last column the intercepts; F = C classes, or 1 for two classes (the logit of the
first is then 0). Inputs are centred without copying them: an intercept belongs to the mean input, which changes no term
and lets solvers converge sooner. Terms on examples are sums, weighted by `sample_weight`.

    l1         sum |w|                  l2   sum w^2                       of coefficients, not of intercepts
    logloss    sum_i s_i -log p_i[y_i]  uniform   sum_i s_i mean_c -log p_i[c]
    dropout    1/2 sum_i s_i sum_fj x_ij^2 q_if (1 - q_if) w_fj^2

`dropout` is what dropout of half of the inputs adds to the log loss, to second order (Wager et al. 2013), without the
terms that couple classes, at fixed probabilities q of a first model: so it is quadratic, and the loss is convex.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tuneloss.types import Array

NAMES = ("l1", "l2", "uniform", "dropout", "logloss")
BLOCK = 2**21  # numbers that are worked on at a time
CONSTANT = 1e-24  # of the mean square: an input that varies less than this is constant, as far as numbers tell
Inputs = Any  # (N, D): an array, or a sparse matrix in rows
Labels = NDArray[np.intp]
Weights = dict[str, float]


@dataclass(frozen=True, eq=False)
class Data:
    """Examples, and what is needed of them again and again."""

    x: Inputs
    y: Labels
    sample_weight: Array
    n_classes: int
    mean: Array  # (D,) what is taken off the inputs; 0 without intercepts
    second: Array  # (D,) sum_i s_i (x_ij - mean_j)^2
    intercept: bool
    curvature: Array | None = None  # (F, D) of the dropout term

    @property
    def n_rows(self) -> int:
        """F, the rows of params."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def total(self) -> float:
        """The weight of all examples."""
        return float(self.sample_weight.sum())

    def zeros(self) -> Array:
        """Params to start from."""
        return np.zeros((self.n_rows, self.x.shape[1] + 1))

    def targets(self) -> Array:
        """The labels as rows of weighted probabilities (N, C)."""
        return weighted_targets(self.y, self.sample_weight, self.n_classes)

    def with_dropout(self, params: Array) -> Data:
        """The same, with the probabilities of this model in the dropout term."""
        q = probabilities(self, params)[:, -self.n_rows :]
        return replace(self, curvature=squares(self.x, self.sample_weight[:, None] * q * (1 - q)).T)


def make_data(x: Inputs, y: Labels, sample_weight: Array, n_classes: int, *, intercept: bool = True) -> Data:
    """Examples with their moments. x: (N, D), y: (N,) in 0 .. n_classes - 1, sample_weight: (N,) >= 0."""
    total = sample_weight.sum()
    mean = np.asarray(sample_weight @ x).ravel() / total if intercept else np.zeros(x.shape[1])
    if sparse.issparse(x):
        raw = squares(x, sample_weight[:, None])[:, 0]
        second = raw - total * mean**2
    else:
        second = squares(x, sample_weight[:, None], mean)[:, 0]
        raw = second + total * mean**2
    second = np.where(second > CONSTANT * raw, second, 0.0)
    return Data(x, y, sample_weight, n_classes, mean, second, intercept)


def weighted_targets(y: Labels, sample_weight: Array, n_classes: int) -> Array:
    """Labels (N,) as rows (N, C), 0 but for the example's weight at its class."""
    found = np.zeros((len(y), n_classes), order="F")
    found[np.arange(len(y)), y] = sample_weight
    return found


def squares(x: Inputs, rows: Array, mean: Array | float = 0.0) -> Array:
    """sum_i (x_ij - mean_j)^2 rows_i: (D, d) from rows (N, d); the mean is 0 where inputs are sparse."""
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).T @ rows)
    found = np.zeros((x.shape[1], rows.shape[1]))
    step = max(1, BLOCK // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        found += np.square(x[start : start + step] - mean).T @ rows[start : start + step]
    return found


def logits(data: Data, params: Array, x: Inputs | None = None) -> Array:
    """(N, F) for the data's inputs, or others; column by column in memory, in which sums over classes are fast."""
    coefficients = params[:, :-1]
    inputs = data.x if x is None else x
    level = params[:, -1] - coefficients @ data.mean
    if sparse.issparse(inputs):
        return np.asfortranarray(inputs @ coefficients.T) + level
    return np.asarray((coefficients @ inputs.T + level[:, None]).T)


def all_classes(z: Array) -> Array:
    """Logits (N, C) of all classes: of two, the first has 0."""
    return np.vstack([np.zeros(len(z)), z[:, 0]]).T if z.shape[1] == 1 else z


def log_probabilities(z: Array) -> Array:
    """Log of the softmax of logits (N, C), in place."""
    z -= z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z


def predicted(data: Data, params: Array, x: Inputs | None = None) -> Array:
    """Log probabilities (N, C) for the data's inputs, or others."""
    return log_probabilities(all_classes(logits(data, params, x)))


def probabilities(data: Data, params: Array) -> Array:
    """(N, C) of the data."""
    return np.asarray(np.exp(predicted(data, params)))


def back(data: Data, residual: Array, x: Inputs | None = None) -> Array:
    """The gradient (F, D + 1) of params from that of the logits (N, F)."""
    inputs = data.x if x is None else x
    sums = residual.sum(axis=0)
    slope = (inputs.T @ residual).T if sparse.issparse(inputs) else residual.T @ inputs
    found = np.empty((len(sums), len(data.mean) + 1))
    np.subtract(slope, np.outer(sums, data.mean), out=found[:, :-1])
    found[:, -1] = sums if data.intercept else 0.0
    return found


def cross_entropy(data: Data, params: Array, targets: Array, x: Inputs | None = None) -> tuple[float, Array]:
    """-sum_i targets_i . log p_i and its gradient (F, D + 1); targets (N, C)."""
    log_p = predicted(data, params, x)
    residual = targets.sum(axis=1, keepdims=True) * np.exp(log_p) - targets
    return -float(np.vdot(targets, log_p)), back(data, residual[:, -data.n_rows :], x)


def quadratic(data: Data, weights: Weights) -> Array:
    """(F, D) a, where l2 and dropout with their weights are 1/2 sum a w^2."""
    a = np.full((data.n_rows, data.x.shape[1]), 2.0 * weights["l2"])
    return a if data.curvature is None else a + weights["dropout"] * data.curvature


def smooth_loss(data: Data, weights: Weights, targets: Array, params: Array) -> tuple[float, Array]:
    """All of the loss but L1, and its gradient. targets: of `mixed_targets`."""
    value, gradient = cross_entropy(data, params, targets)
    slope = quadratic(data, weights) * params[:, :-1]
    gradient[:, :-1] += slope
    return value + 0.5 * float(np.vdot(slope, params[:, :-1])), gradient


def smooth_value(data: Data, weights: Weights, targets: Array, params: Array) -> float:
    """Its value alone, in half the time."""
    log_p = predicted(data, params)
    w = params[:, :-1]
    return 0.5 * float(np.vdot(quadratic(data, weights) * w, w)) - float(np.vdot(targets, log_p))


def mixed_targets(data: Data, weights: Weights) -> Array:
    """Targets (N, C) whose cross entropy is the log loss and the uniform term with its weight."""
    return data.targets() + weights["uniform"] / data.n_classes * data.sample_weight[:, None]


def terms(data: Data, params: Array) -> tuple[Array, list[Array]]:
    """Values (5,) of the terms in the order of NAMES, and their gradients (F, D + 1); 0 for L1 where a param is 0."""
    w = params[:, :-1]
    targets = data.targets()
    log_loss, of_log_loss = cross_entropy(data, params, targets)
    flat = np.broadcast_to(data.sample_weight[:, None] / data.n_classes, targets.shape)
    z = all_classes(logits(data, params))
    uniform = log_loss + float(np.vdot(targets - flat, z))  # both have the same log-normaliser
    of_uniform = of_log_loss + back(data, (targets - flat)[:, -data.n_rows :])
    curvature = np.zeros_like(w) if data.curvature is None else data.curvature
    zero = np.zeros((data.n_rows, 1))
    values = [np.abs(w).sum(), np.square(w).sum(), uniform, 0.5 * np.vdot(curvature, w * w), log_loss]
    slopes = [np.hstack([g, zero]) for g in (np.sign(w), 2 * w)]
    return np.array(values), [*slopes, of_uniform, np.hstack([curvature * w, zero]), of_log_loss]


def conditioner(data: Data, weights: Weights) -> Array:
    """(F, D + 1) about the diagonal of the Hessian of the smooth loss at an undecided model."""
    share = data.targets().sum(axis=0)[-data.n_rows :] / data.total
    spread = (1 + weights["uniform"]) * np.maximum(share * (1 - share), 1e-3)[:, None]
    slopes = spread * data.second + quadratic(data, weights)
    return np.column_stack([np.where(slopes > 0, slopes, 1.0), spread * data.total])


class Hessian:
    """Products with the Hessian of the smooth loss at params, restricted to those that are free."""

    def __init__(self, data: Data, weights: Weights, params: Array, free: NDArray[np.bool_]) -> None:
        self._data, self._free, self._quadratic = data, free, quadratic(data, weights)
        self._p = probabilities(data, params)[:, -data.n_rows :]
        self._level = (1 + weights["uniform"]) * data.sample_weight[:, None]

    def __call__(self, directions: Array) -> Array:
        """(d, F, D + 1) from directions of that shape, as many at once as room allows."""
        most = max(1, BLOCK // max(1, self._p.size))
        return np.concatenate([self._some(directions[i : i + most]) for i in range(0, len(directions), most)])

    def _some(self, directions: Array) -> Array:
        data, free = self._data, self._free
        d, f, _ = directions.shape
        v = directions * free
        z = logits(data, v.reshape(d * f, -1)).reshape(-1, d, f)
        p = self._p[:, None, :]
        residual = self._level[:, None] * p * (z - (p * z).sum(axis=2, keepdims=True))
        found = back(data, residual.reshape(len(residual), d * f)).reshape(directions.shape)
        found[:, :, :-1] += self._quadratic * v[:, :, :-1]
        return np.asarray(found * free)
