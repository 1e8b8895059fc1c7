"""The largest coefficients of a linear classifier, by the names of inputs and classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.types import Array


@dataclass(frozen=True)
class Coefficient:
    """What one standard deviation of an input adds to the logit of a class.

    Parameters
    ----------
    name : str
        The name of the input.
    label : str
        The class. With two classes, it is the second.
    value : float
        The coefficient.
    """

    name: str
    label: str
    value: float


def largest_coefficients(coef: Array, names: Sequence[str], classes: NDArray[Any], most: int = 10) -> list[Coefficient]:
    """Return the coefficients of largest size that are not 0, largest first.

    Parameters
    ----------
    coef : (C, E) array, or (1, E) for two classes
        The coefficients of standardised inputs.
    names : sequence of str
        The names of the E inputs.
    classes : (C,) array
        The labels.
    most : int, default 10
        The largest number to return.
    """
    labels = classes[1:] if len(coef) == 1 else classes
    order = np.argsort(-np.abs(coef), axis=None, kind="stable")[:most]
    places = zip(*np.unravel_index(order, coef.shape), strict=True)
    return [Coefficient(names[j], str(labels[i]), float(coef[i, j])) for i, j in places if coef[i, j] != 0]
