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
SCREEN = 0.8  # slope at 0, relative to the L1 weight, above which a coordinate is free in a round
MAX_ROUNDS = 30  # largest number of rounds of a fit with L1
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


@dataclass(frozen=True, eq=False)
class _Minimum:
    """What a solver found: params, loss, number of iterations, whether the tolerance was reached, and a message."""

    params: Array
    value: float
    n_iter: int
    converged: bool
    message: str


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
        """Return the L1 weight of each coordinate (F, D + 1); intercepts have none."""
        cost = np.full(self.unit.shape, self._weights["l1"]) / self.unit
        cost[:, -1] = 0.0
        return cost


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
    minimise = _minimise_with_l1 if weights["l1"] > 0 else _minimise_smooth
    found = minimise(data, weights, start, options)
    if not np.isfinite(found.params).all() or not np.isfinite(found.value):
        raise RunFailed(f"The fit with weights {weights} gave numbers that are not finite: {found.message}")
    params = found.params if found.n_iter else start  # without an iteration, exactly the start
    return Fitted(dict(weights), params, found.n_iter, found.converged, found.message)


def _minimise_smooth(data: Data, weights: Weights, start: Array, options: dict[str, Any]) -> _Minimum:
    loss = _Loss(data, weights)
    x = (start * loss.unit).ravel()
    result = minimize(loss.smooth, x, jac=True, method="L-BFGS-B", options=options)
    return _Minimum(loss.params(result.x), float(result.fun), int(result.nit), bool(result.success), result.message)


def _minimise_with_l1(data: Data, weights: Weights, start: Array, options: dict[str, Any]) -> _Minimum:
    """Minimise with signs that are fixed for a while, over the inputs that matter.

    With its sign fixed, a coordinate has a linear cost and a bound at 0. In each round, those coordinates are free that
    are not 0, or whose slope at 0 exceeds their L1 weight. Inputs without a free coordinate are left out of the round.
    """
    whole = _Loss(data, weights)
    cost, x = whole.l1(), start * whole.unit
    gradient = whole.smooth(x.ravel())[1].reshape(x.shape)
    n_iter = n_rounds = 0
    while True:
        signs = np.where(cost == 0, 1.0, np.sign(x))
        steep = (signs == 0) & (np.abs(gradient) > SCREEN * cost)
        signs[steep] = -np.sign(gradient[steep])
        used = np.append((signs[:, :-1] != 0).any(axis=0), True)
        part = whole if used.all() else _Loss(data.only_inputs(used[:-1]), weights)
        x[:, used], result = _minimise_in_orthant(part, x[:, used], signs[:, used], cost[:, used], options)
        n_iter, n_rounds = n_iter + result.nit, n_rounds + 1
        gradient = whole.smooth(x.ravel())[1].reshape(x.shape)
        is_done = not ((x == 0) & (np.abs(gradient) > cost + options["gtol"])).any()
        if is_done or n_rounds == MAX_ROUNDS or n_iter >= options["maxiter"] or not np.isfinite(x).all():
            message = result.message if is_done else "coordinates still leave 0"
            return _Minimum(x / whole.unit, float(result.fun), n_iter, bool(result.success) and is_done, message)


def _minimise_in_orthant(
    loss: _Loss, start: Array, signs: Array, cost: Array, options: dict[str, Any]
) -> tuple[Array, Any]:
    """Minimise over the coordinates whose sign is not 0, with their signs; intercepts may have any sign."""
    shape, free = start.shape, np.flatnonzero(signs)
    sign, slope = signs.ravel()[free], cost.ravel()[free]

    def place(sizes: Array) -> Array:
        x = np.zeros(signs.size)
        x[free] = sign * sizes
        return x

    def orthant_loss(sizes: Array) -> tuple[float, Array]:
        value, gradient = loss.smooth(place(sizes))
        return value + float(slope @ sizes), sign * gradient[free] + slope

    bounds = Bounds(np.where(slope > 0, 0.0, -np.inf), np.full(len(free), np.inf))
    sizes = sign * start.ravel()[free]
    result = minimize(orthant_loss, sizes, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return place(result.x).reshape(shape), result
