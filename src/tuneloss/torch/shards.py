"""Parameters that FSDP2 (`torch.distributed.fsdp.fully_shard`) shards: every process holds a part of each of them.

This file has what terms and observations both need; what only an observation needs is in `observing/fsdp.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, cast

from torch import Tensor, nn


def is_shard(tensor: Tensor) -> bool:
    """Return whether a tensor is one process's view of a sharded one (a DTensor)."""
    module = sys.modules.get("torch.distributed.tensor")  # if it is not imported, there is no DTensor
    return module is not None and isinstance(tensor, module.DTensor)


def is_sharded(model: nn.Module) -> bool:
    """Return whether FSDP2 shards a model: some module is `fully_shard`-ed, or some parameter is a DTensor."""
    return any(True for _ in fsdp_modules(model)) or any(is_shard(p) for p in model.parameters())


def local_part(p: Tensor) -> Tensor:
    """Return a parameter, or this process's shard of it, as a part of the autograd graph."""
    return cast(Tensor, cast(Any, p).to_local()) if is_shard(p) else p


def local(tensor: Tensor) -> Tensor:
    """Return a tensor, or this process's shard of it: detached, not copied."""
    return local_part(tensor.detach())


def gathered(p: Tensor) -> Tensor:
    """Return all of a parameter, from every process that holds a shard of it; detached."""
    return cast(Tensor, cast(Any, p.detach()).full_tensor()) if is_shard(p) else p.detach()


def reshard(model: nn.Module) -> None:
    """Free the parameters that FSDP2 has gathered, so that `model.parameters()` are the shards.

    FSDP2 keeps its root gathered from a forward to the next backward. Meanwhile, `parameters()` are plain tensors. If
    an optimizer steps then, the next forward reads old values. So call this before reading parameters and after the
    last forward.
    """
    for module in fsdp_modules(model):
        module.reshard()


def fsdp_modules(model: nn.Module) -> Iterator[Any]:
    """Yield each module that `fully_shard` was called on."""
    module = sys.modules.get("torch.distributed.fsdp")  # if it is not imported, there is none
    if module is not None:
        yield from (m for m in model.modules() if isinstance(m, module.FSDPModule))
