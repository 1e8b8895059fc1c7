"""Labelled data sets, split into training, validation and test examples: features files, and the embedded digits.

A features file is an .npz file with `features` (N, D), `labels` (N,) and `split` (N,), which is 0 for training, 1 for
validation and 2 for test. docs/reproduction_record.md says how to make one.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.errors import InvalidInput
from tuneloss.npz import read_arrays
from tuneloss.types import Array

Labels = NDArray[np.int64]
DIGITS = "digits"  # name of the embedded data set
SMALL, LARGE = ("tf_flowers", "nct_crc_he_3class"), ("oxford_iiit_pet", "caltech101")  # the paper's four
FIXED_TRAINING = ("caltech101", "oxford_iiit_pet")  # they were published with a training set, which app. B keeps


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled examples in three parts: training, validation and test.

    Parameters
    ----------
    name : str
        Name of the data set.
    n_classes : int
        Number of classes.
    train_x, validation_x, test_x : (examples, D) array
        Inputs.
    train_y, validation_y, test_y : (examples,) array of int
        Labels, from 0 to n_classes - 1.
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
        """Shape of the params of softmax regression on these inputs: (D + 1, C), with the bias in the last row."""
        return self.train_x.shape[1] + 1, self.n_classes


def digits(seed: int | np.random.Generator, *, n_train: int = 100, pixel_unit: float = 2.0) -> Split:
    """Draw a fresh split of scikit-learn's 1797 handwritten digits (8 x 8 pixels, 10 classes).

    The examples that are not for training are halved into validation and test.

    Parameters
    ----------
    seed : int or numpy.random.Generator
        Decides which examples are in which part.
    n_train : int, default 100
        Number of training examples. The default is so small that regularization matters.
    pixel_unit : float, default 2.0
        Pixels, from 0 to 16, are centred by their training mean and divided by this. At 2, regularization matters, the
        best weights lie inside the ranges of appendix B, and AdaGrad nearly converges.

    Returns
    -------
    Split

    Raises
    ------
    InvalidInput
        If no examples are left for a part, or if `pixel_unit` is not above 0.

    Examples
    --------
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
    """The contents of a features file.

    Parameters
    ----------
    name : str
        Name of the file, without its suffix.
    x : (N, D) array
        Features.
    y : (N,) array of int
        Labels.
    part : (N,) array of int
        0 for training, 1 for validation, 2 for test.
    """

    name: str
    x: Array
    y: Labels
    part: Labels

    def split(self, seed: int | np.random.Generator | None = None) -> Split:
        """Return the split of the file or, if there is a seed, a fresh split of the same sizes.

        A fresh split shuffles all examples. If the data set was published with a training set (caltech101 and
        oxford_iiit_pet, see app. B), the training set is kept and only the other examples are shuffled.

        Parameters
        ----------
        seed : int or numpy.random.Generator, optional
            Decides the fresh split.
        """
        part = self.part
        if seed is not None:
            moved = np.flatnonzero(part > 0) if self.name in FIXED_TRAINING else np.arange(len(part))
            part = part.copy()
            part[moved] = np.random.default_rng(seed).permutation(part[moved])
        parts = [(self.x[part == p].astype(float), self.y[part == p]) for p in range(3)]
        return Split(self.name, int(self.y.max()) + 1, *(array for pair in parts for array in pair))


def load_features(path: str | os.PathLike[str]) -> Features:
    """Read a features file.

    Parameters
    ----------
    path : path
        The file.

    Raises
    ------
    InvalidInput
        If the file does not exist, or does not hold what a features file must hold.
    """
    path = Path(path)
    names = ("features", "labels", "split")
    if not path.exists():
        raise InvalidInput(f"There must be a features file at {path}; found none. Set TUNELOSS_DATA.")
    arrays = read_arrays(path, "an .npz file of plain arrays", math.inf)
    if missing := [name for name in names if name not in arrays]:
        raise InvalidInput(f"A features file must hold {', '.join(names)}; {path} lacks {', '.join(missing)}.")
    x, y, part = (arrays[name] for name in names)
    _check_arrays(path, x, y, part)
    return Features(path.stem, x.astype(np.float32), y.astype(np.int64), part.astype(np.int64))


def _check_arrays(path: Path, x: NDArray[Any], y: NDArray[Any], part: NDArray[Any]) -> None:
    """Raise unless the arrays have fitting shapes, types and values."""
    if x.ndim != 2 or y.shape != part.shape or y.shape != x.shape[:1] or len(y) == 0:
        raise InvalidInput(
            f"{path} must hold features (N, D), labels (N,) and split (N,), N > 0; found shapes {x.shape}, {y.shape} "
            f"and {part.shape}."
        )
    if x.dtype.kind != "f" or y.dtype.kind not in "iu" or part.dtype.kind not in "iu":
        dtypes = ", ".join(str(array.dtype) for array in (x, y, part))
        raise InvalidInput(f"{path} must hold float features and integer labels and split; found {dtypes}.")
    if not np.isfinite(x).all():
        raise InvalidInput(f"{path} must hold finite features; found {int((~np.isfinite(x)).sum())} that are not.")
    if y.min() < 0 or len(np.unique(y)) < 2:
        raise InvalidInput(f"{path} must hold at least 2 classes, labels from 0 up; found {np.unique(y)[:5].tolist()}.")
    if set(np.unique(part)) != {0, 1, 2}:
        raise InvalidInput(
            f"{path} must have examples in each of training (0), validation (1) and test (2); found "
            f"{np.unique(part).tolist()}."
        )


def fresh_split(name: str, seed: int | np.random.Generator, folder: str | os.PathLike[str] | None = None) -> Split:
    """Draw a fresh split of a data set.

    Parameters
    ----------
    name : str
        "digits", or the name of a features file without its suffix.
    seed : int or numpy.random.Generator
        Decides the split.
    folder : path, optional
        Folder of features files; by default the environment variable TUNELOSS_DATA.

    Raises
    ------
    InvalidInput
        If there is no folder, or no such file in it.
    """
    if name == DIGITS:
        return digits(seed)
    folder = folder or os.environ.get("TUNELOSS_DATA")
    if not folder:
        raise InvalidInput(
            f"`{name}` needs a folder of features files: set TUNELOSS_DATA, or name a folder. "
            f"`{DIGITS}` is embedded and needs none."
        )
    return _kept_features(Path(folder) / f"{name}.npz").split(seed)


@lru_cache(maxsize=1)
def _kept_features(path: Path) -> Features:
    """Read a features file, and keep the last one in memory."""
    return load_features(path)
