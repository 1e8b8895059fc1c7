"""One observation from many processes: whose numbers are summed, and what a wrapped model hides.

Each process reads its own part of the data. Two ways to train so are known here:

- `DistributedDataParallel`: every process holds every parameter. A gradient is summed over processes first, and the
  gram is formed of the sums (a sum of local grams is something else).
- FSDP2 (`torch.distributed.fsdp.fully_shard`): every process holds a shard of every parameter. Only `backward()` sums
  a gradient over processes, and leaves its shard in `.grad`; the gram is the sum over processes of their shards' grams.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tuneloss.errors import InvalidInput

Batch = TypeVar("Batch")

# Parts that wrappers put into a parameter's name: torch.compile, activation checkpointing.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module"})


def bare(model: nn.Module) -> nn.Module:
    """The module inside `torch.compile`, `DistributedDataParallel` and `DataParallel`, in any nesting.

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
    """A name from `bare(model).named_parameters()` without the parts that wrapped submodules add.

    >>> clean_name("encoder._orig_mod.layers.0._checkpoint_wrapped_module.weight")
    'encoder.layers.0.weight'
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def eagerly(model: nn.Module) -> AbstractContextManager[Any]:
    """A context in which compiled submodules, and modules compiled in place, run as plain Python.

    A compiled graph gives its buffers away in its first backward, so it refuses a second one.
    """
    compiled = any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()  # only now: it imports dynamo


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP2 shards this model: some module is `fully_shard`-ed, or some parameter is a DTensor."""
    return any(True for _ in _fsdp_modules(model)) or any(is_shard(p) for p in model.parameters())


def is_shard(tensor: Tensor) -> bool:
    """Whether this tensor is one process's view of a sharded one (a DTensor)."""
    module = sys.modules.get("torch.distributed.tensor")  # not imported: then there is none
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """This process's shard of a DTensor, or the tensor itself: detached, not copied."""
    tensor = tensor.detach()
    return cast(Tensor, cast(Any, tensor).to_local()) if is_shard(tensor) else tensor


def reshard(model: nn.Module) -> None:
    """Free the gathered parameters of FSDP2, so that `model.parameters()` are the shards.

    FSDP2 keeps its root gathered after a forward, until a backward: `parameters()` are then plain tensors, and if
    an optimizer steps meanwhile, the next forward reads old values. So: before looking, and after the last forward.
    """
    for module in _fsdp_modules(model):
        module.reshard()


def group_of(model: nn.Module) -> dist.ProcessGroup | None:
    """The processes to sum over: those of DDP or of FSDP2, or None if `model` is neither.

    Ask with the model as it is trained, not with `bare(model)`, which has forgotten. Refuses what is not known to
    sum right: more than one group, a mesh of two dimensions (HSDP, tensor parallel), replicas, FSDP1, trainable
    parameters that FSDP2 ignores, gradients not yet synchronized.
    """
    ddp = _find_ddp(model)
    reshard(model)
    sharded = is_sharded(model)
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise InvalidInput(
            "An observation needs FSDP2, but a module is wrapped in FullyShardedDataParallel (FSDP1). "
            "Shard with torch.distributed.fsdp.fully_shard instead."
        )
    if ddp is not None and sharded:
        raise InvalidInput("A model must be in DistributedDataParallel or sharded by FSDP2, but this one is both.")
    if ddp is not None:
        return ddp.process_group
    return _group_of_shards(model) if sharded else None


def _find_ddp(model: nn.Module) -> DistributedDataParallel | None:
    """The DDP around the whole model; an error if there is one around a part of it only."""
    inside = bare(model)
    if any(isinstance(m, DistributedDataParallel) for m in inside.modules()):
        raise InvalidInput(
            "DistributedDataParallel must be around the whole model, but a submodule is wrapped in it. "
            "Wrap the model that you observe, not its parts."
        )
    chain = [m for m in model.modules() if isinstance(m, DistributedDataParallel)]
    return chain[0] if chain else None


def _group_of_shards(model: nn.Module) -> dist.ProcessGroup:
    """The one process group of all trainable parameters' meshes, each of one dimension and sharded."""
    groups: dict[int, dist.ProcessGroup] = {}
    by_fsdp = any(True for _ in _fsdp_modules(model))
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


