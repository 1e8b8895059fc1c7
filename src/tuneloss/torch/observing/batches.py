"""Batches from a loader: how many, on which device, and how many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from numbers import Integral, Real
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import alike, moved, size, together

Count = int | float | Literal["auto"] | None  # a number of batches, a fraction of all, few of them, or all
FEW = (1 / 8, 8, 100)  # what "auto" reads: this fraction of the batches, but at least 8 and at most 100 of them


def check_loader(loader: Any, what: str) -> None:
    """Raise unless a loader, named by `what`, can be read from its start again and again, and gives batches.

    A model and a dict can be iterated over, but give no batches.
    """
    readable = hasattr(loader, "__iter__") and not hasattr(loader, "__next__")
    if not readable or isinstance(loader, type | str | Mapping | nn.Module):
        raise InvalidInput(
            f"`{what}` must be a loader that can be read from its start again and again, such as a DataLoader or a "
            f"list of batches; found a {type(loader).__name__}. Give what you iterate over, not an iterator of it."
        )


def check_count(count: Count, what: str) -> None:
    """Raise unless `count`, named by `what`, is None, "auto", a whole number of batches, or a fraction of all."""
    if count is None or (isinstance(count, str) and count == "auto"):
        return
    is_number = isinstance(count, Real) and not isinstance(count, bool)
    if not is_number or not (count >= 1 if isinstance(count, Integral) else 0 < float(count) <= 1):
        raise InvalidInput(
            f'`{what}` must be a number of batches (1, 2, ...), a part of them (0 < part <= 1.0), "auto", or None '
            f"for all; found {count!r}."
        )


def number_of(loader: Any, count: Count, what: str) -> int | None:
    """Return how many batches are asked for; None for all batches of a loader without a length."""
    fraction, least, most = FEW
    try:
        length = len(loader)
    except TypeError:
        if isinstance(count, float) and count < 1:
            raise InvalidInput(
                f"A part of `{what}` needs a loader with a length; found {type(loader).__name__} without. Give a "
                "number of batches."
            ) from None
        if count is None and getattr(loader, "endless", False):
            raise InvalidInput(
                f"A loader without end cannot be read as a whole; found a {type(loader).__name__} for `{what}`. Give a "
                "number of batches, or a loader that ends."
            ) from None
        return most if count == "auto" else int(count) if isinstance(count, Integral) else None
    if count is None:
        return length
    if count == "auto":
        return min(length, max(least, min(most, round(fraction * length))))
    return min(length, int(count)) if isinstance(count, Integral) else max(1, round(count * length))


def batches(loader: Iterable[Any], number: int | None, what: str, device: torch.device) -> Iterator[Any]:
    """Yield the first `number` batches, moved to the device; raise if there is none."""
    empty = True
    for batch in islice(iter(loader), number):
        empty = False
        yield moved(batch, device)
    if empty:
        raise InvalidInput(f"`{what}` must give at least one batch; found none. Is its dataset empty, or used up?")


def merged(read: Iterator[Any], examples: int) -> Iterator[Any]:
    """Merge successive batches, up to a number of examples; yield those that cannot be merged as they are.

    Examples
    --------
    >>> parts = [(torch.zeros(2, 3), torch.zeros(2))] * 5
    >>> [size(batch) for batch in merged(iter(parts), examples=4)]
    [4, 4, 2]
    """
    waiting: list[Any] = []
    n = 0
    for batch in read:
        if waiting and (not all(alike(other, batch) for other in waiting) or n + size(batch) > examples):
            yield together(waiting)
            waiting, n = [], 0
        waiting.append(batch)
        n += size(batch)
    if waiting:
        yield together(waiting)


def saved_bytes(model: nn.Module, trial: Callable[[Any], object], batch: Any) -> int:
    """Return how many bytes autograd saves for gradients of ``trial(batch)``, without parameters and buffers.

    The trial cannot differentiate twice.
    """
    of_model = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    saved = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal saved
        if tensor.untyped_storage().data_ptr() not in of_model:
            saved += tensor.nbytes
        return tensor.detach()  # a node that kept its own output would keep itself alive for ever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trial(batch)
    return saved
