"""A validation error on several sets, with fixed weights: for a model that must be good on all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tuneloss.checks import as_number
from tuneloss.errors import InvalidInput
from tuneloss.torch.sources.source_loader import check_sources, is_dataset


class TargetMix:
    """Validation batches of several sets. The error is the weighted mean of the errors on them.

    Give it as `validation` or `selection` of `observe` and `OnlineTuner`. The sizes of the sets do not matter. Among
    several processes, each must have as many examples of a set: the error is the mean of the errors of the processes.

    Parameters
    ----------
    targets : mapping of str to loader
        The validation batches of each set, by name.
    weights : mapping of str to float, optional
        How much each set counts; by default equally.

    Attributes
    ----------
    parts : list of (str, float, loader)
        The name of each set, its share of the error, and its batches.

    Examples
    --------
    >>> [(name, share) for name, share, _ in TargetMix({"news": [1], "code": [2]}, {"news": 3, "code": 1}).parts]
    [('news', 0.75), ('code', 0.25)]
    """

    def __init__(self, targets: Mapping[str, Any], weights: Mapping[str, float] | None = None) -> None:
        check_sources(targets)
        for name, loader in targets.items():
            if is_dataset(loader) or not hasattr(loader, "__iter__") or hasattr(loader, "__next__"):
                raise InvalidInput(
                    f"Each set must be a loader of batches, such as a DataLoader; {name!r} is a "
                    f"{type(loader).__name__}."
                )
        given = dict.fromkeys(targets, 1.0) if weights is None else dict(weights)
        if set(given) != set(targets):
            raise InvalidInput(f"`weights` must be of the sets {list(targets)}; found those of {list(given)}.")
        numbers = np.array([as_number(given[name], f"weights[{name!r}]") for name in targets])
        if (numbers <= 0).any():
            raise InvalidInput(f"The weights of sets must be above 0; found {given}. Leave out sets that do not count.")
        shares = (numbers / numbers.sum()).tolist()
        self.parts = [(name, share, targets[name]) for name, share in zip(targets, shares, strict=True)]

    def __iter__(self) -> Iterator[Any]:
        for _, _, loader in self.parts:
            yield from loader
