"""Turn the columns of a table into inputs of a linear model: fill gaps, and give each category an input.

What is learned from the training rows is plain data (medians, categories, means and scales), so that a model file can
hold it without pickle. scikit-learn's transformers learn it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tuneloss.data import Dataset
from tuneloss.data.columns import MAX_CATEGORIES, MIN_CATEGORY_ROWS
from tuneloss.types import Array

OTHER, MISSING = "other", "missing"  # how an input is called that stands for rare categories, or for no value


@dataclass(frozen=True, eq=False)
class Preparation:
    """How columns become inputs.

    The inputs are, in this order: all columns of numbers, with gaps filled; one 0/1 input per column that had gaps in
    training, 1 where the number is missing; and one 0/1 input per category. All are standardised.

    Parameters
    ----------
    names : tuple of str
        The columns of numbers.
    fill : (D,) array
        What replaces a missing number: the median of the training rows.
    gaps : tuple of int
        The positions, in `names`, of columns that had gaps in training.
    text_names : tuple of str
        The columns of categories.
    categories : tuple of tuples of str
        The categories of each of these columns that have an input of their own; "" stands for a missing one.
    has_other : tuple of bool
        Whether a column has one more input, for rare and unknown categories. If it has none, all its inputs are 0
        for an unknown category.
    mean, scale : (E,) arrays
        What is subtracted from each input, and what it is then divided by.
    """

    names: tuple[str, ...]
    fill: Array
    gaps: tuple[int, ...]
    text_names: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    has_other: tuple[bool, ...]
    mean: Array
    scale: Array

    @classmethod
    def of_numbers(cls, names: tuple[str, ...], mean: Array, scale: Array) -> Preparation:
        """Return a preparation of numbers alone. A missing one is replaced by the mean."""
        return cls(names, mean, (), (), (), (), mean, scale)

    @property
    def width(self) -> int:
        """The number of inputs, E."""
        return len(self.names) + len(self.gaps) + sum(map(len, self.categories)) + sum(self.has_other)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs: those of columns, or "column=category"."""
        inputs = [*self.names, *(f"{self.names[j]}={MISSING}" for j in self.gaps)]
        for name, words, other in zip(self.text_names, self.categories, self.has_other, strict=True):
            inputs += [f"{name}={word or MISSING}" for word in (*words, *[OTHER] * other)]
        return inputs

    def raw_inputs(self, x: Array, text: NDArray[Any]) -> Array:
        """Return the inputs (N, E) before they are standardised, from numbers (N, D) and text."""
        is_gap = np.isnan(x)
        parts = [np.where(is_gap, self.fill, x), is_gap[:, list(self.gaps)].astype(np.float64)]
        for column, words, other in zip(text.T, self.categories, self.has_other, strict=True):
            known = np.array([column == word for word in words], dtype=np.float64).reshape(len(words), -1).T
            parts += [known, *([1 - known.sum(axis=1, keepdims=True)] if other else [])]
        return np.hstack(parts)

    def __call__(self, dataset: Dataset) -> Array:
        """Return the standardised inputs (N, E) of a data set with these columns."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((self.raw_inputs(dataset.x, dataset.texts()) - self.mean) / self.scale)


def learn_preparation(dataset: Dataset, rows: NDArray[np.bool_]) -> Preparation:
    """Learn medians, categories, means and scales from some rows of a data set.

    A category has an input of its own if it is in at least 5 of these rows, and among the 99 most frequent ones. The
    others share the input "other".

    Parameters
    ----------
    dataset : Dataset
        Columns of numbers and of text.
    rows : (N,) array of bool
        Which rows to learn from.
    """
    x, text = dataset.x[rows], dataset.texts()[rows]
    empty = np.zeros(0)
    with np.errstate(over="ignore", invalid="ignore"):
        fill, gaps = _learn_fill(x) if x.shape[1] else (empty, ())
        categories, has_other = _learn_categories(text) if text.shape[1] else ((), ())
        columns = (dataset.names, fill, gaps, dataset.text_names, categories, has_other)
        scaler = StandardScaler().fit(Preparation(*columns, empty, empty).raw_inputs(x, text))
    scale = np.where(np.isfinite(scaler.var_), scaler.scale_, np.inf)  # scikit-learn has 1 where squares overflow
    return Preparation(*columns, scaler.mean_, scale)


def _learn_fill(x: Array) -> tuple[Array, tuple[int, ...]]:
    """Return the median of each column, and which columns have gaps."""
    imputer = SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=True).fit(x)
    return imputer.statistics_, tuple(map(int, imputer.indicator_.features_))


def _learn_categories(text: NDArray[Any]) -> tuple[tuple[tuple[str, ...], ...], tuple[bool, ...]]:
    """Return the frequent categories of each column, and whether there are others."""
    encoder = OneHotEncoder(
        min_frequency=MIN_CATEGORY_ROWS, max_categories=MAX_CATEGORIES, handle_unknown="infrequent_if_exist"
    ).fit(text)
    rare = [set() if words is None else set(words.tolist()) for words in encoder.infrequent_categories_]
    pairs = list(zip(encoder.categories_, rare, strict=True))
    frequent = tuple(tuple(str(word) for word in words if word not in others) for words, others in pairs)
    return frequent, tuple(bool(others) for others in rare)
