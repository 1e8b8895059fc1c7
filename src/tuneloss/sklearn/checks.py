"""What the estimator must be given, refused in words."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.sklearn.softmax import NAMES


def check_options(model: Any) -> None:
    """Raise unless the constructor's parameters are as documented."""
    terms, known = model.terms, set(NAMES[:-1])
    listed = isinstance(terms, (list, tuple)) and all(isinstance(term, str) for term in terms)
    if not listed or not {"l2"} <= set(terms) <= known or len(set(terms)) != len(terms):
        raise InvalidInput(f'`terms` must be some of {list(NAMES[:-1])}, each once, "l2" among them; found {terms!r}.')
    if model.strategy not in ("runs", "online"):
        raise InvalidInput(f'`strategy` must be "runs" or "online"; found {model.strategy!r}.')
    part = model.validation_fraction
    if part is not None and (not isinstance(part, Real) or not 0 < float(part) < 1):
        raise InvalidInput(f"`validation_fraction` must be None or between 0 and 1; found {part!r}.")
    if part is not None and model.cv is not None:
        raise InvalidInput("`validation_fraction` and `cv` are two ways to split; found both. Give one of them.")
    if isinstance(model.cv, Integral) and (isinstance(model.cv, bool) or model.cv < 2):
        raise InvalidInput(f"`cv` must be at least 2 folds, a splitter or a list of splits; found {model.cv!r}.")
    if not isinstance(model.tol, Real) or not float(model.tol) > 0:
        raise InvalidInput(f"`tol` must be a number > 0; found {model.tol!r}.")
    for name, least in (("max_runs", 3), ("max_iter", 1)):
        value = getattr(model, name)
        if not isinstance(value, Integral) or value < least:
            raise InvalidInput(f"`{name}` must be a whole number, at least {least}; found {value!r}.")


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
            "shuffle, or take a larger fraction."
        )
