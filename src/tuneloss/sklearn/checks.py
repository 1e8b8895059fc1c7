"""What the estimator must be given, refused in words."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tuneloss.core.checks import Array, as_numbers
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.softmax import NAMES, Inputs


def check_options(model: Any) -> None:
    """Raise unless the constructor's parameters are as documented."""
    terms, known = model.terms, set(NAMES[:-1])
    listed = isinstance(terms, (list, tuple)) and all(isinstance(term, str) for term in terms)
    if not listed or not {"l2"} <= set(terms) <= known or len(set(terms)) != len(terms):
        raise InvalidInput(f'`terms` must be some of {list(NAMES[:-1])}, each once, "l2" among them; found {terms!r}.')
    if model.strategy not in ("runs", "online"):
        raise InvalidInput(f'`strategy` must be "runs" or "online"; found {model.strategy!r}.')
    if not isinstance(model.validation_fraction, Real) or not 0 < float(model.validation_fraction) < 1:
        raise InvalidInput(f"`validation_fraction` must be between 0 and 1; found {model.validation_fraction!r}.")
    if isinstance(model.cv, Integral) and (isinstance(model.cv, bool) or model.cv < 2):
        raise InvalidInput(f"`cv` must be at least 2 folds, a splitter or a list of splits; found {model.cv!r}.")
    if not isinstance(model.tol, Real) or not float(model.tol) > 0:
        raise InvalidInput(f"`tol` must be a number > 0; found {model.tol!r}.")
    for name, least in (("max_runs", 3), ("max_iter", 1)):
        value = getattr(model, name)
        if not isinstance(value, Integral) or value < least:
            raise InvalidInput(f"`{name}` must be a whole number, at least {least}; found {value!r}.")


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


def check_two_classes(model: Any, classes: NDArray[Any]) -> None:
    """Raise unless there are at least two classes among the examples of positive weight."""
    if len(classes) < 2:
        raise InvalidInput(
            f"`{type(model).__name__}` needs examples of at least 2 classes; found one class, {classes.tolist()}."
        )


def check_split(classes: NDArray[Any], train: NDArray[np.intp], n_held: int) -> None:
    """Raise unless a split has examples of each class to train on, and some to validate with."""
    missing = np.setdiff1d(np.arange(len(classes)), train)
    if len(missing) or not n_held:
        what = f"of class {classes[missing[0]]!s} to train on" if len(missing) else "to validate with"
        raise InvalidInput(
            f"Each split must have examples {what}, of positive weight; found one without. Use a stratified splitter, "
            "or shuffle."
        )


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
