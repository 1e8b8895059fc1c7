"""Read and check the examples of a fit. Examples of weight 0 are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tuneloss.checks import as_numbers
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.softmax import Inputs
from tuneloss.types import Array


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of positive weight.

    Parameters
    ----------
    x : (N, D) array or sparse matrix
        Inputs.
    labels : (N,) array
        Labels, as the user gave them.
    weight : (N,) array
        Sample weights > 0.
    kept : (N,) array of int
        The position of each example among those that the user gave.
    n_train : int, optional
        The number of examples that train; the others, at the end, validate. None if there were no validation examples.
    """

    x: Inputs
    labels: NDArray[Any]
    weight: Array
    kept: NDArray[np.intp]
    n_train: int | None


def read_examples(
    model: Any, x: Any, y: Any, sample_weight: ArrayLike | None, x_val: Any, y_val: Any, weight_val: ArrayLike | None
) -> Examples:
    """Read training and validation examples with scikit-learn's checks, which set `n_features_in_` of the model."""
    options = {"accept_sparse": "csr", "dtype": np.float64, "accept_large_sparse": False}
    inputs, labels = validate_data(model, x, y, **options)
    check_classification_targets(labels)
    weight = as_weights(sample_weight, len(labels), "sample_weight")
    if (x_val is None) != (y_val is None):
        raise InvalidInput("`X_val` and `y_val` go together; found only one of them. Give both.")
    if x_val is None and weight_val is not None:
        raise InvalidInput("`sample_weight_val` is for `X_val` and `y_val`; found it without them.")
    n_train = len(labels)
    if x_val is not None:
        inputs_val, labels_val = validate_data(model, x_val, y_val, reset=False, **options)
        weight = np.append(weight, as_weights(weight_val, len(labels_val), "sample_weight_val"))
        inputs, labels = stack_inputs(inputs, inputs_val), join_labels(labels, labels_val)
    kept = np.flatnonzero(weight > 0)
    if len(kept) < len(weight):
        inputs, labels, weight, n_train = inputs[kept], labels[kept], weight[kept], int((kept < n_train).sum())
    if sparse.issparse(inputs) and not inputs.has_canonical_format:
        inputs = inputs.copy()
        inputs.sum_duplicates()
    return Examples(inputs, labels, weight, kept, None if x_val is None else n_train)


def as_weights(sample_weight: ArrayLike | None, n: int, name: str) -> Array:
    """Return sample weights (n,), finite and >= 0; ones by default."""
    if sample_weight is None:
        return np.ones(n)
    weight = as_numbers(sample_weight, name)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise InvalidInput(f"`{name}` must be {n} finite numbers >= 0, one per example; found shape {weight.shape}.")
    if not weight.any():
        raise InvalidInput(f"`{name}` must not be zero for all examples: no example would be left.")
    return weight


def join_labels(y: NDArray[Any], y_val: NDArray[Any]) -> NDArray[Any]:
    """Join the labels of training and validation examples, which must be of one kind."""
    if (y.dtype.kind in "OUS") != (y_val.dtype.kind in "OUS"):
        raise InvalidInput(f"`y_val` must hold labels like those of `y`; found {y_val.dtype} and {y.dtype}.")
    unknown = np.setdiff1d(y_val, y)
    if len(unknown):
        raise InvalidInput(f"`y_val` must hold only classes that `y` has; found {unknown[:5].tolist()}.")
    return np.concatenate([y, y_val])


def stack_inputs(x: Inputs, more: Inputs) -> Inputs:
    """Stack the rows of two matrices; the result is sparse if one of them is."""
    if sparse.issparse(x) or sparse.issparse(more):
        return sparse.vstack([sparse.csr_array(x), sparse.csr_array(more)], format="csr")
    return np.vstack([x, more])
