"""The examples of one dataset, without end, in an order that can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from tuneloss.errors import InvalidInput

END = object()


class Stream:
    """The examples of a dataset, epoch after epoch: in a new random order if it has a length, or else as they come.

    Parameters
    ----------
    name : str
        The name of the dataset, for messages.
    dataset : object
        A dataset with a length, or an iterable of examples.
    seed : sequence of int
        Gives the order, together with the number of the epoch.
    """

    def __init__(self, name: str, dataset: Any, seed: Sequence[int]) -> None:
        self.name, self.dataset, self.seed = name, dataset, seed
        has_items = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        self.has_length = has_items and not isinstance(dataset, IterableDataset)
        self.go_to(0, 0)

    def go_to(self, epoch: int, position: int) -> None:
        """Go to an example of an epoch. A dataset without a length is read up to there again."""
        self.epoch, self.position = epoch, position
        self._order: list[int] | None = None
        self._examples: Iterator[Any] | None = None

    def take(self, wanted: Sequence[bool]) -> list[Any]:
        """Pass over the next examples, one per entry, and return those that are wanted."""
        step = self._next_item if self.has_length else self._next_example
        taken = [step(want) for want in wanted]
        return [example for want, example in zip(wanted, taken, strict=True) if want]

    def _next_item(self, want: bool) -> Any:
        if self._order is None or self.position >= len(self._order):
            if self.position >= len(self.dataset) > 0:  # also where a state ends an epoch
                self.epoch, self.position = self.epoch + 1, 0
            self._order = np.random.default_rng((*self.seed, self.epoch)).permutation(len(self.dataset)).tolist()
            self._check(bool(self._order))
        self.position += 1
        return self.dataset[self._order[self.position - 1]] if want else None

    def _next_example(self, want: bool) -> Any:
        if self._examples is None:
            self._examples = islice(iter(self.dataset), self.position, None)
        example = next(self._examples, END)
        if example is END:
            self._check(self.position > 0)
            self.epoch, self.position = self.epoch + 1, 0
            self._examples = iter(self.dataset)
            example = next(self._examples, END)
            self._check(example is not END)
        self.position += 1
        return example

    def _check(self, has_examples: bool) -> None:
        if not has_examples:
            raise InvalidInput(f"Each source must have at least one example; {self.name!r} has none. Is it used up?")
