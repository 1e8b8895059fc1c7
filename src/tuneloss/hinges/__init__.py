"""Convex piecewise-linear functions as weighted sums of hinges, in NumPy. This room is private.

Whatever has the size of the knots is computed here for every framework. What has the size of a model's parameters is
computed here for NumPy arrays, and in `tuneloss.torch.terms.hinges` for tensors.

bins.py      bins between and at knots; values and Gram matrices of hinges; the names of their weights
function.py  PiecewiseLinear: slopes, intercepts, values, curve, proximal step
knots.py     where to put knots
lookup.py    the bin of each of many numbers, compiled; the only file that needs numba, so import it only where used
"""

from tuneloss.hinges.bins import (
    bin_sums,
    bins_of,
    gram_with,
    hinge_gram,
    hinge_matrix,
    hinge_names,
    hinge_products,
    hinge_values,
    values_at,
)
from tuneloss.hinges.function import PiecewiseLinear
from tuneloss.hinges.knots import increasing_knots, inner_quantiles, quantile_ranks

__all__ = [
    "PiecewiseLinear",
    "bin_sums",
    "bins_of",
    "gram_with",
    "hinge_gram",
    "hinge_matrix",
    "hinge_names",
    "hinge_products",
    "hinge_values",
    "increasing_knots",
    "inner_quantiles",
    "quantile_ranks",
    "values_at",
]
