"""Gradients under FSDP2 (`torch.distributed.fsdp.fully_shard`), and what must be read from its internals for them.

Only `backward()` sums a gradient over processes; it leaves this process's shard of the gradient in `.grad`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.wrappers import clean_name, fsdp_modules, is_shard, local


def group_of_shards(model: nn.Module) -> dist.ProcessGroup:
    """Return the process group over which FSDP2 shards all parameters.

    Raises
    ------
    InvalidInput
        If a trainable parameter is not sharded, or not over a mesh of one dimension, or there are several groups.
    """
    groups: dict[int, dist.ProcessGroup] = {}
    by_fsdp = any(True for _ in fsdp_modules(model))
    for name, param in model.named_parameters():
        if not is_shard(param):
            if param.requires_grad:
                raise InvalidInput(
                    f"FSDP2 must shard every trainable parameter, but '{clean_name(name)}' is ignored. "
                    "Shard it too, or freeze it with requires_grad_(False)."
                )
            continue
        shard = cast(Any, param)
        if not by_fsdp or shard.device_mesh.ndim != 1 or not shard.placements[0].is_shard():
            raise InvalidInput(
                "Parameters must be sharded over a mesh of one dimension (plain FSDP2), but "
                f"'{clean_name(name)}' is placed as {tuple(shard.placements)} on {shard.device_mesh}. "
                "Meshes of two dimensions (HSDP, tensor parallel) and replicas are not supported: "
                "observe a plain FSDP2 copy of the model."
            )
        group = shard.device_mesh.get_group()
        groups[id(group)] = group
    if len(groups) != 1:
        raise InvalidInput(f"All parameters must be sharded over one process group, but there are {len(groups)}.")
    return next(iter(groups.values()))


def gradient_divisors(model: nn.Module, params: Sequence[Tensor]) -> list[float]:
    """Return the number by which FSDP2 divides the sum over processes of each parameter's gradient.

    It is the number of processes, or what the user has set by `set_gradient_divide_factor`.

    Parameters
    ----------
    model : Module
    params : sequence of tensor
        Shards of its parameters.

    Raises
    ------
    InvalidInput
        If the next backward would not sum over processes, or would add to gradients that wait for their sum.
    """
    divisors: dict[int, float] = {}
    for group in _param_groups(model):
        if not group.reduce_grads or any(_waits(param) for param in group.fsdp_params):
            raise InvalidInput(
                "Gradients must be synchronized before an observation, but FSDP2 accumulates them without "
                "(set_requires_gradient_sync(False)). Observe after the step that synchronizes."
            )
        if (
            getattr(group, "_all_reduce_hook", None) is not None
            or getattr(group, "reduce_scatter_reduce_op", None) is not None
        ):
            raise InvalidInput("FSDP2 must sum gradients by its own means, but a custom reduction is set.")
        factor = getattr(group, "gradient_divide_factor", None)
        for param in group.fsdp_params:
            mesh = param.sharded_param.device_mesh
            divisors[id(param.sharded_param)] = float(mesh.size() if factor is None else factor)
    missing = [i for i, param in enumerate(params) if id(param) not in divisors]
    if missing:
        raise InvalidInput(f"Every parameter must be one that FSDP2 shards, but numbers {missing} are not.")
    return [divisors[id(param)] for param in params]


def sharded_gradient(
    value: Tensor,
    params: Sequence[Tensor],
    divisors: Sequence[float],
    *,
    others: Sequence[Tensor] = (),
    retain_graph: bool = False,
) -> list[Tensor | None]:
    """Differentiate the sum over processes of their values.

    Every process must call this at the same time, for the same term. A value that counts n times in this process must
    be given as ``n * value``. `.grad` stays as it was. Hooks that wait for it are not called, since a hook may step an
    optimizer.

    Parameters
    ----------
    value : scalar tensor
        From a forward through the sharded model.
    params : sequence of tensor
        The shards to differentiate by.
    divisors : sequence of float
        As `gradient_divisors` returns them.
    others : sequence of tensor, default ()
        The other trainable parameters of the model.
    retain_graph : bool, default False
        Whether another value of the same forward will be differentiated.

    Returns
    -------
    list of tensor or None
        The local shards of the gradient; None if the value does not depend on a parameter.
    """
    with _kept([*params, *others]):
        value.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        return [
            None if param.grad is None else local(param.grad) * divisor
            for param, divisor in zip(params, divisors, strict=True)
        ]


@contextmanager
def _kept(params: Sequence[Tensor]) -> Iterator[None]:
    """Return a context in which `.grad` is free to use and no hook waits for it; both are restored at its end."""
    grads = [param.grad for param in params]
    hooks = [cast(Any, param)._post_accumulate_grad_hooks or {} for param in params]
    waiting = [dict(hook) for hook in hooks]
    try:
        for param, hook in zip(params, hooks, strict=True):
            param.grad = None
            hook.clear()
        yield
    finally:
        for param, grad, hook, before in zip(params, grads, hooks, waiting, strict=True):
            param.grad = grad
            hook.update(before)


def _param_groups(model: nn.Module) -> Iterator[Any]:
    """Yield FSDP2's records of its parameters, each once. They are private, and their names differ between versions."""
    seen: set[int] = set()
    for module in fsdp_modules(model):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        for group in [state._fsdp_param_group] if groups is None else groups:
            if group is not None and id(group) not in seen:
                seen.add(id(group))
                yield group


def _waits(param: Any) -> bool:
    """Return whether a record of FSDP2 holds a gradient that is not yet summed over processes."""
    gathered = getattr(param, "_unsharded_param", None)
    return param.unsharded_accumulated_grad is not None or (gathered is not None and gathered.grad is not None)
