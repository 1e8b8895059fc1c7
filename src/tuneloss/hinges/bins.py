"""Bins between and at knots, and the values, gradients and Gram matrices of the hinges at these knots.

Knots ``a_0 < ... < a_(p-1)`` cut the line into ``2p + 1`` bins. Bin ``2j`` lies strictly between knots ``j - 1`` and
``j``; bin ``2j + 1`` is knot ``j`` itself. There are ``2p`` hinges, in this order everywhere::

    right_j(x) = max(x - a_j, 0)      j = 0 ... p - 1
    left_j(x)  = max(a_j - x, 0)      j = 0 ... p - 1

Each hinge is linear in each bin. So values, gradients and Gram matrices of hinges are computed from counts and sums per
bin, and the n x 2p Jacobian of n numbers is never formed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuneloss.types import Array

Bins = NDArray[np.intp]


def hinge_names(p: int) -> list[str]:
    """Return the names of the weights of the hinges at p knots, in their order.

    Examples
    --------
    >>> hinge_names(2)
    ['right0', 'right1', 'left0', 'left1']
    """
    return [f"{side}{j}" for side in ("right", "left") for j in range(p)]


def bins_of(x: Array, knots: Array) -> Bins:
    """Find the bin, 0 to 2p, of each entry of an array.

    Parameters
    ----------
    x : array
        Numbers, of any shape.
    knots : (p,) array
        Increasing positions.

    Returns
    -------
    (n,) array of integers

    Examples
    --------
    >>> bins_of(np.array([-1.0, 0.0, 0.5, 1.0, 2.0]), np.array([0.0, 1.0])).tolist()
    [0, 1, 2, 3, 4]
    """
    flat = x.ravel()
    below, up_to = (np.searchsorted(knots, flat, side=side) for side in ("left", "right"))
    return np.asarray(below + up_to, dtype=np.intp)


def bin_sums(bins: Bins, values: Array, p: int) -> Array:
    """Sum values (any shape, n entries) by their bins (n,); returns (2p + 1,).

    Examples
    --------
    >>> bin_sums(np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]), p=1).tolist()
    [4.0, 0.0, 2.0]
    """
    return np.asarray(np.bincount(bins, weights=values.ravel(), minlength=2 * p + 1), dtype=np.float64)


def hinge_matrix(p: int) -> Array:
    """Return the gradient of each hinge in each bin, (2p, 2p + 1). At its knot, a hinge has gradient 0.

    Examples
    --------
    >>> hinge_matrix(1)
    array([[ 0.,  0.,  1.],
           [-1.,  0.,  0.]])
    """
    knot, b = 2 * np.arange(p)[:, None] + 1, np.arange(2 * p + 1)
    return np.vstack([(b > knot).astype(int), -(b < knot).astype(int)]).astype(np.float64)


def hinge_values(counts: Array, sums: Array, knots: Array) -> Array:
    """Sum each hinge over many numbers.

    Parameters
    ----------
    counts, sums : (2p + 1,) array
        How many of the numbers are in each bin, and the sum of these numbers.
    knots : (p,) array
        Increasing positions.

    Returns
    -------
    (2p,) array

    Examples
    --------
    >>> hinge_values(np.array([1, 0, 1]), np.array([-1.0, 0.0, 3.0]), np.array([0.0])).tolist()
    [3.0, 1.0]
    """
    slopes = hinge_matrix(len(knots))
    return np.asarray(slopes @ sums - (slopes @ counts) * np.tile(knots, 2))


def hinge_gram(mass: Array) -> Array:
    """Return inner products (2p, 2p) of the gradients of the hinges.

    Parameters
    ----------
    mass : (2p + 1,) array
        The number of entries in each bin. In a diagonal metric, it is the sum of the metric over each bin.
    """
    slopes = hinge_matrix(len(mass) // 2)
    return np.asarray((slopes * mass) @ slopes.T)


def hinge_products(sums: Array) -> Array:
    """Return inner products (2p,) or (2p, d) of the gradients of the hinges with d columns.

    Parameters
    ----------
    sums : (2p + 1,) or (2p + 1, d) array
        The sum of each column over each bin.
    """
    return np.asarray(hinge_matrix(len(sums) // 2) @ sums)


def values_at(x: Array, knots: Array) -> Array:
    """Sum each hinge over the entries of an array; returns (2p,)."""
    bins = bins_of(x, knots)
    counts = np.bincount(bins, minlength=2 * len(knots) + 1)
    return hinge_values(counts.astype(np.float64), bin_sums(bins, x, len(knots)), knots)


def gram_with(columns: Array, x: Array, knots: Array, metric: Array) -> Array:
    """Return the inner products of the gradients of the hinges and of further columns, in a diagonal metric.

    Parameters
    ----------
    columns : (d, ...) array
        Gradients of d other terms, each of the shape of `x`.
    x : array
        The numbers at which the hinges are evaluated.
    knots : (p,) array
        Increasing positions.
    metric : array
        The diagonal of the metric, of the shape of `x`.

    Returns
    -------
    (2p + d, 2p + d) array
        Hinges come first.
    """
    p, bins = len(knots), bins_of(x, knots)
    rows = columns.reshape(len(columns), -1)
    cross = np.stack([hinge_products(bin_sums(bins, metric * column, p)) for column in columns], axis=1)
    return np.block([[hinge_gram(bin_sums(bins, metric, p)), cross], [cross.T, (rows * metric.ravel()) @ rows.T]])
