"""Softmax regression: the five terms of its loss, their gradients, and the Hessian of all terms except L1.

Params are a matrix (F, D + 1) whose last column holds the intercepts. F is the number C of classes, or 1 for two
classes, where the logit of the first is 0. Inputs are centred, without a copy: an intercept belongs to the mean input.
That changes no term, and solvers converge sooner. With params w, sample weights s and probabilities p::

    l1        sum |w|      of coefficients, not of intercepts
    l2        sum w^2      of coefficients, not of intercepts
    logloss   sum_i s_i -log p_i[y_i]
    uniform   sum_i s_i mean_c -log p_i[c]
    dropout   1/2 sum_i s_i sum_fj x_ij^2 q_if (1 - q_if) w_fj^2

`dropout` is what dropout of half of the inputs adds to the log loss, to second order (Wager et al. 2013), without the
products of different classes. Its probabilities q are those of a first model and stay fixed. It is therefore quadratic,
and the loss is convex.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tuneloss.types import Array

NAMES = ("l1", "l2", "uniform", "dropout", "logloss")
BLOCK = 2**21  # numbers per block of work: 16 MB
PRODUCT_BLOCK = 2**16  # numbers per block of products with the Hessian: 0.5 MB, which a core's cache holds
CONSTANT = 1e-24  # an input whose variance is below this share of its mean square is constant, up to rounding
MIN_SPREAD = 1e-3  # lower bound of the variance p (1 - p) of a class, so that a rare one does not slow a fit down
Inputs = Any  # (N, D): an array, or a sparse matrix in rows
Labels = NDArray[np.intp]
Weights = dict[str, float]


@dataclass(frozen=True, eq=False)
class Data:
    """Training examples with their moments.

    Parameters
    ----------
    x : (N, D) array or sparse matrix
        Inputs.
    y : (N,) array of int
        Labels from 0 to n_classes - 1.
    sample_weight : (N,) array
        The weight of each example.
    n_classes : int
        The number C of classes.
    mean : (D,) array
        What is subtracted from the inputs; 0 without intercepts.
    second : (D,) array
        The second moments, ``sum_i s_i (x_ij - mean_j)^2``.
    intercept : bool
        Whether there are intercepts.
    curvature : (F, D) array, optional
        The second derivative of the dropout term; without it the term is 0.
    """

    x: Inputs
    y: Labels
    sample_weight: Array
    n_classes: int
    mean: Array
    second: Array
    intercept: bool
    curvature: Array | None = None

    @property
    def n_rows(self) -> int:
        """The number F of rows of params."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def total(self) -> float:
        """The sum of all sample weights."""
        return float(self.sample_weight.sum())

    def zeros(self) -> Array:
        """Return params of 0, to start from."""
        return np.zeros((self.n_rows, self.x.shape[1] + 1))

    def targets(self) -> Array:
        """Return the labels as rows of weighted probabilities (N, C)."""
        return weighted_targets(self.y, self.sample_weight, self.n_classes)

    def only_inputs(self, used: NDArray[np.bool_]) -> Data:
        """Return the same examples with only some of the inputs; `used` is (D,)."""
        curvature = None if self.curvature is None else self.curvature[:, used]
        return replace(self, x=self.x[:, used], mean=self.mean[used], second=self.second[used], curvature=curvature)

    def with_dropout(self, params: Array) -> Data:
        """Return the same data with a dropout term, whose probabilities are those of this model."""
        q = np.exp(predicted(self, params)[:, -self.n_rows :])
        return replace(self, curvature=squares(self.x, self.sample_weight[:, None] * q * (1 - q)).T)


def make_data(x: Inputs, y: Labels, sample_weight: Array, n_classes: int, *, intercept: bool = True) -> Data:
    """Compute the moments of examples; the arguments are those of `Data`."""
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
    """Return labels (N,) as rows (N, C): the weight of the example in the column of its class, and 0 elsewhere."""
    targets = np.zeros((len(y), n_classes), order="F")
    targets[np.arange(len(y)), y] = sample_weight
    return targets


