"""Fits: the params of least loss, by L-BFGS-B from a warm start, in coordinates in which curvatures are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, minimize

from tuneloss.errors import RunFailed
from tuneloss.sklearn.softmax import Data, Weights, conditioner, mixed_targets, smooth_loss
from tuneloss.types import Array


@dataclass(frozen=True, eq=False)
class Fitted:
    """Params (F, D + 1) of least loss under these weights."""

    weights: Weights
    params: Array
    n_iter: int
    converged: bool
    message: str = ""


def fit(data: Data, weights: Weights, start: Array, *, tol: float, max_iter: int) -> Fitted:
    """Minimise the loss of these weights over params.

    With L1, params = u - v with u, v >= 0, of which L1 is the sum: smooth with bounds. A param is then exactly 0 where
    u = v = 0.

    tol: the largest slope that may be left in any coordinate, in units in which a step of 1 changes the loss of all
        examples by about their number times a half.
    """
    targets = mixed_targets(data, weights)
    unit = np.sqrt(conditioner(data, weights))
    if not data.intercept:
        start = np.column_stack([start[:, :-1], np.zeros(len(start))])
    options = {"maxiter": max_iter, "maxfun": 20 * max_iter, "gtol": tol * np.sqrt(data.total), "ftol": 1e-13}

    def smooth(x: Array) -> tuple[float, Array]:
        value, gradient = smooth_loss(data, weights, targets, x.reshape(unit.shape) / unit)
        return value, (gradient / unit).ravel()

    if weights["l1"] > 0:
        cost = np.full(unit.shape, weights["l1"]) / unit
        cost[:, -1] = 0.0  # intercepts: u and v without a bound on u
        flat = cost.ravel()

        def split(x: Array) -> tuple[float, Array]:
            u, v = np.split(x, 2)
            value, gradient = smooth(u - v)
            return value + float(flat @ (u + v)), np.concatenate([gradient + flat, flat - gradient])

        x0 = (start * unit).ravel()
        lower = np.where(flat > 0, 0.0, -np.inf)
        upper = np.where(flat > 0, np.inf, 0.0)  # v of an intercept is 0
        both = np.concatenate(
            [np.where(flat > 0, np.maximum(x0, 0.0), x0), np.where(flat > 0, np.maximum(-x0, 0.0), 0)]
        )
        bounds = Bounds(
            np.concatenate([lower, np.zeros_like(flat)]), np.concatenate([np.full(flat.shape, np.inf), upper])
        )
        found = minimize(split, both, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        x = np.subtract(*np.split(found.x, 2))
    else:
        found = minimize(smooth, (start * unit).ravel(), jac=True, method="L-BFGS-B", options=options)
        x = found.x
    if not np.isfinite(x).all() or not np.isfinite(found.fun):
        raise RunFailed(f"The fit with weights {weights} left the numbers: {found.message}")
    params = x.reshape(unit.shape) / unit if found.nit else start  # exactly the start, if that is good enough
    return Fitted(dict(weights), params, int(found.nit), bool(found.success), str(found.message))
