"""A linear classifier with the preparation of its inputs, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuneloss.data import Dataset
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.preparation import Preparation
from tuneloss.sklearn.softmax import all_classes, log_probabilities
from tuneloss.types import Array


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The classifier ``softmax(coef @ inputs + intercept)`` of prepared inputs.

    Parameters
    ----------
    preparation : Preparation
        How the columns of a table become inputs.
    coef : (C, E) array
        The coefficients, as in scikit-learn; (1, E) for two classes.
    intercept : (C,) array
        The intercepts, as in scikit-learn; (1,) for two classes.
    classes : (C,) array
        The labels.
    about : dict
        A description of the model, as JSON types.
    """

    preparation: Preparation
    coef: Array
    intercept: Array
    classes: NDArray[Any]
    about: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of numbers that the model takes."""
        return self.preparation.names

    @property
    def text_names(self) -> tuple[str, ...]:
        """The columns of categories that the model takes."""
        return self.preparation.text_names

    def predict_proba(self, X: Dataset | ArrayLike) -> Array:
        """Compute the probability of each class.

        Parameters
        ----------
        X : Dataset, DataFrame or (N, D) array
            The columns of the model. A DataFrame may have more columns, in any order. An array has the columns of
            numbers in their order. Missing numbers are NaN, and missing categories are None or "".

        Returns
        -------
        (N, C) array

        Raises
        ------
        InvalidInput
            If a column is not there, or if numbers are so large that their probabilities are not numbers.
        """
        dataset = X if isinstance(X, Dataset) else self._as_dataset(X)
        if (dataset.names, dataset.text_names) != (self.names, self.text_names):
            raise InvalidInput(
                f"The model takes the columns {[*self.names, *self.text_names]}, in this order; found "
                f"{[*dataset.names, *dataset.text_names]}. `read_inputs` reads them from a file."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            z = self.preparation(dataset) @ self.coef.T + self.intercept
            probabilities = np.exp(log_probabilities(all_classes(z)))
        bad = ~np.isfinite(probabilities).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad)) + 1
            raise InvalidInput(f"Inputs must give finite probabilities; row {row} has values that are too large.")
        return np.asarray(probabilities)

    def predict(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : Dataset, DataFrame or (N, D) array
            As in `predict_proba`.

        Returns
        -------
        (N,) array
            The labels.
        """
        labels: NDArray[Any] = self.classes[self.predict_proba(X).argmax(axis=1)]
        return labels

    def _as_dataset(self, X: Any) -> Dataset:
        """Return a DataFrame or an array of numbers as a data set."""
        if not hasattr(X, "columns"):
            return self._numbers_as_dataset(X)
        missing = [name for name in (*self.names, *self.text_names) if name not in X.columns]
        if missing:
            raise InvalidInput(f"The DataFrame must have the columns of the model; it has no {', '.join(missing)}.")
        try:
            numbers = [np.asarray(X[name], dtype=np.float64) for name in self.names]
        except (TypeError, ValueError) as reason:
            raise InvalidInput(f"The columns {list(self.names)} must hold numbers; found that {reason}.") from None
        x = np.column_stack(numbers) if numbers else np.zeros((len(X), 0))
        texts = [np.array([_as_text(cell) for cell in X[name]], dtype=object) for name in self.text_names]
        return Dataset("data", self.names, x, None, (), self.text_names, np.column_stack(texts) if texts else None)

    def _numbers_as_dataset(self, X: ArrayLike) -> Dataset:
        try:
            x = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as reason:
            raise InvalidInput(f"X must be an array of numbers; found that {reason}.") from None
        if x.ndim != 2 or x.shape[1] != len(self.names) or self.text_names:
            raise InvalidInput(
                f"X must have {len(self.names)} columns of numbers and {len(self.text_names)} of categories; found "
                f"an array of shape {x.shape}. Categories can be in a DataFrame."
            )
        return Dataset("data", self.names, x)


def _as_text(cell: Any) -> str:
    """Return a cell as a category; "" for a missing one."""
    if isinstance(cell, str):
        return cell.strip()
    return str(cell) if isinstance(cell, (int, np.integer)) else ""
