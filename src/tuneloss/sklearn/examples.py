"""The examples that a fit is given: read and checked, those of weight 0 left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tuneloss.core.checks import as_numbers
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.softmax import Inputs
from tuneloss.types import Array


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs x (N, D), labels (N,) and sample weights (N,) > 0.

    kept: (N,), which of the examples given these are.
    n_train: how many of them train, those that validate coming last; None if no examples to validate were given.
    """

    x: Inputs
    labels: NDArray[Any]
    weight: Array
    kept: NDArray[np.intp]
    n_train: int | None


def read_examples(
    model: Any, x: Any, y: Any, sample_weight: ArrayLike | None, x_val: Any, y_val: Any, weight_val: ArrayLike | None
) -> Examples:
    """All examples together, as scikit-learn reads them; the model takes note of the inputs' names."""
    options = {"accept_sparse": "csr", "dtype": np.float64, "accept_large_sparse": False}
    found, labels = validate_data(model, x, y, **options)
    check_classification_targets(labels)
    weight = as_weights(sample_weight, len(labels), "sample_weight")
    check_validation(x_val, y_val, weight_val)
    n_train = len(labels)
    if x_val is not None:
        more, more_labels = validate_data(model, x_val, y_val, reset=False, **options)
        weight = np.append(weight, as_weights(weight_val, len(more_labels), "sample_weight_val"))
        found, labels = stacked(found, more), joined_labels(labels, more_labels)
    kept = np.flatnonzero(weight > 0)
    if len(kept) < len(weight):
        found, labels, weight, n_train = found[kept], labels[kept], weight[kept], int((kept < n_train).sum())
    if sparse.issparse(found) and not found.has_canonical_format:
        found = found.copy()
        found.sum_duplicates()
    return Examples(found, labels, weight, kept, None if x_val is None else n_train)


def as_weights(sample_weight: ArrayLike | None, n: int, what: str) -> Array:
    """Sample weights (n,), finite and >= 0; ones if there are none."""
    if sample_weight is None:
        return np.ones(n)
    weight = as_numbers(sample_weight, what)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise InvalidInput(f"`{what}` must be {n} finite numbers >= 0, one an example; found shape {weight.shape}.")
    if not weight.any():
        raise InvalidInput(f"`{what}` must not be zero for all examples: such a weight leaves none.")
    return weight


def check_validation(x: Any, y: Any, sample_weight: Any) -> None:
    """Raise unless validation examples are given whole, or not at all."""
    if (x is None) != (y is None):
        raise InvalidInput("`X_val` and `y_val` go together; found only one of them. Give both.")
    if x is None and sample_weight is not None:
        raise InvalidInput("`sample_weight_val` is for `X_val` and `y_val`; found it without them.")


def joined_labels(y: NDArray[Any], y_val: NDArray[Any]) -> NDArray[Any]:
    """Labels of training and validation examples, which must be of one kind."""
    if (y.dtype.kind in "OUS") != (y_val.dtype.kind in "OUS"):
        raise InvalidInput(f"`y_val` must hold labels like those of `y`; found {y_val.dtype} and {y.dtype}.")
    unknown = np.setdiff1d(y_val, y)
    if len(unknown):
        raise InvalidInput(f"`y_val` must hold classes that `y` has too; found {unknown[:5].tolist()}.")
    return np.concatenate([y, y_val])


def stacked(x: Inputs, more: Inputs) -> Inputs:
    """Examples of two matrices, one below the other."""
    if sparse.issparse(x) or sparse.issparse(more):
        return sparse.vstack([sparse.csr_array(x), sparse.csr_array(more)], format="csr")
    return np.vstack([x, more])
