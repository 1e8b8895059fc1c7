"""Small labelled data sets, split into training, validation and test examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuneloss.core.checks import Array
from tuneloss.errors import InvalidInput

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled examples in three parts: to train on, to validate on, to test on.

    `*_x` are inputs, (examples, D); `*_y` are labels, (examples,), whole numbers below `n_classes`.
    """

    name: str
    n_classes: int
    train_x: Array
    train_y: Labels
    validation_x: Array
    validation_y: Labels
    test_x: Array
    test_y: Labels

    @property
    def params_shape(self) -> tuple[int, int]:
        """Shape of a softmax regression's params on these inputs: (D + 1, C), the last row the bias."""
        return self.train_x.shape[1] + 1, self.n_classes


def digits(seed: int | np.random.Generator, *, n_train: int = 100, pixel_unit: float = 2.0) -> Split:
    """Draw a fresh split of scikit-learn's 1797 handwritten digits (8 x 8 pixels, 10 classes).

    `n_train` examples are for training, so few that regularization matters; the rest is halved into
    validation and test. Pixels, 0 to 16, are centred by their training mean and divided by `pixel_unit`. At 2
    regularization matters, the best weights lie inside the ranges of appendix B, and AdaGrad nearly converges.

    >>> split = digits(0)
    >>> split.train_x.shape, split.validation_x.shape, split.test_x.shape
    ((100, 64), (848, 64), (849, 64))
    """
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    if not 1 <= n_train <= len(labels) - 2:
        raise InvalidInput(
            f"`n_train` must be between 1 and {len(labels) - 2}, to leave examples for validation and test; "
            f"found {n_train}. Take e.g. n_train=100."
        )
    if not pixel_unit > 0:
        raise InvalidInput(f"`pixel_unit` must be above 0; found {pixel_unit}.")
    order = np.random.default_rng(seed).permutation(len(labels))
    middle = n_train + (len(labels) - n_train) // 2
    train, validation, test = np.split(order, [n_train, middle])
    x = (inputs - inputs[train].mean(axis=0)) / pixel_unit
    y = labels.astype(np.int64)
    return Split("digits", 10, x[train], y[train], x[validation], y[validation], x[test], y[test])
