"""Observation: what is kept of one trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.checks import as_finite, as_gram, as_names, as_number, holds_numbers, reading
from tuneloss.errors import InvalidInput
from tuneloss.packing import packed, unpacked
from tuneloss.types import Array

BLOCK = 4096  # rows of a jacobian that are read at a time, so that no (n, k) copy is made


@dataclass(frozen=True, eq=False)
class Observation:
    """One trained model: its validation error, the values of its loss terms and, optionally, their gram.

    The gram holds all inner products of gradients::

        gram = [jacobian | gradient]' [jacobian | gradient]

    Column j of the jacobian (n, k) is the gradient of term j. The vector gradient (n,) is that of the error.

    Parameters
    ----------
    error : float
        The validation error, a sum or a mean.
    features : (k,) array or mapping of str to float
        The values of the terms.
    gram : (k + 1, k + 1) array, optional
        The gram, the error last; None if gradients are unknown.
    metric : float, optional
        The number that decides which of two models is better, e.g. top-1 error; the lower is better. By default, the
        error decides.
    names : sequence of str, optional
        The names of the terms.

    Examples
    --------
    >>> Observation(0.5, {"l2": 4.0, "logloss": 0.3}).features
    array([4. , 0.3])
    """

    error: float
    features: Array
    gram: Array | None = None
    metric: float | None = None
    names: tuple[str, ...] | None = None

    def __init__(
        self,
        error: float,
        features: Mapping[str, float] | ArrayLike,
        gram: ArrayLike | None = None,
        *,
        metric: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if isinstance(features, Mapping):
            names, features = tuple(features), list(features.values())
        values = as_finite(features, "features")
        if values.ndim != 1 or values.size == 0:
            raise InvalidInput(f"`features` must have shape (k,), one value per term; found shape {values.shape}.")
        names = None if names is None else as_names(names)
        if names is not None and len(names) != values.size:
            raise InvalidInput(f"`names` must be one per feature; found {len(names)} for {values.size} features.")
        checked = None if gram is None else as_gram(gram, values.size)
        for array in (values, checked):
            if array is not None:
                array.flags.writeable = False
        self.__dict__.update(  # it is frozen
            error=as_number(error, "error"),
            features=values,
            gram=checked,
            metric=None if metric is None else as_number(metric, "metric"),
            names=names,
        )

    @classmethod
    def from_gradients(
        cls,
        error: float,
        features: Mapping[str, float] | ArrayLike,
        gradient: ArrayLike,
        jacobian: ArrayLike,
        *,
        metric: float | None = None,
    ) -> Observation:
        """Build an observation from gradients.

        Parameters
        ----------
        error : float
            The validation error, a sum or a mean.
        features : (k,) array or mapping of str to float
            The values of the terms.
        gradient : (n,) array
            The gradient of the error.
        jacobian : (n, k) array
            The gradients of the terms, one per column.
        metric : float, optional
            As for `Observation`.

        Examples
        --------
        >>> Observation.from_gradients(1.0, [2.0], gradient=[3.0, 0.0], jacobian=[[1.0], [1.0]]).gram
        array([[2., 3.],
               [3., 9.]])
        """
        g = as_finite(gradient, "gradient")
        is_array = isinstance(jacobian, np.ndarray) and holds_numbers(jacobian)
        jac = np.asarray(jacobian) if is_array else as_finite(jacobian, "jacobian")  # an array is not copied
        k = len(features) if isinstance(features, Mapping) else np.size(features)
        if g.ndim != 1 or g.size == 0 or jac.shape != (g.size, k):
            raise InvalidInput(
                f"`gradient` must have shape (n,) and `jacobian` (n, k) with k = {k} features; found {g.shape} and "
                f"{jac.shape}. Column j of the jacobian is the gradient of term j."
            )
        gram = np.zeros((k + 1, k + 1))
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(g), BLOCK):
                block = np.asarray(jac[start : start + BLOCK], dtype=np.float64)
                gram[:k, :k] += block.T @ block
                gram[:k, k] += block.T @ g[start : start + BLOCK]
            gram[k, :k], gram[k, k] = gram[:k, k], g @ g
        if not np.isfinite(gram).all():
            as_finite(jac, "jacobian")  # says what is wrong with it
        return cls(error, features, gram, metric=metric)

    @property
    def score(self) -> float:
        """The metric, or the error if there is no metric. It decides which model is better."""
        return self.error if self.metric is None else self.metric

    def without_gram(self) -> Observation:
        """Return a copy without gradients, which is enough for the argmin constraints."""
        return Observation(self.error, self.features, metric=self.metric, names=self.names)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types. A large gram becomes its upper triangle, row by row, as float64 in base64."""
        return {
            "error": self.error,
            "features": self.features.tolist(),
            "gram": None if self.gram is None else packed(self.gram),
            "metric": self.metric,
            "names": None if self.names is None else list(self.names),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Observation:
        """Read the output of `to_dict`, in which `gram`, `metric` and `names` may be missing."""
        if not isinstance(record, Mapping) or not {"error", "features"} <= set(record):
            raise InvalidInput(
                "An observation's record must have `error` and `features` (and may have `gram`, `metric`, `names`); "
                f"found {sorted(map(str, record)) if isinstance(record, Mapping) else type(record).__name__}."
            )
        with reading("An observation's record"):
            gram = unpacked(record.get("gram"), record["features"])
            return cls(
                record["error"], record["features"], gram, metric=record.get("metric"), names=record.get("names")
            )
