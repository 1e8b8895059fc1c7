"""Which examples validate: chosen by their content, so that an example of weight 2 is the same as that example twice.

Examples that are equal (inputs and label) always fall on the same side, whatever their order: none of them is both
trained on and validated with.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tuneloss.core.checks import Array
from tuneloss.sklearn.softmax import Inputs, Labels

Index = NDArray[np.intp]
Split = tuple[Index, Index]  # training and validation examples


def hash_folds(x: Inputs, y: Labels, sample_weight: Array, shares: Array, seed: int) -> NDArray[np.intp]:
    """The fold (N,) of each example: class by class, in an order that `seed` and content decide, by weight.

    shares: (n_folds,), sum 1. The heaviest need not come first: the example whose place in the order, by cumulated
    weight, is in fold f's part of [0, 1) goes there. At least one group of equal examples of each class is in fold 0.
    """
    order = _keys(x, y, seed)
    fold = np.zeros(len(y), dtype=np.intp)
    ends = np.cumsum(shares)[:-1]
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        _, group = np.unique(order[own], return_inverse=True)
        weight = np.bincount(group, weights=sample_weight[own])
        middle = (np.cumsum(weight) - weight / 2) / max(weight.sum(), 1e-300)
        parts = np.searchsorted(ends, middle, side="right")
        parts[0] = 0
        fold[own] = parts[group]
    return fold


def one_split(x: Inputs, y: Labels, sample_weight: Array, fraction: float, seed: int) -> list[Split]:
    """One split, with about this fraction of each class for validation."""
    fold = hash_folds(x, y, sample_weight, np.array([1 - fraction, fraction]), seed)
    return [(np.flatnonzero(fold == 0), np.flatnonzero(fold == 1))]


def k_splits(x: Inputs, y: Labels, sample_weight: Array, n_folds: int, seed: int) -> list[Split]:
    """One split for each of `n_folds` folds, but for those that would be empty, or leave no example of a class."""
    fold = hash_folds(x, y, sample_weight, np.full(n_folds, 1 / n_folds), seed)
    splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]
    n_classes = len(np.unique(y))
    return [(train, held) for train, held in splits if len(held) and len(np.unique(y[train])) == n_classes]


def _keys(x: Inputs, y: Labels, seed: int) -> NDArray[np.uint64]:
    """A number for each example that depends on its content and the seed only; the same for dense and sparse inputs."""
    key = int(seed).to_bytes(8, "little")
    found = np.empty(len(y), dtype=np.uint64)
    for i in range(len(y)):
        if sparse.issparse(x):
            at = slice(x.indptr[i], x.indptr[i + 1])
            columns, values = x.indices[at], x.data[at]
            kept = values != 0
            columns, values = columns[kept], values[kept]
        else:
            columns = np.flatnonzero(x[i])
            values = x[i][columns]
        content = columns.astype("<i8").tobytes() + values.astype("<f8").tobytes() + int(y[i]).to_bytes(8, "little")
        found[i] = int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "little")
    return found
