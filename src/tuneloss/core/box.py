"""Box: the feasible set F of named loss weights, each with a lower and an upper bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuneloss.checks import as_finite, as_names, as_numbers, holds_numbers, reading
from tuneloss.core.tolerances import BOUND_SIZES, WEIGHT_SLACK
from tuneloss.errors import InvalidInput
from tuneloss.types import Array

Bound = float | tuple[float, float | None]


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds on the weights of a loss: lower <= weights <= upper.

    A weight with lower == upper is pinned. An upper bound may be infinite. The zero vector must be outside of the box,
    since weights = 0 and scale = 0 would fit any observations at no cost.

    Parameters
    ----------
    lower : (k,) array or float
        The lower bounds.
    upper : (k,) array or float
        The upper bounds.
    names : sequence of str, optional
        k different names; "weight_0", "weight_1", ... by default.
    is_simplex : bool, default False
        Whether the weights also have sum 1. Use `Box.simplex`.

    Examples
    --------
    >>> Box([0.1, 1.0], [100.0, 1.0], ["l1", "logloss"])
    Box(l1=[0.1, 100], logloss=1)
    """

    lower: Array
    upper: Array
    names: tuple[str, ...]
    is_simplex: bool = False

    def __init__(
        self, lower: ArrayLike, upper: ArrayLike, names: Sequence[str] | None = None, *, is_simplex: bool = False
    ) -> None:
        low, high = np.atleast_1d(as_numbers(lower, "lower")), np.atleast_1d(as_numbers(upper, "upper"))
        labels = as_names([f"weight_{j}" for j in range(low.size)] if names is None else names)
        self.__dict__.update(lower=low, upper=high, names=labels, is_simplex=is_simplex)  # it is frozen
        self._check()
        low.flags.writeable = high.flags.writeable = False

    def _check(self) -> None:
        low, high, names = self.lower, self.upper, self.names
        if low.ndim != 1 or low.shape != high.shape or low.size == 0 or low.size != len(names):
            raise InvalidInput(
                "`Box` needs lower, upper and names of one length k >= 1; found shapes "
                f"{low.shape} and {high.shape} and {len(names)} names. Give one of each for every weight."
            )
        bad = ~np.isfinite(low) | np.isnan(high) | (high == -math.inf)
        if bad.any():
            j = int(np.argmax(bad))
            raise InvalidInput(
                f"`Box` bounds must be numbers, with a finite lower one; found ({low[j]}, {high[j]}) for "
                f"{names[j]!r}. Only an upper bound may be infinite."
            )
        sizes = np.abs([low, np.where(np.isinf(high), 0.0, high)])
        smallest, largest = BOUND_SIZES
        if ((sizes > 0) & ((sizes < smallest) | (sizes > largest))).any():
            raise InvalidInput(
                f"`Box` bounds must be 0, infinite, or of a size from {smallest:g} to {largest:g}; found {self}. "
                "Multiply those terms by a constant, and divide their bounds by it."
            )
        if (low > high).any():
            j = int(np.argmax(low > high))
            raise InvalidInput(
                f"`Box` needs lower <= upper; found lower {low[j]} > upper {high[j]} for {names[j]!r}. Swap them?"
            )
        if self.is_simplex and (low.any() or (high != 1).any()):
            raise InvalidInput("A simplex has lower bounds 0 and upper bounds 1. Use `Box.simplex(names)`.")
        if not self.is_simplex and ((low <= 0) & (high >= 0)).all():
            raise InvalidInput(
                "`Box` must not contain the zero vector, since weights = 0 and scale = 0 fit any observations "
                f"at no cost; found {self}. Pin one weight, e.g. logloss=1."
            )

    @classmethod
    def from_dict(cls, bounds: Mapping[str, Bound]) -> Box:
        """Build a box from bounds by name.

        Parameters
        ----------
        bounds : mapping
            For each name either ``(lower, upper)`` or a number, which pins the weight. An upper bound of None is
            infinite.

        Examples
        --------
        >>> Box.from_dict({"l2": (0.1, math.inf), "logloss": 1.0})
        Box(l2=[0.1, inf], logloss=1)
        """
        if not isinstance(bounds, Mapping):
            raise InvalidInput(f"`Box.from_dict` takes {{name: (lower, upper)}}; found {type(bounds).__name__}.")
        lower, upper = [], []
        for name, bound in bounds.items():
            pair: list[Any] = [bound, bound] if np.ndim(bound) == 0 else list(bound)  # type: ignore[arg-type]
            ends = [math.inf if end is None else end for end in pair]
            if len(pair) != 2 or pair[0] is None or not holds_numbers(np.asarray(ends)):
                raise InvalidInput(
                    f"`Box.from_dict` takes (lower, upper) or one number for each name; found {bound!r} for {name!r}."
                )
            lower.append(float(ends[0]))
            upper.append(float(ends[1]))
        return cls(lower, upper, list(bounds))

    @classmethod
    def simplex(cls, names: Sequence[str]) -> Box:
        """Build the box of mixtures: named weights >= 0 with sum 1, e.g. the probabilities of augmentations.

        Examples
        --------
        >>> Box.simplex(["flip", "crop"])
        Box(simplex of flip, crop)
        """
        k = len(as_names(names))
        return cls(np.zeros(k), np.ones(k), names, is_simplex=True)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.state_dict() == other.state_dict()

    def __hash__(self) -> int:
        return hash((self.names, tuple(self.lower), tuple(self.upper), self.is_simplex))

    def __repr__(self) -> str:
        if self.is_simplex:
            return f"Box(simplex of {', '.join(self.names)})"
        ranges = (
            f"{name}={low:g}" if low == high else f"{name}=[{low:g}, {high:g}]"
            for name, low, high in zip(self.names, self.lower, self.upper, strict=True)
        )
        return f"Box({', '.join(ranges)})"

    @property
    def pinned(self) -> NDArray[np.bool_]:
        """Which weights (k,) have lower == upper."""
        return np.asarray(self.lower == self.upper)

    def as_dict(self, weights: Array) -> dict[str, float]:
        """Return weights (k,), in the order of the names, as a dict by name."""
        return {name: float(w) for name, w in zip(self.names, weights, strict=True)}

    def as_array(self, weights: Mapping[str, float] | ArrayLike) -> Array:
        """Return weights as an array (k,); raise InvalidInput unless they are k weights in the box.

        Parameters
        ----------
        weights : mapping or (k,) array
            The weights by name, or in the order of the names.
        """
        if isinstance(weights, Mapping):
            self.check_names(tuple(weights), "weights")
            weights = [weights[name] for name in self.names]
        values = as_finite(weights, "weights")
        if values.shape != self.lower.shape:
            raise InvalidInput(f"Weights must be {len(self)} numbers, as in {self}; found shape {values.shape}.")
        return np.asarray(self.inside(values[None])[0])

    def inside(self, values: Array) -> Array:
        """Return points (n, k), moved into the box if only rounding put them outside; raise if one is farther out."""
        slack = WEIGHT_SLACK * np.maximum(np.abs(values), np.abs(self.lower))
        outside = ((values < self.lower - slack) | (values > self.upper + slack)).any(axis=1)
        if self.is_simplex:
            outside |= np.abs(values.sum(axis=1) - 1) > WEIGHT_SLACK
        if outside.any():
            worst = self.as_dict(values[int(np.argmax(outside))])
            raise InvalidInput(f"Weights must lie in {self}; found {worst}.")
        return np.clip(values, self.lower, self.upper)

    def check_names(self, names: Sequence[str], what: str) -> None:
        """Raise unless these are the names of the box, in any order; the message calls their owner `what`."""
        if set(names) != set(self.names):
            missing, unknown = sorted(set(self.names) - set(names)), sorted(set(names) - set(self.names), key=str)
            raise InvalidInput(
                f"The names of {what} must be the box's, {list(self.names)}; missing {missing}, unknown {unknown}."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the box as JSON types; infinity is None."""
        lower, upper = self.lower.tolist(), [None if math.isinf(u) else u for u in self.upper.tolist()]
        return {"names": list(self.names), "lower": lower, "upper": upper, "simplex": self.is_simplex}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Box:
        """Build a box from the output of `state_dict`."""
        with reading("A box's state"):
            upper = [math.inf if u is None else u for u in state["upper"]]
            return cls(state["lower"], upper, state["names"], is_simplex=bool(state["simplex"]))


def check_box(box: object) -> None:
    """Raise unless this is a Box."""
    if not isinstance(box, Box):
        raise InvalidInput(f"`box` must be a Box; found {type(box).__name__}. Use `Box.from_dict({{...}})`.")
