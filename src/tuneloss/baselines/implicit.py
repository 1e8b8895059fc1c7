"""The implicit derivative of a trained model's error by the weights of its loss, without an inverse of the Hessian."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from tuneloss.checks import as_finite
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.types import Array

TOLERANCE = 1e-3  # of conjugate gradients: the residual as a fraction of the gradient
MOST_PRODUCTS = 1000  # products with the Hessian, unless the caller says otherwise


def implicit_derivative(
    hessian_product: Callable[[Array], Array],
    gradient: Array,
    jacobian: Array,
    *,
    tolerance: float = TOLERANCE,
    most_products: int = MOST_PRODUCTS,
) -> Array:
    r"""Compute the derivative of the error of a trained model by the weights of its loss.

    At a minimum of the loss :math:`\sum_j w_j f_j`, with Hessian :math:`H`, the params follow the weights with
    derivative :math:`-H^{-1} J` (the implicit function theorem). So the error with gradient :math:`g` follows them with
    derivative :math:`-J^\top H^{-1} g`. One linear system is solved, by conjugate gradients.

    Parameters
    ----------
    hessian_product : callable
        Maps a vector (n,) to its product with the Hessian of the loss, (n,). The Hessian must be positive semidefinite.
    gradient : (n,) array
        The gradient of the error by the params.
    jacobian : (n, k) array
        The gradients of the terms, one per column.
    tolerance : float, default 1e-3
        The largest residual of the linear system, as a fraction of the length of the gradient.
    most_products : int, default 1000
        The largest number of products with the Hessian.

    Returns
    -------
    (k,) array
        The derivative of the error by each weight.

    Raises
    ------
    InvalidInput
        If the shapes do not fit.
    SolverError
        If the residual is larger after that many products. Then the Hessian is badly conditioned, or not positive.

    Examples
    --------
    The loss (p - 3)^2 + w p^2 has its minimum at p = 3 / (1 + w). There the error p^2 = 9 / (1 + w)^2 has the
    derivative -18 / (1 + w)^3, which is -2.25 for w = 1:

    >>> derivative = implicit_derivative(lambda v: 4 * v, gradient=np.array([3.0]), jacobian=np.array([[3.0]]))
    >>> derivative.tolist()
    [-2.25]
    """
    g, columns = as_finite(gradient, "gradient"), as_finite(jacobian, "jacobian")
    if g.ndim != 1 or columns.ndim != 2 or len(columns) != len(g):
        raise InvalidInput(
            f"`gradient` must have shape (n,) and `jacobian` (n, k); found {g.shape} and {columns.shape}. "
            "Column j of the jacobian is the gradient of term j."
        )
    operator = LinearOperator((len(g), len(g)), matvec=hessian_product, dtype=float)
    adjoint, _ = cg(operator, g, rtol=tolerance, atol=0.0, maxiter=most_products)
    residual = float(np.linalg.norm(hessian_product(adjoint) - g))
    if not residual <= 2 * tolerance * float(np.linalg.norm(g)):  # twice: rounding, since cg updates its residual
        raise SolverError(
            f"Conjugate gradients left a residual of {residual:.3g} for a gradient of length {np.linalg.norm(g):.3g} "
            f"after at most {most_products} products; a fraction of {tolerance:g} was wanted. "
            "Add an L2 term, or allow more products or a larger tolerance."
        )
    return np.asarray(-(columns.T @ adjoint))
