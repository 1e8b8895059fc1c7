"""Checks of single values at the border: input that breaks a rule is refused with a message."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.types import Array

GRAM_SLACK = 1e-6  # at unit diagonal; asymmetry and negative eigenvalues that sums in float32 leave


def holds_numbers(array: NDArray[Any]) -> bool:
    """Return whether an array holds real numbers: not text, objects or complex numbers."""
    return array.dtype.kind in "biuf"


def as_numbers(value: ArrayLike, what: str) -> Array:
    """Return a copy as float64; raise InvalidInput unless it is a rectangular array of real numbers."""
    try:
        raw = np.asarray(value)
        if not holds_numbers(raw):
            raise ValueError(f"found {raw.dtype} values" if raw.dtype != object else "found text, None or unequal rows")
        return np.array(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as reason:
        raise InvalidInput(f"`{what}` must be real numbers in a rectangular array; {reason}.") from None


def as_finite(value: ArrayLike, what: str) -> Array:
    """Do what `as_numbers` does; raise NotFinite if a number is NaN or infinite."""
    array = as_numbers(value, what)
    if not np.isfinite(array).all():
        raise NotFinite(
            f"`{what}` must be finite; found {int((~np.isfinite(array)).sum())} of {array.size} values NaN or "
            "infinite. If training diverged, tell a `LossTuner` so: `tell(weights, failed='diverged')`."
        )
    return array


def as_number(value: ArrayLike, what: str) -> float:
    """Return one finite number; raise InvalidInput if it is something else."""
    array = as_finite(value, what)
    if array.size != 1:
        raise InvalidInput(f"`{what}` must be one number; found shape {array.shape}. Give a sum or a mean.")
    return float(array.reshape(()))


def as_integer(value: object, what: str, least: int) -> int:
    """Return a whole number; raise InvalidInput if it is something else, or below `least`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInput(f"`{what}` must be a whole number; found {value!r}.") from None
    if number < least:
        raise InvalidInput(f"`{what}` must be at least {least}; found {number}.")
    return number


def as_gram(value: ArrayLike, k: int) -> Array:
    """Return one gram (k + 1, k + 1), or several (n, k + 1, k + 1), made symmetric; raise unless they are grams."""
    gram = as_finite(value, "gram")
    if gram.shape[-2:] != (k + 1, k + 1) or gram.ndim > 3:
        raise InvalidInput(
            f"`gram` must have shape (k + 1, k + 1) = {(k + 1, k + 1)}, the error last; found {gram.shape}."
        )
    size = np.sqrt(np.abs(np.diagonal(gram, axis1=-2, axis2=-1)))
    size = np.where(size > 0, size, 1.0)
    unit = gram / size[..., :, None] / size[..., None, :]
    mirrored = np.swapaxes(unit, -1, -2)
    gap = float(np.abs(unit - mirrored).max())
    if gap > GRAM_SLACK:
        raise InvalidInput(
            f"`gram` must be symmetric; found entries that differ from their mirror image by {gap:.1e} of their "
            "size. It is [jacobian | gradient]' [jacobian | gradient]."
        )
    unit = (unit + mirrored) / 2
    try:
        np.linalg.cholesky(unit + GRAM_SLACK * np.eye(k + 1))
    except np.linalg.LinAlgError:
        raise InvalidInput(
            "`gram` must be positive semidefinite; found a lowest eigenvalue of "
            f"{np.linalg.eigvalsh(unit).min():.1e} at unit diagonal. Store no minus signs in it: it is "
            "[jacobian | gradient]' [jacobian | gradient]."
        ) from None
    return (gram + np.swapaxes(gram, -1, -2)) / 2


def as_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return a tuple of names; raise InvalidInput unless they are different strings."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise InvalidInput(f"Names must be a list of strings; found {names!r}.")
    if len(set(names)) != len(names):
        raise InvalidInput(f"Names must be different strings; found {list(names)}. Rename them.")
    return tuple(names)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a record is read into an InvalidInput that names the record."""
    try:
        yield
    except InvalidInput:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RecursionError) as reason:
        raise InvalidInput(
            f"{what} must be as documented, or as tuneloss wrote it; found something else "
            f"({type(reason).__name__}: {reason})."
        ) from None
