"""What LearnLoss sees of a fit: inner products of gradients in the metric of the training loss's Hessian.

    gram = [J g]' H^-1 [J g]

Why that metric: at a fit, J w = 0. LearnLoss (calibrated, gradients only) at weights w stands still if and only if no
change of mu lowers |J mu - g|^2 in the metric, so if J' H^-1 g = 0 for all terms inside the box; and -J' H^-1 g is
the derivative of the validation error of the fit with respect to the weights. With the plain product of gradients the
weights would stop elsewhere. One fit says in which direction to go, several how far: J w = 0 leaves the size of a step
open.

With L1, the params at 0 stay there under small changes of the weights, and are left out.
"""

from __future__ import annotations

import numpy as np

from tuneloss import Observation
from tuneloss.sklearn.fitting import Fitted
from tuneloss.sklearn.softmax import NAMES, Data, Hessian, Inputs, conditioner, cross_entropy, terms
from tuneloss.types import Array

STEPS = 6  # of the Krylov space: the solve says in which direction to go, the next fit how far that was right


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
    columns = np.stack([*slopes[:-1], gradient]) * free
    inner = inverse_products(hessian, columns, conditioner(data, weights))
    held = [weights[name] for name in NAMES[:-1]]  # J w = 0: the log loss's gradient is what the others leave
    k = len(held)
    made = np.zeros((k + 2, k + 1))
    made[:k, :k], made[k, :k], made[k + 1, k] = np.eye(k), -np.array(held), 1.0
    return Observation(error, dict(zip(NAMES, features, strict=True)), made @ inner @ made.T)


def inverse_products(hessian: Hessian, columns: Array, diagonal: Array, steps: int = STEPS) -> Array:
    """About M' H^-1 M (d, d) for the d columns M of shape (d, F, D + 1), from below.

    H is taken as it acts within the Krylov space of all columns together, in coordinates in which its diagonal is about
    1: exact if that space is everything, and always positive semidefinite.

    diagonal: (F, D + 1), about that of H.
    """
    d, root = len(columns), np.sqrt(diagonal)
    m = (columns / root).reshape(d, -1).T
    basis, images = [np.linalg.qr(m)[0]], []
    while True:
        last = basis[-1]
        image = hessian(last.T.reshape(-1, *root.shape) / root) / root
        images.append(image.reshape(last.shape[1], -1).T)
        if len(basis) == steps:
            break
        new = images[-1]
        for _ in range(2):  # once is not enough for orthogonality in floating point
            for other in basis:
                new = new - other @ (other.T @ new)
        size = np.linalg.norm(new, axis=0)
        new = new[:, size > 1e-10 * np.linalg.norm(images[-1], axis=0)]
        if not new.shape[1]:
            break
        basis.append(np.linalg.qr(new)[0])
    v, hv = np.hstack(basis), np.hstack(images)
    inside, seen = v.T @ hv, v.T @ m
    values, vectors = np.linalg.eigh((inside + inside.T) / 2)
    kept = values > 1e-12 * values.max(initial=0.0)
    parts = (vectors[:, kept].T @ seen) / np.sqrt(values[kept])[:, None]
    return np.asarray(parts.T @ parts)
