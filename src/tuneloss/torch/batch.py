"""What a batch is: its number of examples, its rows, its device, and several batches as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tuneloss.errors import InvalidInput


class SourceBatch(dict[str, Any]):
    """One batch of each source, by the name of the source. A source without rows is left out.

    `SourceLoader` yields such batches.
    """

    _whole: Any = None

    def can_be_joined(self) -> bool:
        """Return whether the rows of all sources fit together as one batch."""
        first, *others = self.values()
        return all(alike(first, other) for other in others)

    def whole(self) -> Any:
        """Return the rows of all sources as one batch, the same one at each call.

        Raises
        ------
        InvalidInput
            If their tensors do not fit together.
        """
        if self._whole is None:
            parts = list(self.values())
            if not self.can_be_joined():
                raise InvalidInput(
                    "A term that is not `PerSource` sees the rows of all sources as one batch; found batches of "
                    f"{list(self)} that cannot be joined. Let them have tensors of the same shapes, except for the "
                    "number of rows."
                )
            self._whole = together(parts)
        return self._whole


def size(batch: Any) -> int:
    """Return the number of examples: the length of the first tensor in the batch, or those of all sources.

    Examples
    --------
    >>> size((torch.zeros(8, 3), torch.zeros(8)))
    8
    """
    if isinstance(batch, SourceBatch):
        return sum(map(size, batch.values()))
    first = _first_tensor(batch)
    if first is None or first.ndim == 0:
        return 1
    if len(first) == 0:
        raise InvalidInput("A batch must have at least one example; found one with none.")
    return len(first)


def first_shape(batch: Any) -> tuple[int, ...]:
    """Return the shape of the first tensor in a batch; () without one."""
    first = _first_tensor(batch)
    return () if first is None else tuple(first.shape)


def rows_of(batch: Any, part: slice | Tensor) -> Any:
    """Return some examples of a batch: these rows of all tensors that have one row per example.

    Of a `SourceBatch`, these are rows of each source.

    Raises
    ------
    InvalidInput
        If the batch is not a tensor, or a tuple, list or dict of tensors and numbers.

    Examples
    --------
    >>> rows_of({"x": torch.arange(5), "scale": 2.0}, slice(0, None, 2))
    {'x': tensor([0, 2, 4]), 'scale': 2.0}
    """
    if isinstance(batch, SourceBatch):
        return SourceBatch({name: rows_of(rows, part) for name, rows in batch.items()})
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


def alike(a: Any, b: Any) -> bool:
    """Return whether two batches can be merged: their tensors have one shape, except for one row per example.

    Examples
    --------
    >>> x, class_weights = torch.zeros(8, 2), torch.ones(3)
    >>> alike((x, x), (x[:5], x[:5])), alike((x, class_weights), (x, class_weights))
    (True, False)
    """
    return _have_one_form(a, b) and _is_in_rows(a) and _is_in_rows(b)


def _have_one_form(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.ndim == b.ndim > 0 and a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and type(a) is type(b)
    if isinstance(a, SourceBatch) and isinstance(b, SourceBatch):
        return all(_have_one_form(a[name], b[name]) for name in a if name in b)
    if type(a) is not type(b) or type(a) not in (list, tuple, dict) or len(a) != len(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(_have_one_form(a[name], b[name]) for name in a)
    return all(_have_one_form(x, y) for x, y in zip(a, b, strict=True))


def _is_in_rows(batch: Any) -> bool:
    """Return whether every tensor of a batch has one row per example."""
    if isinstance(batch, SourceBatch):
        return all(map(_is_in_rows, batch.values()))
    tensors = [tensor for tensor in tree_leaves(batch) if isinstance(tensor, Tensor)]
    return all(tensor.ndim > 0 and len(tensor) == size(batch) for tensor in tensors)


def together(parts: list[Any]) -> Any:
    """Concatenate the tensors of batches that are alike."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, SourceBatch):
        names = dict.fromkeys(name for part in parts for name in part)
        return SourceBatch({name: together([part[name] for part in parts if name in part]) for name in names})
    if isinstance(first, dict):
        return {name: together([part[name] for part in parts]) for name in first}
    return type(first)(together(list(column)) for column in zip(*parts, strict=True))


def moved(batch: Any, device: torch.device) -> Any:
    """Move all tensors of a batch to a device."""
    if hasattr(batch, "to"):  # a tensor, or an object that moves itself (PackedSequence, BatchEncoding)
        return batch.to(device)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(part, device) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(part, device) for part in batch)
    if type(batch) in (dict, SourceBatch):
        return type(batch)({name: moved(part, device) for name, part in batch.items()})
    return batch


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, Sequence) else ()
    if isinstance(batch, str):
        return None
    return next((tensor for part in parts if (tensor := _first_tensor(part)) is not None), None)
