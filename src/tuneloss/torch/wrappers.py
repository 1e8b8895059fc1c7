"""What wraps a model (torch.compile, DDP, activation checkpointing), and how to see through it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

# Parts that wrappers put into a parameter's name: torch.compile, activation checkpointing.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module"})


def bare(model: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`, `DistributedDataParallel` and `DataParallel`, in any nesting.

    Examples
    --------
    >>> net = nn.Linear(2, 1)
    >>> bare(nn.DataParallel(net)) is net
    True
    """
    while True:
        if isinstance(model, DistributedDataParallel | DataParallel):
            model = cast(nn.Module, model.module)
        elif "_orig_mod" in model._modules:
            model = cast(nn.Module, model._orig_mod)
        else:
            return model


def clean_name(name: str) -> str:
    """Return a name from ``bare(model).named_parameters()`` without the parts that wrapped submodules add.

    Examples
    --------
    >>> clean_name("encoder._orig_mod.layers.0._checkpoint_wrapped_module.weight")
    'encoder.layers.0.weight'
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def eagerly(model: nn.Module) -> AbstractContextManager[Any]:
    """Return a context in which compiled submodules, and modules compiled in place, run as plain Python.

    A compiled graph frees its buffers in its first backward, so it refuses a second one.
    """
    compiled = any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()  # only now: it imports dynamo
