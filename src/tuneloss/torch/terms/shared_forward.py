"""One forward for all terms that call the model in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class SharedForward:
    """A stand-in for a model while terms are evaluated: repeated calls on the same tensors are made once.

    So terms that all call ``model(batch[0])`` share one forward, and one draw of the model's own dropout. All other
    attributes are those of the model.

    Parameters
    ----------
    model : Module
        The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.__dict__["_model"] = model
        self.__dict__["_calls"] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = (*args, *kwargs.values())
        autocast = [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
        state = (*kwargs, len(args), self._model.training, torch.is_grad_enabled(), *autocast)
        for old_state, old_inputs, output in self._calls:
            alike = old_state == state and len(old_inputs) == len(inputs)
            if alike and all(a is b for a, b in zip(old_inputs, inputs, strict=True)):
                return output
        output = self._model(*args, **kwargs)
        self._calls.append((state, inputs, output))
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._model, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._model[key]

    def __len__(self) -> int:
        return len(self._model)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._model)

    def __bool__(self) -> bool:
        return True


def as_module(model: Any) -> nn.Module:
    """Return the model itself if a stand-in for it is given; otherwise what is given."""
    module: nn.Module = model._model if isinstance(model, SharedForward) else model
    return module
