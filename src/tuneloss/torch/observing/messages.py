"""Messages between processes: sums, and errors that reach all processes, so that none waits for one that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.wrappers import is_shard

Batch = TypeVar("Batch")
MESSAGE = 25 * 2**20  # largest size of a message in bytes: as large as the buckets of DistributedDataParallel
_END = object()


def sum_over(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum each tensor over the processes of the group, in place.

    Neighbours of one dtype and device share a message, since many small messages are slow.
    """
    for bucket in _buckets(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        dist.all_reduce(flat, group=group)
        for tensor, total in zip(bucket, torch.split(flat, [t.numel() for t in bucket]), strict=True):
            tensor.copy_(total.view_as(tensor))


def sum_parts(parts: Sequence[Tensor], group: dist.ProcessGroup, device: torch.device) -> list[Tensor]:
    """Return the sums over processes of several vectors of one dtype, sent as one message from a device."""
    message = torch.cat(list(parts)).to(device)
    sum_over([message], group)
    return list(torch.split(message.cpu(), [len(part) for part in parts]))


def _buckets(tensors: Sequence[Tensor], size: int = MESSAGE) -> Iterator[list[Tensor]]:
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


def share_buffers(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Give every process the buffers of the first process, such as batch-norm statistics.

    Each process has averaged over its own batches. DDP shares buffers in its forward, which an observation does not
    call. FSDP2 never shares them; there too the first process is the one that saves them.
    """
    for buffer in (b.detach() for b in model.buffers() if not is_shard(b)):
        message = buffer.to(_device_of(group))
        dist.broadcast(message, src=dist.get_global_rank(group, 0), group=group)
        buffer.copy_(message)


@contextmanager
def together(group: dist.ProcessGroup) -> Iterator[None]:
    """Let all processes raise after the block if it fails in one of them, so that none waits for the one that failed.

    The processes must exchange no messages within the block.
    """
    try:
        yield
    except Exception:
        _count([True], group)
        raise
    (failed,) = _count([False], group)
    if failed:
        raise InvalidInput(
            f"Every process must be able to observe, but {failed} of {group.size()} failed. See their errors."
        )


def in_step(batches: Iterable[Batch], group: dist.ProcessGroup) -> Iterator[Batch]:
    """Yield the batches one by one; if a process has fewer than the others, or fails to read one, all of them raise.

    Every forward and backward of FSDP2 exchanges messages between all processes, so a process with one more batch would
    wait for ever. Therefore two numbers are exchanged before each batch. Lengths are not compared, since not all
    loaders have one.
    """
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
            raise InvalidInput(
                f"Each process must read a batch, but {failed} of {group.size()} failed. See their errors."
            )
        if 0 < present < group.size():
            raise InvalidInput(
                f"Under FSDP2 each process must read the same number of batches, but after {count} batches "
                f"{group.size() - present} of {group.size()} processes had no more. "
                "Give each process the same number of batches; they may be of unequal size."
            )
        if batch is _END:
            return
        count += 1
        yield batch


def _count(flags: Sequence[bool], group: dist.ProcessGroup) -> list[int]:
    """Count in how many processes each flag is true."""
    message = torch.tensor(flags, dtype=torch.float32, device=_device_of(group))
    dist.all_reduce(message, group=group)
    return [int(number) for number in message.tolist()]


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Return the device on which a message of this group must live: the GPU under NCCL."""
    nccl = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")


def upper(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix, row by row."""
    return matrix[tuple(torch.triu_indices(*matrix.shape))]


def symmetric(triangle: Tensor, n: int) -> Tensor:
    """Return the symmetric matrix (n, n) with this upper triangle.

    Examples
    --------
    >>> symmetric(upper(torch.tensor([[1, 2], [2, 3]])), 2)
    tensor([[1, 2],
            [2, 3]])
    """
    matrix = triangle.new_zeros(n, n)
    matrix[tuple(torch.triu_indices(n, n))] = triangle
    return matrix + matrix.triu(1).T
