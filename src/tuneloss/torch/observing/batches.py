"""Batches from a loader: how many, how large, on which device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tuneloss.errors import InvalidInput

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
        yield _moved(batch, device)
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
        if waiting and (not _alike(waiting[0], batch) or n + size(batch) > examples):
            yield _together(waiting)
            waiting, n = [], 0
        waiting.append(batch)
        n += size(batch)
    if waiting:
        yield _together(waiting)


def _alike(a: Any, b: Any) -> bool:
    """Return whether two batches can be merged: their tensors have one shape, except for the number of examples."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.ndim == b.ndim > 0 and a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and type(a) is type(b)
    if type(a) is not type(b) or type(a) not in (list, tuple, dict) or len(a) != len(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(_alike(a[name], b[name]) for name in a)
    return all(_alike(x, y) for x, y in zip(a, b, strict=True))


def _together(parts: list[Any]) -> Any:
    """Concatenate the tensors of batches that are alike."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, dict):
        return {name: _together([part[name] for part in parts]) for name in first}
    return type(first)(_together(list(column)) for column in zip(*parts, strict=True))


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


def size(batch: Any) -> int:
    """Return the number of examples: the length of the first tensor in the batch.

    Examples
    --------
    >>> size((torch.zeros(8, 3), torch.zeros(8)))
    8
    """
    first = _first_tensor(batch)
    if first is None or first.ndim == 0:
        return 1
    if len(first) == 0:
        raise InvalidInput("A batch must have at least one example; found one with none.")
    return len(first)


def rows_of(batch: Any, part: slice) -> Any:
    """Return some examples of a batch: these rows of all tensors that have one row per example.

    Raises
    ------
    InvalidInput
        If the batch is not a tensor, or a tuple, list or dict of tensors and numbers.

    Examples
    --------
    >>> rows_of({"x": torch.arange(5), "scale": 2.0}, slice(0, None, 2))
    {'x': tensor([0, 2, 4]), 'scale': 2.0}
    """
    n = size(batch)

    def cut(thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return thing[part] if thing.ndim > 0 and len(thing) == n else thing
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return type(thing)(*map(cut, thing))
        if type(thing) in (list, tuple):
            return type(thing)(map(cut, thing))
        if type(thing) is dict:
            return {name: cut(value) for name, value in thing.items()}
        if thing is None or isinstance(thing, Real | str):
            return thing
        raise InvalidInput(
            "A batch that is split must be a tensor, or a tuple, list or dict of tensors; found a "
            f"{type(thing).__name__} in it."
        )

    return cut(batch)


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, Sequence) else ()
    if isinstance(batch, str):
        return None
    return next((tensor for part in parts if (tensor := _first_tensor(part)) is not None), None)


def _moved(batch: Any, device: torch.device) -> Any:
    """Move all tensors of a batch to a device."""
    if hasattr(batch, "to"):  # a tensor, or an object that moves itself (PackedSequence, BatchEncoding)
        return batch.to(device)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_moved(part, device) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(part, device) for part in batch)
    if type(batch) is dict:
        return {name: _moved(part, device) for name, part in batch.items()}
    return batch
