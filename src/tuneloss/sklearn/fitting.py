"""One fit: L-BFGS-B finds the params of least loss, from a warm start and in coordinates of similar curvature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize

from tuneloss.errors import RunFailed
from tuneloss.sklearn.softmax import Data, Weights, conditioner, mixed_targets, smooth_loss
from tuneloss.types import Array

LOSS_TOL = 1e-13  # relative change of the loss at which L-BFGS-B stops; so small that the slope decides first
EVALUATIONS = 20  # largest number of evaluations of the loss per allowed iteration


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model.

    Parameters
    ----------
    weights : dict of str to float
        The loss weights.
    params : (F, D + 1) array
        The params of least loss; see `softmax`.
    n_iter : int
        The number of iterations.
    converged : bool
        Whether the tolerance was reached.
    message : str
        Why the solver stopped.
    """

    weights: Weights
    params: Array
    n_iter: int
    converged: bool
    message: str = ""


class _Loss:
    """The loss of a fit as a function of the flat vector ``params * unit``, in which curvatures are similar."""

    def __init__(self, data: Data, weights: Weights) -> None:
        self._data, self._weights, self._targets = data, weights, mixed_targets(data, weights)
        self.unit = np.sqrt(conditioner(data, weights))

    def params(self, x: Array) -> Array:
        """Return a vector as params."""
        return x.reshape(self.unit.shape) / self.unit

    def smooth(self, x: Array) -> tuple[float, Array]:
        """Return the loss without L1, and its gradient."""
        value, gradient = smooth_loss(self._data, self._weights, self._targets, self.params(x))
        return value, (gradient / self.unit).ravel()

    def l1(self) -> Array:
        """Return the L1 weight of each coordinate; intercepts have none."""
        cost = np.full(self.unit.shape, self._weights["l1"]) / self.unit
        cost[:, -1] = 0.0
        return cost.ravel()


def fit(data: Data, weights: Weights, start: Array, *, tol: float, max_iter: int) -> Fitted:
    """Minimise the loss of these weights over params.

    Parameters
    ----------
    data : Data
        The training examples.
    weights : dict of str to float
        The loss weights.
    start : (F, D + 1) array
        The params to start from.
    tol : float
        The largest slope that may remain in any coordinate. Coordinates are scaled so that a step of 1 changes the loss
        of all examples by about half of their number.
    max_iter : int
        The largest number of iterations.

    Raises
    ------
    RunFailed
        If the params or the loss become infinite or NaN.
    """
    if not data.intercept:
        start = np.column_stack([start[:, :-1], np.zeros(len(start))])
    options = {
        "maxiter": max_iter,
        "maxfun": EVALUATIONS * max_iter,
        "gtol": tol * np.sqrt(data.total),
        "ftol": LOSS_TOL,
    }
    loss = _Loss(data, weights)
    flat_start = (start * loss.unit).ravel()
    if weights["l1"] > 0:
        x, result = _minimise_with_l1(loss, flat_start, options)
    else:
        result = minimize(loss.smooth, flat_start, jac=True, method="L-BFGS-B", options=options)
        x = result.x
    if not np.isfinite(x).all() or not np.isfinite(result.fun):
        raise RunFailed(f"The fit with weights {weights} gave numbers that are not finite: {result.message}")
    params = loss.params(x) if result.nit else start  # without an iteration, exactly the start
    return Fitted(dict(weights), params, int(result.nit), bool(result.success), str(result.message))


def _minimise_with_l1(loss: _Loss, start: Array, options: dict[str, Any]) -> tuple[Array, Any]:
    """Split x into u - v with u, v >= 0, so that L1 is their sum: smooth, with bounds.

    A coordinate is exactly 0 where u = v = 0. An intercept, which L1 does not touch, is u without a bound, and v = 0.
    """
    cost = loss.l1()
    is_penalised = cost > 0

    def split_loss(uv: Array) -> tuple[float, Array]:
        u, v = np.split(uv, 2)
        value, gradient = loss.smooth(u - v)
        return value + float(cost @ (u + v)), np.concatenate([gradient + cost, cost - gradient])

    positive = np.where(is_penalised, np.maximum(start, 0.0), start)
    negative = np.where(is_penalised, np.maximum(-start, 0.0), 0)
    lower = np.concatenate([np.where(is_penalised, 0.0, -np.inf), np.zeros_like(cost)])
    upper = np.concatenate([np.full(cost.shape, np.inf), np.where(is_penalised, np.inf, 0.0)])
    both = np.concatenate([positive, negative])
    result = minimize(split_loss, both, jac=True, method="L-BFGS-B", bounds=Bounds(lower, upper), options=options)
    return np.subtract(*np.split(result.x, 2)), result
