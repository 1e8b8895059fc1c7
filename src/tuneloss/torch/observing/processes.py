"""One observation from many processes: whose numbers are summed, and how none waits for another that failed.

Each process reads its own part of the data. Under `DistributedDataParallel` every process holds every parameter: a
gradient is summed over processes first, and the gram is formed of the sums (a sum of local grams is something else).
For FSDP2 see fsdp.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tuneloss.errors import InvalidInput
from tuneloss.torch.observing.fsdp import group_of_shards
from tuneloss.torch.shards import is_shard, is_sharded, reshard
from tuneloss.torch.wrappers import bare

Batch = TypeVar("Batch")


def group_of(model: nn.Module) -> dist.ProcessGroup | None:
    """The processes to sum over: those of DDP or of FSDP2, or None if there is one process only.

    Ask with the model as it is trained, not with `bare(model)`, which has forgotten. Refuses what is not known to
    sum right: a plain model among several processes, more than one group, a mesh of two dimensions (HSDP, tensor
    parallel), replicas, FSDP1, trainable parameters that FSDP2 ignores, gradients not yet synchronized.
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
    if sharded:
        return group_of_shards(model)
    _check_alone(model)
    return None


def _check_alone(model: nn.Module) -> None:
    """Raise if there are other processes, of which a plain model knows nothing: each would learn other weights."""
    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if size > 1:
        raise InvalidInput(
            "Among several processes the model must be wrapped, so that all of them learn the same weights; found a "
            f"plain {type(model).__name__} in one of {size} processes. Pass what DistributedDataParallel or "
            "fully_shard gave you, not the model inside (`.module`). If each process trains its own model, wrap it in "
            "DistributedDataParallel(model, process_group=dist.new_group([rank], use_local_synchronization=True))."
        )


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


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Where a message of this group must live: on the GPU under NCCL."""
    nccl = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")


def upper(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix, row by row."""
    return matrix[tuple(torch.triu_indices(*matrix.shape))]


def symmetric(triangle: Tensor, n: int) -> Tensor:
    """The symmetric matrix (n, n) of an upper triangle.

    >>> symmetric(upper(torch.tensor([[1, 2], [2, 3]])), 2)
    tensor([[1, 2],
            [2, 3]])
    """
    matrix = triangle.new_zeros(n, n)
    matrix[tuple(torch.triu_indices(n, n))] = triangle
    return matrix + matrix.triu(1).T