def sum_over(tensors: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
    """Sum each tensor over the processes of the group, in place; nothing if there is no group.

    Neighbours of one kind go together in messages of at most 25 MB, since many small messages are slow.
    """
    if group is None:
        return
    for bucket in _buckets(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        dist.all_reduce(flat, group=group)
        for tensor, total in zip(bucket, torch.split(flat, [t.numel() for t in bucket]), strict=True):
            tensor.copy_(total.view_as(tensor))


def _buckets(tensors: Sequence[Tensor], size: int = 25 * 2**20) -> Iterator[list[Tensor]]:
    """Cut a list into runs of one dtype and device, each of at most `size` bytes or a single tensor."""
    bucket: list[Tensor] = []
    nbytes = 0
    for tensor in tensors:
        alike = not bucket or (tensor.dtype, tensor.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or nbytes + tensor.nbytes > size):
            yield bucket
            bucket, nbytes = [], 0
        bucket.append(tensor)
        nbytes += tensor.nbytes
    if bucket:
        yield bucket


def share_buffers(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Give every process the buffers of the first, such as batch-norm statistics; nothing if there is no group.

    Each process has averaged over its own batches. DDP does this in its forward, which `bare` goes round; with FSDP2
    nobody does, but it is the first process that saves them.
    """
    if group is None:
        return
    for buffer in (b.detach() for b in model.buffers() if not is_shard(b)):
        message = buffer.to(_device_of(group))
        dist.broadcast(message, src=dist.get_global_rank(group, 0), group=group)
        buffer.copy_(message)


@contextmanager
def together(group: dist.ProcessGroup | None) -> Iterator[None]:
    """If the block fails in one process, all of them raise after it: none waits in vain for the one that failed.

    For a block in which processes do not meet, so under DDP and not under FSDP2.
    """
    if group is None:
        yield
        return
    try:
        yield
    except Exception:
        _count([True], group)
        raise
    (failed,) = _count([False], group)
    if failed:
        raise InvalidInput(f"Every process must be able to observe, but {failed} of {group.size()} failed: see there.")


def in_step(batches: Iterable[Batch], group: dist.ProcessGroup | None) -> Iterator[Batch]:
    """Give the batches one by one; if a process has fewer than the others, or fails to read one, all of them raise.

    Every forward and backward of FSDP2 is a meeting of all processes: with one more batch a process would wait for
    ever. Two numbers are exchanged before each batch; `len` is not asked, since not all loaders have it.
    """
    if group is None:
        yield from batches
        return
    iterator, count = iter(batches), 0
    while True:
        failure: Exception | None = None
        batch: Any = _END
        try:
            batch = next(iterator, _END)
        except Exception as error:  # told to the others before it is raised here
            failure = error
        present, failed = _count([batch is not _END, failure is not None], group)
        if failure is not None:
            raise failure
        if failed:
            raise InvalidInput(f"Each process must read a batch, but {failed} of {group.size()} failed: see there.")
        if 0 < present < group.size():
            raise InvalidInput(
                f"Under FSDP2 each process must read as many batches, but after {count} batches "
                f"{group.size() - present} of {group.size()} processes had no more. "
                "Give each process as many batches; they may be of unequal size."
            )
        if batch is _END:
            return
        count += 1
        yield batch


def _count(flags: Sequence[bool], group: dist.ProcessGroup) -> list[int]:
    """In how many processes each flag is true."""
    message = torch.tensor(flags, dtype=torch.float32, device=_device_of(group))
    dist.all_reduce(message, group=group)
    return [int(number) for number in message.tolist()]


_END = object()


def gradient_divisors(model: nn.Module, params: Sequence[Tensor]) -> list[float]:
    """By what FSDP2 divides the sum over processes of each parameter's gradient; `params` are shards.

    The number of processes, or what the user said to `set_gradient_divide_factor`. Refuses a model whose next
    backward would not sum over processes, or would add to gradients that wait for their sum.
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
    """Local shards of the gradient of the sum over processes of their values; None where a term has none.

    A value that counts n times must come as n * value: n is a matter of this process, the sum is over all. Every
    process must call this at the same time, for the same term. `.grad` stays as it was, and no hook that waits for
    it is called (it may step an optimizer).

    value: scalar, of a forward through the sharded model. params: the shards, trainable. divisors: see
    `gradient_divisors`. others: further parameters of the model. retain_graph: there is more to come of this forward.
    """
    with _kept([*params, *others]):
        value.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        return [
            None if param.grad is None else local(param.grad) * divisor
            for param, divisor in zip(params, divisors, strict=True)
        ]


@contextmanager
def _kept(params: Sequence[Tensor]) -> Iterator[None]:
    """Within, `.grad` is free to use and nobody waits for it; after, both are as before."""
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


def _fsdp_modules(model: nn.Module) -> Iterator[Any]:
    module = sys.modules.get("torch.distributed.fsdp")
    if module is not None:
        yield from (m for m in model.modules() if isinstance(m, module.FSDPModule))


def _param_groups(model: nn.Module) -> Iterator[Any]:
    """FSDP2's own records, each once. No public door leads to them; their names differ between versions."""
    seen: set[int] = set()
    for module in _fsdp_modules(model):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        for group in [state._fsdp_param_group] if groups is None else groups:
            if group is not None and id(group) not in seen:
                seen.add(id(group))
                yield group


def _waits(param: Any) -> bool:
    """Whether a record of FSDP2 holds a gradient that is not yet summed over processes."""
    gathered = getattr(param, "_unsharded_param", None)
    return param.unsharded_accumulated_grad is not None or (gathered is not None and gathered.grad is not None)


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Where a message of this group must live: on the GPU under NCCL."""
    nccl = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
