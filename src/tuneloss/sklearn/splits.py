"""Which examples validate: chosen by their inputs, so that an example of weight 2 is the same as that example twice.

Examples with equal inputs fall on the same side, whatever their order: none is both trained on and validated with. But
inputs that many examples share, as of tables with few different rows, are spread over all folds: there each example
counts in every fold, with a part of its weight.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tuneloss.sklearn.softmax import Inputs, Labels
from tuneloss.types import Array

COMMON = 0.5  # of the smallest fold: inputs that have more of the weight are spread over all folds
Split = tuple[Array, Array]  # sample weights (N,) of training and of validation


def fold_parts(x: Inputs, y: Labels, sample_weight: Array, shares: Array, seed: int) -> Array:
    """Which part of each example is in each fold: (n_folds, N), columns with sum 1.

    Groups of equal inputs are taken class by class (by the label with most of a group's weight), in an order that seed
    and inputs decide; the one whose place in the order, by cumulated weight, is in fold f's part of [0, 1) goes there.
    The first of each class goes to fold 0.

    shares: (n_folds,), sum 1. sample_weight: (N,) > 0.
    """
    _, group = np.unique(_keys(x, len(y), seed), return_inverse=True)
    weight = np.bincount(group, weights=sample_weight)
    label = _main_labels(group, y, sample_weight)
    spread = weight > COMMON * shares.min() * weight.sum()
    parts = np.zeros((len(shares), len(weight)))
    parts[:, spread] = shares[:, None]
    ends = np.cumsum(shares)[:-1]
    for one in np.unique(label):
        own = np.flatnonzero((label == one) & ~spread)
        if not own.size:
            continue
        middle = (np.cumsum(weight[own]) - weight[own] / 2) / weight[own].sum()
        fold = np.searchsorted(ends, middle, side="right")
        fold[0] = 0
        parts[fold, own] = 1.0
    return parts[:, group]


def one_split(x: Inputs, y: Labels, sample_weight: Array, fraction: float, seed: int) -> list[Split]:
    """One split, with about this fraction of each class for validation."""
    parts = fold_parts(x, y, sample_weight, np.array([1 - fraction, fraction]), seed)
    return [(sample_weight * parts[0], sample_weight * parts[1])]


def k_splits(x: Inputs, y: Labels, sample_weight: Array, n_folds: int, seed: int) -> list[Split]:
    """One split for each of `n_folds` folds, but for those that would be empty, or leave no example of a class."""
    parts = fold_parts(x, y, sample_weight, np.full(n_folds, 1 / n_folds), seed)
    n_classes = len(np.unique(y))
    return [
        (sample_weight * (1 - own), sample_weight * own)
        for own in parts
        if own.any() and len(np.unique(y[own < 1])) == n_classes
    ]


def _main_labels(group: NDArray[np.intp], y: Labels, sample_weight: Array) -> NDArray[np.intp]:
    """For each group the label with most weight, the lowest of equals."""
    n = int(y.max()) + 1
    pairs, at = np.unique(group * n + y, return_inverse=True)
    weight = np.bincount(at, weights=sample_weight)
    order = np.lexsort((pairs % n, -weight, pairs // n))
    first = np.flatnonzero(np.diff(pairs[order] // n, prepend=-1))
    return np.asarray(pairs[order][first] % n, dtype=np.intp)


def _keys(x: Inputs, n: int, seed: int) -> NDArray[np.uint64]:
    """A number for each example that depends on its inputs and the seed only; the same for dense and sparse ones."""
    key = int(seed).to_bytes(8, "little")
    found = np.empty(n, dtype=np.uint64)
    for i in range(n):
        if sparse.issparse(x):
            at = slice(x.indptr[i], x.indptr[i + 1])
            columns, values = x.indices[at], x.data[at]
            kept = values != 0
            columns, values = columns[kept], values[kept]
        else:
            columns = np.flatnonzero(x[i])
            values = x[i][columns]
        content = columns.astype("<i8").tobytes() + values.astype("<f8").tobytes()
        found[i] = int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "little")
    return found
