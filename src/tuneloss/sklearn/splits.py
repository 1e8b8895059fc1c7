"""Which examples train and which validate.

Splits depend on inputs only, so a weight of 2 has the same effect as an example that appears twice.

Examples with equal inputs fall on the same side, whatever their order, so that none is used both to train and to
validate. There is one exception: inputs that many examples share, as in tables with few different rows, are spread over
all folds. Each of these examples then counts in every fold, with a part of its weight.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from tuneloss.errors import InvalidInput
from tuneloss.sklearn.examples import Examples
from tuneloss.sklearn.softmax import Inputs, Labels
from tuneloss.types import Array

# How examples are split if the user does not say.
DEFAULT_FOLDS = 5  # a fifth of the examples validates in each fold
MIN_ONE_FOLD = 500  # validation examples with which one fold can be enough; with fewer, all folds are used
MIN_PER_CLASS = 20  # validation examples per class, over the folds that are used
KEY_BLOCK = 2**18  # inputs per block of work
SPREAD_SHARE = 0.5  # equal inputs of more than this share of the smallest fold's weight are spread over all folds

Split = tuple[Array, Array]  # sample weights (N,) of training and of validation


def make_splits(
    examples: Examples, codes: Labels, y: Any, *, validation_fraction: float | None, cv: Any, random_state: Any
) -> list[Split]:
    """Return the splits that the parameters of the estimator ask for.

    Parameters
    ----------
    examples : Examples
        All examples of positive weight. If the user gave validation examples, these make the only split.
    codes : (N,) array of int
        Their labels, numbered from 0.
    y : array-like
        All labels, as the user gave them, for a splitter.
    validation_fraction, cv, random_state
        As in `TunedLogisticRegression`.
    """
    x, weight = examples.x, examples.weight
    if examples.n_train is not None:
        trains = np.arange(len(weight)) < examples.n_train
        return [(weight * trains, weight * ~trains)]
    seed = int(check_random_state(random_state).randint(2**31))
    if validation_fraction is not None:
        return one_split(x, codes, weight, float(validation_fraction), seed)
    if cv is None:
        return _default_splits(x, codes, weight, seed)
    if isinstance(cv, (int, np.integer)):
        return k_splits(x, codes, weight, int(cv), seed)
    return _foreign_splits(examples, y, cv)


def _default_splits(x: Inputs, codes: Labels, weight: Array, seed: int) -> list[Split]:
    """Return one split if it has enough validation examples; otherwise some or all of DEFAULT_FOLDS folds."""
    fold_weight = weight.sum() / DEFAULT_FOLDS
    n_classes = int(codes.max()) + 1
    n_used = math.ceil(MIN_PER_CLASS * n_classes / fold_weight) if fold_weight >= MIN_ONE_FOLD else DEFAULT_FOLDS
    if n_used == 1:
        return one_split(x, codes, weight, 1 / DEFAULT_FOLDS, seed)
    return k_splits(x, codes, weight, DEFAULT_FOLDS, seed)[:n_used]


def _foreign_splits(examples: Examples, y: Any, cv: Any) -> list[Split]:
    """Return the splits of a scikit-learn splitter or of a list of indices."""
    n, splits = len(np.asarray(y)), []
    for parts in check_cv(cv, y, classifier=True).split(np.zeros((n, 1)), y):
        train, held = (np.bincount(np.arange(n)[part], minlength=n)[examples.kept] for part in parts)
        splits.append((examples.weight * train, examples.weight * held))
    return splits


def check_split(classes: NDArray[Any], train: Labels, n_held: int) -> None:
    """Raise unless there are examples of each class to train on, and some to validate with."""
    missing = np.setdiff1d(np.arange(len(classes)), train)
    if len(missing) or not n_held:
        what = f"of class {classes[missing[0]]!s} to train on" if len(missing) else "to validate with"
        raise InvalidInput(
            f"Each split must have examples {what}, of positive weight; found one without. Use a stratified splitter, "
            "shuffle, or take a larger fraction."
        )


def one_split(x: Inputs, y: Labels, sample_weight: Array, fraction: float, seed: int) -> list[Split]:
    """Return one split, with about this fraction of each class for validation."""
    parts = fold_parts(x, y, sample_weight, np.array([1 - fraction, fraction]), seed)
    return [(sample_weight * parts[0], sample_weight * parts[1])]


def k_splits(x: Inputs, y: Labels, sample_weight: Array, n_folds: int, seed: int) -> list[Split]:
    """Return one split per fold, except for folds that would be empty or leave no example of a class to train on."""
    parts = fold_parts(x, y, sample_weight, np.full(n_folds, 1 / n_folds), seed)
    n_classes = len(np.unique(y))
    return [
        (sample_weight * (1 - part), sample_weight * part)
        for part in parts
        if part.any() and len(np.unique(y[part < 1])) == n_classes
    ]


def fold_parts(x: Inputs, y: Labels, sample_weight: Array, shares: Array, seed: int) -> Array:
    """Return the fraction of each example that belongs to each fold.

    Groups of equal inputs are ordered, class by class, by seed and inputs. (The class of a group is the label with most
    of its weight.) Along this order the cumulated weight runs from 0 to 1, and a group goes to the fold in whose part
    of [0, 1) its middle falls. The first group of each class goes to fold 0.

    Parameters
    ----------
    x, y, sample_weight : (N, D) array or sparse matrix, (N,) array of int, (N,) array > 0
        Inputs, labels and weights.
    shares : (n_folds,) array
        The fraction of all examples for each fold. The sum is 1.
    seed : int
        Decides the order.

    Returns
    -------
    (n_folds, N) array
        Its columns have the sum 1.
    """
    _, group = np.unique(_keys(x, len(y), seed), return_inverse=True)
    weight = np.bincount(group, weights=sample_weight)
    label = _main_labels(group, y, sample_weight)
    spread = weight > SPREAD_SHARE * shares.min() * weight.sum()
    parts = np.zeros((len(shares), len(weight)))
    parts[:, spread] = shares[:, None]
    ends = np.cumsum(shares)[:-1]
    for code in np.unique(label):
        members = np.flatnonzero((label == code) & ~spread)
        if not members.size:
            continue
        middle = (np.cumsum(weight[members]) - weight[members] / 2) / weight[members].sum()
        fold = np.searchsorted(ends, middle, side="right")
        fold[0] = 0
        parts[fold, members] = 1.0
    return parts[:, group]


def _main_labels(group: NDArray[np.intp], y: Labels, sample_weight: Array) -> NDArray[np.intp]:
    """Return the label of largest weight in each group; of equal ones the lowest."""
    n = int(y.max()) + 1
    pairs, index = np.unique(group * n + y, return_inverse=True)
    weight = np.bincount(index, weights=sample_weight)
    order = np.lexsort((pairs % n, -weight, pairs // n))
    first = np.flatnonzero(np.diff(pairs[order] // n, prepend=-1))
    return np.asarray(pairs[order][first] % n, dtype=np.intp)


def _keys(x: Inputs, n: int, seed: int) -> NDArray[np.uint64]:
    """Return one number per example, which depends only on seed and inputs, be they dense or sparse.

    The bits of each input are mixed and multiplied by an odd number of its column; products add up modulo 2^64. An
    input of 0 adds nothing.
    """
    odd = np.random.default_rng(seed).integers(2**64, size=x.shape[1], dtype=np.uint64) | np.uint64(1)
    if sparse.issparse(x):
        rows = np.repeat(np.arange(n), np.diff(x.indptr))
        keys = np.zeros(n, dtype=np.uint64)
        np.add.at(keys, rows, _mix(x.data, odd[x.indices]))
        return keys
    step = max(1, KEY_BLOCK // max(1, x.shape[1]))
    parts = [_mix(x[i : i + step], odd).sum(axis=1, dtype=np.uint64) for i in range(0, n, step)]
    return np.concatenate(parts)


def _mix(values: Array, odd: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of numbers, so that numbers with few different bits differ in most bits; 0 and -0 become 0."""
    bits = (values + 0.0).view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(32))) * odd
    return np.asarray((bits ^ (bits >> np.uint64(29))) * odd)
