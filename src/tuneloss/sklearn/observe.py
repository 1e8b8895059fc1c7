"""What LearnLoss sees of a fit: inner products of gradients in the metric of the training loss's Hessian.

    gram = [J g]' H^-1 [J g]

Why that metric: at a fit, J w = 0. LearnLoss (calibrated, gradients only) at weights w stands still if and only if no
change of mu lowers |J mu - g|^2 in the metric, so if J' H^-1 g = 0 for all terms inside the box; and -J' H^-1 g is
the derivative of the validation error of the fit with respect to the weights. With the plain product of gradients the
weights would stop elsewhere. A step is that of Gauss and Newton: after a Newton step of the training loss, the
quadratic model of the validation error is least.

With L1, the params at 0 stay there under small changes of the weights, and are left out.
"""

from __future__ import annotations

import numpy as np

from tuneloss import Observation
from tuneloss.core.checks import Array
from tuneloss.sklearn.softmax import NAMES, Data, Hessian, Inputs, conditioner, cross_entropy, terms
from tuneloss.sklearn.solve import Fitted

CG_TOLERANCE = 0.3  # of the residual's norm: the solve says in which direction to go, the next fit how far it was right
CG_STEPS = 50


def validation_error(data: Data, params: Array, x: Inputs, targets: Array) -> tuple[float, Array]:
    """The log loss on validation examples, a sum, and its gradient (F, D + 1). targets: (N, C), weighted."""
    return cross_entropy(data, params, targets, x)


def observe(data: Data, fitted: Fitted, x: Inputs, targets: Array) -> Observation:
    """The observation of a fit on `data`, with validation inputs x and weighted targets (N, C)."""
    weights, params = fitted.weights, fitted.params
    features, slopes = terms(data, params)
    error, gradient = cross_entropy(data, params, targets, x)
    free = np.ones(params.shape, dtype=bool)
    if weights["l1"] > 0:
        free[:, :-1] = params[:, :-1] != 0
    free[:, -1] = data.intercept
    hessian = Hessian(data, weights, params, free)
    columns = np.stack([*slopes[:-1], gradient]) * free  # the log loss's is what the others leave, since J w = 0
    solved = conjugate_gradients(hessian, columns, conditioner(data, weights))
    held = [weights[name] for name in NAMES[:-1]]
    solved = np.insert(solved, len(held), -np.tensordot(held, solved[:-1], 1), axis=0)
    flat = solved.reshape(len(solved), -1)
    gram = flat @ hessian(solved).reshape(len(solved), -1).T
    return Observation(error, dict(zip(NAMES, features, strict=True)), (gram + gram.T) / 2)


def conjugate_gradients(hessian: Hessian, columns: Array, diagonal: Array) -> Array:
    """About H^-1 columns, for d columns of shape (d, F, D + 1) at once; `diagonal` is about that of H."""
    def dot(a: Array, b: Array) -> Array:
        found: Array = np.einsum("dij,dij->d", a, b)[:, None, None]
        return found

    x, residual = np.zeros_like(columns), columns.copy()
    ahead = residual / diagonal
    direction, size = ahead, dot(residual, ahead)
    goal = CG_TOLERANCE**2 * size
    for _ in range(CG_STEPS):
        open_ = size > goal
        if not open_.any():
            break
        image = hessian(direction)
        curvature = dot(direction, image)
        step = np.where(open_ & (curvature > 0), size / np.where(curvature > 0, curvature, 1.0), 0.0)
        x = x + step * direction
        residual = residual - step * image
        ahead = residual / diagonal
        new = dot(residual, ahead)
        direction = ahead + np.where(open_, new / np.where(size > 0, size, 1.0), 0.0) * direction
        size = np.where(open_, new, size)
    return x
