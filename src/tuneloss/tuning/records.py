"""Many observations from their records at once, as when a long journal is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuneloss.checks import as_finite, as_gram, as_names
from tuneloss.core.observation import Observation
from tuneloss.packing import unpacked

FIELDS = ("error", "features", "gram", "metric", "names")


def read_observations(records: Sequence[Mapping[str, Any]]) -> list[Observation]:
    """Read the outputs of `Observation.to_dict`. If all are of one kind, they are checked together.

    That is ten times as fast. Observations that are read in either way are the same, and so are the errors.
    """
    return checked_together(records) or [Observation.from_dict(record) for record in records]


def checked_together(records: Sequence[Mapping[str, Any]]) -> list[Observation] | None:
    """Read records that are of one kind and correct; otherwise return None, and `from_dict` finds the mistake."""
    try:
        columns: dict[str, Any] = {field: [record.get(field) for record in records] for field in FIELDS}
        kinds = {field: set(map(type, column)) for field, column in columns.items()}
        if any(len(kind) > 1 for kind in kinds.values()) or kinds["error"] != {float}:
            return None
        if kinds["metric"] not in ({float}, {type(None)}) or any(n != columns["names"][0] for n in columns["names"]):
            return None
        errors, features = as_finite(columns["error"], "error"), as_finite(columns["features"], "features")
        grams: Any = columns["gram"]
        if grams[0] is not None:
            grams = [unpacked(gram, features[0]) for gram in grams]
            grams = as_gram(grams, features.shape[1])
        if columns["metric"][0] is not None:
            as_finite(columns["metric"], "metric")
        names = None if columns["names"][0] is None else as_names(columns["names"][0])
        if features.ndim != 2 or not features.size or (names is not None and len(names) != features.shape[1]):
            return None
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    for array in (features, grams):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    observations = [object.__new__(Observation) for _ in records]
    for new, *values in zip(observations, errors.tolist(), features, grams, columns["metric"], strict=True):
        new.__dict__.update(zip(FIELDS, (*values, names), strict=True))
    return observations
