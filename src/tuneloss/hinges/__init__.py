"""Convex piecewise-linear functions as weighted sums of hinges, in NumPy. This room is private.

Arrays with one entry per knot are computed here for every framework. Arrays with one entry per model parameter are
computed here for NumPy, and in `tuneloss.torch.terms.hinges` for tensors.

bins.py      bins between and at knots; values, Gram matrices and names of hinges
function.py  PiecewiseLinear: slopes, intercepts, values, curve, proximal step
knots.py     where to put knots
lookup.py    compiled lookup of bins; the only file that needs numba, so import it only where it is used
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
