"""Random search: the baseline that every tuner must beat."""

from __future__ import annotations

from tuneloss.baselines.search import Search
from tuneloss.tuning.sampling import sample_box
from tuneloss.types import Array


class RandomSearch(Search):
    """Draw weights from the box independently: log-uniform in a range of a decade or more, else uniform.

    Parameters
    ----------
    box : Box
        The allowed weights.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first.

    Examples
    --------
    >>> from tuneloss import Box
    >>> search = RandomSearch(Box.from_dict({"l2": (0.1, 100.0), "logloss": 1.0}), seed=0)
    >>> sorted(search.ask())
    ['l2', 'logloss']
    """

    def propose(self) -> Array:
        """Return a fresh draw."""
        return sample_box(self.box, self.rng)
