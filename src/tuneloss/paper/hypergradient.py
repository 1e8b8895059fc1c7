"""Hypergradients of softmax regression: derivatives of the validation log loss by the weights of the five terms.

The implicit function theorem holds at a minimum. AdaGrad ends near one, and L1 is not differentiable at 0, so what is
computed here is an approximation. Params that are 0 at the minimum stay 0 when weights change a little, so they are
left out, as in sparse-ho (Bertrand et al., 2020). AdaGrad leaves small numbers there instead: `support` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from tuneloss.baselines import implicit_derivative
from tuneloss.paper.datasets import Split
from tuneloss.paper.terms import KEEP, NAMES, Masks, cross_entropy, one_hot, training_terms
from tuneloss.types import Array

TOLERANCE = 1e-2  # of conjugate gradients; AdaGrad's distance from the minimum is a larger error
MOST_PRODUCTS = 2000  # products with the Hessian
DRAWS = 2  # dropout masks in the Hessian, of those that are used for gradients; more change the result little


def hypergradient(params: Array, split: Split, masks: Masks, weights: Mapping[str, float]) -> Array:
    """Compute the derivative of the validation log loss (a sum) by each weight: (5,), in the order of `NAMES`.

    Parameters
    ----------
    params : (D + 1, C) array
        The params of a model that was trained with these weights.
    split : Split
    masks : (draws, N, D) array of bool
        From `draw_masks`; they replace the noise of dropout in training.
    weights : mapping of str to float
        The weights of the five terms.

    Raises
    ------
    SolverError
        If conjugate gradients do not converge.
    """
    values = np.array([weights[name] for name in NAMES])
    _, jacobian = training_terms(params, split, masks)
    curvature = Curvature(params, split, masks[:DRAWS], weights)
    kept = support(params, (jacobian @ values).reshape(params.shape), weights["l1"], curvature.diagonal())

    def product(vector: Array) -> Array:
        direction = np.zeros(params.shape)
        direction[kept] = vector
        return curvature.product(direction)[kept]

    targets = one_hot(split.validation_y, split.n_classes)
    gradient = cross_entropy(params, split.validation_x, targets)[1]
    return implicit_derivative(
        product, gradient[kept], jacobian[kept.ravel()], tolerance=TOLERANCE, most_products=MOST_PRODUCTS
    )


def support(params: Array, slopes: Array, l1: float, curvature: Array) -> NDArray[np.bool_]:
    """Return which params are not 0 after one step of proximal Newton's method, with a diagonal Hessian.

    Parameters
    ----------
    params : (D + 1, C) array
    slopes : (D + 1, C) array
        The gradient of the loss, with L1's subgradient sign(params), which is 0 at 0.
    l1 : float
        The weight of L1. The bias, in the last row, has no such term, and is always kept.
    curvature : (D + 1, C) array
        The diagonal of the Hessian of the other terms.
    """
    smooth = slopes - l1 * np.sign(params)
    kept = np.abs(curvature * params - smooth) > l1
    kept[-1] = True
    return np.asarray(kept)


class Curvature:
    """The Hessian of the loss without L1, at the params of a model, as a function of directions.

    Parameters
    ----------
    params : (D + 1, C) array
    split : Split
    masks : (draws, N, D) array of bool
    weights : mapping of str to float
    """

    def __init__(self, params: Array, split: Split, masks: Masks, weights: Mapping[str, float]) -> None:
        self.l2 = weights["l2"]
        x = split.train_x.astype(np.float32)
        parts = [(weights["logloss"] + weights["uniform"], x)]  # the two have the same Hessian
        if weights["dropout"] > 0:
            parts += [(weights["dropout"] / len(masks), x / np.float32(KEEP) * mask) for mask in masks]
        self._parts = [(weight, inputs, _probabilities(params, inputs)) for weight, inputs in parts]

    def product(self, direction: Array) -> Array:
        """Multiply the Hessian with a direction, (D + 1, C)."""
        result = 2 * self.l2 * direction
        result[-1] = 0.0
        v = direction.astype(np.float32)
        for weight, x, p in self._parts:
            changes = x @ v[:-1] + v[-1]  # of the logits
            changes -= (p * changes).sum(axis=1, keepdims=True)
            changes *= p  # of the probabilities
            result[:-1] += weight * (x.T @ changes)
            result[-1] += weight * changes.sum(axis=0)
        return result

    def diagonal(self) -> Array:
        """Return the diagonal of the Hessian, (D + 1, C)."""
        result = np.full((self._parts[0][1].shape[1] + 1, self._parts[0][2].shape[1]), 2 * self.l2)
        result[-1] = 0.0
        for weight, x, p in self._parts:
            variances = p * (1 - p)
            result[:-1] += weight * (np.square(x).T @ variances)
            result[-1] += weight * variances.sum(axis=0)
        return result


def _probabilities(params: Array, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities of all classes, (N, C)."""
    logits = x @ params[:-1].astype(np.float32) + params[-1].astype(np.float32)
    p: NDArray[np.float32] = softmax(logits, axis=1)
    return p
