"""Observe one fit for LearnLoss: inner products of gradients in the metric of the inverse Hessian.

With the Hessian H of the training loss, the terms' gradients J and the gradient g of the validation error::

    gram = [J g]' H^-1 [J g]

At a fit with weights w, the gradient of the loss is zero: J w = 0. With gradients only, the calibrated form of
LearnLoss keeps w if no other weights mu have a lower ``|J mu - g|^2`` in the metric. This holds if J' H^-1 g = 0 for
all terms inside the box. Because -J' H^-1 g is the derivative of the validation error with respect to the weights,
LearnLoss stops exactly where no small change of the weights lowers the error. With the plain inner product, it would
stop elsewhere.

One fit shows in which direction to change the weights. Several fits show how far, because J w = 0 leaves the size of a
step open.

With L1, params that are 0 stay 0 under small changes of the weights. They are left out.
"""

from __future__ import annotations

import numpy as np

from tuneloss import Observation
from tuneloss.sklearn.fitting import Fitted
from tuneloss.sklearn.softmax import NAMES, Data, Hessian, Inputs, Weights, conditioner, cross_entropy, terms
from tuneloss.types import Array

KRYLOV_STEPS = (
    4  # products with H; a rough solution is enough, since the next fit shows whether the direction was right
)
DEPENDENT = 1e-10  # relative size below which a new direction counts as a combination of the others
SINGULAR = 1e-12  # relative eigenvalue of H below which a direction is left out


def observe(data: Data, fitted: Fitted, x: Inputs, targets: Array) -> Observation:
    """Observe a fit, with features, error and gram.

    Parameters
    ----------
    data : Data
        The training examples.
    fitted : Fitted
        The model.
    x : (N, D) array or sparse matrix
        The validation inputs.
    targets : (N, C) array
        The weighted targets of the validation examples.
    """
    weights, params = fitted.weights, fitted.params
    features, gradients = terms(data, params)
    error, error_gradient = cross_entropy(data, params, targets, x)
    free = np.ones(params.shape, dtype=bool)
    if weights["l1"] > 0:
        free[:, :-1] = params[:, :-1] != 0
    free[:, -1] = data.intercept
    columns = np.stack([*gradients[:-1], error_gradient]) * free
    inner = inverse_products(Hessian(data, weights, params, free), columns, conditioner(data, weights))
    return Observation(error, dict(zip(NAMES, features, strict=True)), _with_log_loss(inner, weights))


def _with_log_loss(inner: Array, weights: Weights) -> Array:
    """Add the log loss to inner products of the regularizers and the error.

    Because J w = 0, its gradient is minus the weighted sum of those of the regularizers.
    """
    regularizers = [weights[name] for name in NAMES[:-1]]
    k = len(regularizers)
    combine = np.zeros((k + 2, k + 1))
    combine[:k, :k], combine[k, :k], combine[k + 1, k] = np.eye(k), -np.array(regularizers), 1.0
    return np.asarray(combine @ inner @ combine.T)


def inverse_products(hessian: Hessian, columns: Array, diagonal: Array, steps: int = KRYLOV_STEPS) -> Array:
    """Approximate M' H^-1 M from below, for columns M.

    H is restricted to the Krylov space of all columns together, in coordinates in which its diagonal is about 1. The
    result is exact if that space is the whole space, and always positive semidefinite.

    Parameters
    ----------
    hessian : Hessian
        Products with H.
    columns : (d, F, D + 1) array
        The columns M, each in the shape of params.
    diagonal : (F, D + 1) array
        About the diagonal of H.
    steps : int
        The number of products with H.

    Returns
    -------
    (d, d) array
    """
    root = np.sqrt(diagonal)
    m = (columns / root).reshape(len(columns), -1).T
    basis, images = _krylov_space(hessian, m, root, steps)
    restricted, inside = basis.T @ images, basis.T @ m
    values, vectors = np.linalg.eigh((restricted + restricted.T) / 2)
    kept = values > SINGULAR * values.max(initial=0.0)
    parts = (vectors[:, kept].T @ inside) / np.sqrt(values[kept])[:, None]
    return np.asarray(parts.T @ parts)


def _krylov_space(hessian: Hessian, m: Array, root: Array, steps: int) -> tuple[Array, Array]:
    """Return an orthonormal basis of the Krylov space of the columns of m, and the images of its vectors under H."""
    basis, images = [np.linalg.qr(m)[0]], list[Array]()
    while True:
        last = basis[-1]
        image = hessian(last.T.reshape(-1, *root.shape) / root) / root
        images.append(image.reshape(last.shape[1], -1).T)
        if len(basis) == steps:
            break
        new = images[-1]
        for _ in range(2):  # once is not enough for orthogonality in floating point
            for block in basis:
                new = new - block @ (block.T @ new)
        size = np.linalg.norm(new, axis=0)
        new = new[:, size > DEPENDENT * np.linalg.norm(images[-1], axis=0)]
        if not new.shape[1]:
            break
        basis.append(np.linalg.qr(new)[0])
    return np.hstack(basis), np.hstack(images)
