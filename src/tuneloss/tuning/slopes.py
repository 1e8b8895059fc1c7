"""How the error of a trained model would change with the weights, estimated from its observation alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tuneloss.core.observation import Observation
from tuneloss.types import Array


def slopes(observation: Observation, weights: Array, pinned: NDArray[np.bool_]) -> Array:
    r"""Estimate the derivative of the error by each weight, for a model that was trained to convergence.

    By the implicit function theorem it is :math:`-J_j' H^{-1} g`, with the Hessian H of the training loss. H is not
    observed. A quadratic function with value :math:`\phi` and gradient J has the curvature
    :math:`h = |J|^2 / (2 \phi)` along J. So the Hessian is modelled by

    .. math:: H \approx h_0 I + \sum_j w_j h_j u_j u_j', \qquad u_j = J_j / |J_j|

    where the sum is over the free weights, and :math:`h_0` is the curvature of the pinned terms. The inverse needs
    inner products of gradients only. On exact problems, at random points, more than 9 of 10 signs of the slopes that
    matter are right; sizes may be wrong by a factor of ten and more.

    Parameters
    ----------
    observation : Observation
        The model; it has a gram.
    weights : (k,) array
        The weights that it was trained with.
    pinned : (k,) array of bool
        Which weights are pinned.

    Returns
    -------
    (k,) array
        The derivatives, 0 where there is no finite estimate. If the curvature of the pinned terms is unknown, the
        Hessian is taken as the identity.
    """
    gram = observation.gram
    assert gram is not None  # callers ask for models with gradients only
    squares, products = np.diag(gram)[:-1], gram[:-1, -1]
    values = np.abs(observation.features)
    known = (squares > 0) & (values > 0)
    with np.errstate(all="ignore"):  # an estimate beyond the range of floats is none
        curvature = np.where(known, squares / (2 * np.where(known, values, 1.0)), 0.0)
        base = float(np.abs(weights[pinned]) @ curvature[pinned])
        if not base > 0:
            return -products
        curved = np.flatnonzero(~pinned & (weights > 0) & (curvature > 0))
        roots = np.sqrt(weights[curved]) * np.sqrt(curvature[curved] / squares[curved])
        inner = roots[:, None] * gram[np.ix_(curved, curved)] * roots  # R'R, where H = base I + R R'
        try:
            sizes, vectors = np.linalg.eigh(inner)
        except np.linalg.LinAlgError:  # not finite
            return np.zeros_like(products)
        # R' H^-1 = (base I + R'R)^-1 R': for these terms, nothing cancels.
        solved = vectors @ (vectors.T @ (roots * products[curved]) / (base + np.maximum(sizes, 0.0)))
        by_weights = -(products - gram[:-1, curved] @ (roots * solved)) / base
        by_weights[curved] = -solved / roots
    return np.where(np.isfinite(by_weights), by_weights, 0.0)


def gradient_cosine(observation: Observation, weights: Array) -> float:
    """Return the cosine between the gradients of loss and error; NaN without gradients, or if one of the two is 0."""
    gram = observation.gram
    if gram is None:
        return math.nan
    inner, loss, error = weights @ gram[:-1, -1], weights @ gram[:-1, :-1] @ weights, gram[-1, -1]
    size = math.sqrt(max(float(loss), 0.0) * float(error))
    return float(inner) / size if size > 0 else math.nan
