"""Grams as JSON types: a small one as its rows, a large one packed as text."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tuneloss.errors import InvalidInput
from tuneloss.types import Array

PACKED_FROM = 32  # rows: a gram of at least this size is packed


def packed(gram: Array) -> str | list[list[float]]:
    """Return a gram as JSON types; a large one as its upper triangle, row by row, little-endian float64 in base64."""
    if len(gram) < PACKED_FROM:
        rows: list[list[float]] = gram.tolist()
        return rows
    return base64.b64encode(gram[np.triu_indices(len(gram))].astype("<f8").tobytes()).decode("ascii")


def unpacked(gram: Any, features: Any) -> Any:
    """Return the gram (k + 1, k + 1) of k features that `packed` wrote as text; anything else as it is.

    Examples
    --------
    >>> large = np.eye(PACKED_FROM)
    >>> bool((unpacked(packed(large), features=np.ones(PACKED_FROM - 1)) == large).all())
    True
    """
    if not isinstance(gram, str):
        return gram
    n = len(features) + 1
    upper = np.frombuffer(base64.b64decode(gram, validate=True), dtype="<f8")
    if len(upper) != n * (n + 1) // 2:
        raise InvalidInput(f"A packed `gram` must hold {n * (n + 1) // 2} numbers for {n} rows; found {len(upper)}.")
    square = np.zeros((n, n))
    square[np.triu_indices(n)] = upper
    return square + np.triu(square, 1).T
