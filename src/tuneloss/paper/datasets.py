"""Labelled data sets, split into training, validation and test examples: features files, and embedded digits.

A features file is an .npz with `features` (N, D), `labels` (N,) and `split` (N,): 0 for training, 1 for validation, 2
for test. docs/reproduction.md says how to make one.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.npz import read_arrays
from tuneloss.types import Array

Labels = NDArray[np.int64]
DIGITS = "digits"  # the embedded set
FIXED_TRAINING = ("caltech101", "oxford_iiit_pet")  # published with their own training set: app. B keeps it


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


@dataclass(frozen=True, eq=False)
class Features:
    """A features file: features (N, D), labels (N,) and the part of each example (N,), 0 to 2."""

    name: str
    x: Array
    y: Labels
    part: Labels

    def split(self, seed: int | np.random.Generator | None = None) -> Split:
        """The file's own split, or a fresh one of the same sizes.

        A fresh one shuffles all examples; of the sets that were published with a training set (app. B: caltech101,
        oxford_iiit_pet) it keeps that, and shuffles the others.
        """
        part = self.part
        if seed is not None:
            moved = np.flatnonzero(part > 0) if self.name in FIXED_TRAINING else np.arange(len(part))
            part = part.copy()
            part[moved] = np.random.default_rng(seed).permutation(part[moved])
        parts = [(self.x[part == p].astype(float), self.y[part == p]) for p in range(3)]
        return Split(self.name, int(self.y.max()) + 1, *(array for pair in parts for array in pair))


def load_features(path: str | os.PathLike[str]) -> Features:
    """Read a features file and check it."""
    path = Path(path)
    names = ("features", "labels", "split")
    if not path.exists():
        raise InvalidInput(f"There must be a features file at {path}; found none. Set TUNELOSS_DATA.")
    arrays = read_arrays(path, "an .npz file of plain arrays", math.inf)
    if missing := [name for name in names if name not in arrays]:
        raise InvalidInput(f"A features file must hold {', '.join(names)}; {path} lacks {', '.join(missing)}.")
    x, y, part = (arrays[name] for name in names)
    if x.ndim != 2 or y.shape != part.shape or y.shape != x.shape[:1] or len(y) == 0:
        raise InvalidInput(
            f"{path} must hold features (N, D), labels (N,) and split (N,), N > 0; found shapes {x.shape}, {y.shape} "
            f"and {part.shape}."
        )
    if x.dtype.kind != "f" or y.dtype.kind not in "iu" or part.dtype.kind not in "iu":
        found = ", ".join(str(array.dtype) for array in (x, y, part))
        raise InvalidInput(f"{path} must hold float features and integer labels and split; found {found}.")
    if not np.isfinite(x).all():
        raise InvalidInput(f"{path} must hold finite features; found {int((~np.isfinite(x)).sum())} that are not.")
    if y.min() < 0 or len(np.unique(y)) < 2:
        raise InvalidInput(f"{path} must hold at least 2 classes, labels from 0 up; found {np.unique(y)[:5].tolist()}.")
    if set(np.unique(part)) != {0, 1, 2}:
        raise InvalidInput(
            f"{path} must have examples in each of training (0), validation (1) and test (2); found "
            f"{np.unique(part).tolist()}."
        )
    return Features(path.stem, x.astype(np.float32), y.astype(np.int64), part.astype(np.int64))


def fresh_split(name: str, seed: int | np.random.Generator, folder: str | os.PathLike[str] | None = None) -> Split:
    """A fresh split of the embedded digits, or of the features file `name`.npz in a folder (default: TUNELOSS_DATA)."""
    if name == DIGITS:
        return digits(seed)
    folder = folder or os.environ.get("TUNELOSS_DATA")
    if not folder:
        raise InvalidInput(
            f"`{name}` needs a folder of features files: set TUNELOSS_DATA, or give one. "
            f"`{DIGITS}` is embedded and needs none."
        )
    return _kept_features(Path(folder) / f"{name}.npz").split(seed)


@lru_cache(maxsize=1)
def _kept_features(path: Path) -> Features:
    return load_features(path)
