"""Random search: the baseline that every tuner must beat."""

from __future__ import annotations

from tuneloss.baselines.search import Search
from tuneloss.tuning.sampling import sample_box
from tuneloss.types import Array


class RandomSearch(Search):
    """Independent draws from the box: log-uniform where a range spans a decade or more, else uniform.

    >>> from tuneloss import Box
    >>> search = RandomSearch(Box.from_dict({"l2": (0.1, 100.0), "logloss": 1.0}), seed=0)
    >>> sorted(search.ask())
    ['l2', 'logloss']
    """

    def propose(self) -> Array:
        """A fresh draw."""
        return sample_box(self.box, self.rng)