def squares(x: Inputs, rows: Array, mean: Array | float = 0.0) -> Array:
    """Return ``sum_i (x_ij - mean_j)^2 rows_i``, (D, d), of rows (N, d). For sparse inputs the mean must be 0."""
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).T @ rows)
    sums = np.zeros((x.shape[1], rows.shape[1]))
    step = max(1, BLOCK // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        sums += np.square(x[start : start + step] - mean).T @ rows[start : start + step]
    return sums


def logits(data: Data, params: Array, x: Inputs | None = None) -> Array:
    """Return the logits (N, F) of the data or of other inputs, in column-major order for fast sums over classes."""
    coefficients = params[:, :-1]
    inputs = data.x if x is None else x
    level = params[:, -1] - coefficients @ data.mean
    if sparse.issparse(inputs):
        return np.asfortranarray(inputs @ coefficients.T) + level
    return np.asarray((coefficients @ inputs.T + level[:, None]).T)


def all_classes(z: Array) -> Array:
    """Return the logits (N, C) of all classes; of two classes the first has 0."""
    return np.vstack([np.zeros(len(z)), z[:, 0]]).T if z.shape[1] == 1 else z


def log_probabilities(z: Array) -> Array:
    """Turn logits (N, C) into log probabilities, in place."""
    z -= z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z


def predicted(data: Data, params: Array, x: Inputs | None = None) -> Array:
    """Return the log probabilities (N, C) of the data or of other inputs."""
    return log_probabilities(all_classes(logits(data, params, x)))


def back(data: Data, residual: Array, x: Inputs | None = None) -> Array:
    """Return the gradient (F, D + 1) with respect to params, from that with respect to the logits (N, F)."""
    inputs = data.x if x is None else x
    sums = residual.sum(axis=0)
    slope = (inputs.T @ residual).T if sparse.issparse(inputs) else residual.T @ inputs
    gradient = np.empty((len(sums), len(data.mean) + 1))
    np.subtract(slope, np.outer(sums, data.mean), out=gradient[:, :-1])
    gradient[:, -1] = sums if data.intercept else 0.0
    return gradient


def cross_entropy(data: Data, params: Array, targets: Array, x: Inputs | None = None) -> tuple[float, Array]:
    """Return ``-sum_i targets_i . log p_i`` of targets (N, C), and its gradient (F, D + 1)."""
    z = all_classes(logits(data, params, x))
    z -= z.max(axis=1, keepdims=True)
    p = np.exp(z)
    sums, weight = p.sum(axis=1), targets.sum(axis=1)
    p *= (weight / sums)[:, None]
    p -= targets  # the gradient with respect to the logits
    return float(weight @ np.log(sums)) - float(np.vdot(targets.T, z.T)), back(data, p[:, -data.n_rows :], x)


def quadratic(data: Data, weights: Weights) -> Array:
    """Return a (F, D) such that l2 and dropout, with their weights, are ``1/2 sum a w^2``."""
    a = np.full((data.n_rows, data.x.shape[1]), 2.0 * weights["l2"])
    return a if data.curvature is None else a + weights["dropout"] * data.curvature


def smooth_loss(data: Data, weights: Weights, targets: Array, params: Array) -> tuple[float, Array]:
    """Return the loss without L1, and its gradient; the targets are those of `mixed_targets`."""
    value, gradient = cross_entropy(data, params, targets)
    slope = quadratic(data, weights) * params[:, :-1]
    gradient[:, :-1] += slope
    return value + 0.5 * float(np.vdot(slope, params[:, :-1])), gradient


def smooth_value(data: Data, weights: Weights, targets: Array, params: Array) -> float:
    """Return only the value of `smooth_loss`, in half the time."""
    log_p = predicted(data, params)
    w = params[:, :-1]
    return 0.5 * float(np.vdot(quadratic(data, weights) * w, w)) - float(np.vdot(targets, log_p))


def mixed_targets(data: Data, weights: Weights) -> Array:
    """Return targets (N, C) whose cross entropy is the log loss plus the weighted uniform term."""
    return data.targets() + weights["uniform"] / data.n_classes * data.sample_weight[:, None]


def terms(data: Data, params: Array) -> tuple[Array, list[Array]]:
    """Return the values (5,) of the terms, in the order of NAMES, and their gradients (F, D + 1).

    The gradient of L1 is 0 where a param is 0.
    """
    w = params[:, :-1]
    targets = data.targets()
    log_loss, log_loss_gradient = cross_entropy(data, params, targets)
    flat = np.broadcast_to(data.sample_weight[:, None] / data.n_classes, targets.shape)
    z = all_classes(logits(data, params))
    uniform = log_loss + float(np.vdot(targets - flat, z))  # both have the same log-normaliser
    uniform_gradient = log_loss_gradient + back(data, (targets - flat)[:, -data.n_rows :])
    curvature = np.zeros_like(w) if data.curvature is None else data.curvature
    zero = np.zeros((data.n_rows, 1))
    values = [np.abs(w).sum(), np.square(w).sum(), uniform, 0.5 * np.vdot(curvature, w * w), log_loss]
    slopes = [np.hstack([g, zero]) for g in (np.sign(w), 2 * w)]
    return np.array(values), [*slopes, uniform_gradient, np.hstack([curvature * w, zero]), log_loss_gradient]


def conditioner(data: Data, weights: Weights) -> Array:
    """Approximate the diagonal (F, D + 1) of the smooth loss's Hessian, at a model that predicts the class shares."""
    share = data.targets().sum(axis=0)[-data.n_rows :] / data.total
    spread = (1 + weights["uniform"]) * np.maximum(share * (1 - share), MIN_SPREAD)[:, None]
    slopes = spread * data.second + quadratic(data, weights)
    return np.column_stack([np.where(slopes > 0, slopes, 1.0), spread * data.total])


class Hessian:
    """Products with the Hessian of the smooth loss at a model, restricted to the free params.

    Parameters
    ----------
    data : Data
        The training examples.
    weights : dict of str to float
        The loss weights.
    params : (F, D + 1) array
        The model.
    free : (F, D + 1) array of bool
        Which params are free.
    """

    def __init__(self, data: Data, weights: Weights, params: Array, free: NDArray[np.bool_]) -> None:
        self._data, self._free, self._quadratic = data, free, quadratic(data, weights)
        self._p = np.exp(predicted(data, params).T[-data.n_rows :])
        self._level = (1 + weights["uniform"]) * data.sample_weight * self._p

    def __call__(self, directions: Array) -> Array:
        """Return the products (d, F, D + 1) with directions of that shape, block by block."""
        most = max(1, PRODUCT_BLOCK // max(1, self._p.size))
        return np.concatenate([self._products(directions[i : i + most]) for i in range(0, len(directions), most)])

    def _products(self, directions: Array) -> Array:
        data, free = self._data, self._free
        d, f, _ = directions.shape
        v = directions * free
        z = logits(data, v.reshape(d * f, -1)).T.reshape(d, f, -1)
        residual = self._level * (z - np.einsum("dfn,fn->dn", z, self._p)[:, None])
        products = back(data, residual.reshape(d * f, -1).T).reshape(directions.shape)
        products[:, :, :-1] += self._quadratic * v[:, :, :-1]
        return np.asarray(products * free)
