"""One observation from one or several processes: alone, replicas of a model (DDP), or shards of it (FSDP2).

Each process reads its own part of the data. The three classes say what is summed over processes, and when:

- `Alone`: nothing is summed.
- `Replicas`: every process holds every parameter. Gradients are summed over processes first, and the gram is computed
  from the sums. A sum of local grams would be wrong.
- `Shards`: every process holds a part of every parameter. `backward()` sums a gradient over processes and leaves a
  shard of it in each; the gram is the sum over processes of the grams of their shards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tuneloss.errors import InvalidInput
from tuneloss.torch.observing.fsdp import gradient_divisors, group_of_shards, sharded_gradient
from tuneloss.torch.observing.messages import (
    in_step,
    share_buffers,
    sum_over,
    sum_parts,
    symmetric,
    together,
    upper,
)
from tuneloss.torch.observing.sampling_noise import Gradient, Spread
from tuneloss.torch.wrappers import bare, fsdp_modules, is_shard, reshard, trainable

Batch = TypeVar("Batch")


class Numbers(NamedTuple):
    """What one process knows of an observation before it is summed over processes; float64 tensors on the CPU.

    Parameters
    ----------
    gram, noise : (k + 1, k + 1) tensor
        The gram, and the part of it that comes from the choice of batches.
    values : (k + 1,) tensor
        The values of all terms and of the error.
    examples : (k + 1,) tensor
        The numbers of examples that gradients of data terms and of the error were summed over; 0 for penalties.
    rest : (r,) tensor
        Other numbers that are sums over batches.
    """

    gram: Tensor
    noise: Tensor
    values: Tensor
    examples: Tensor
    rest: Tensor


class Processes(ABC):
    """The processes that observe a model together."""

    several = True  # then sums are checked, not parts, so that all processes raise and none waits
    may_merge = True  # whether a process may put batches together as it likes

    @abstractmethod
    def share_buffers(self, model: nn.Module) -> None:
        """Give every process the same buffers."""

    def together(self) -> AbstractContextManager[None]:
        """Return a context for reading all data: if it fails in one process, all of them raise."""
        return nullcontext()

    def read(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Return an iterator over the batches."""
        return batches

    def gradient(
        self, value: Tensor, n: float, params: Sequence[Tensor], *, retain_graph: bool
    ) -> tuple[Gradient, float]:
        """Differentiate a value that counts n times.

        Returns
        -------
        gradient : list of tensor or None
            By parameter; None if the value does not depend on it.
        times : float
            The number by which the caller must multiply the gradient.
        """
        return torch.autograd.grad(value, list(params), retain_graph=retain_graph, allow_unused=True), n

    @abstractmethod
    def in_any(self, flags: Sequence[bool]) -> list[bool]:
        """Return which of the flags are set in any process."""

    @abstractmethod
    def sum_gradients(self, gradients: Sequence[list[Tensor | None]], params: Sequence[Tensor]) -> None:
        """Sum gradients, lists by parameter, over processes; in place."""

    @abstractmethod
    def sum_spread(self, spread: Spread) -> tuple[Tensor, Tensor]:
        """Let a spread describe the parts of all processes; return the sums of sizes (d,) and of their products."""

    @abstractmethod
    def sum_numbers(self, numbers: Numbers, data: Sequence[int]) -> Numbers:
        """Return the numbers of all processes together; `data` are the columns of the data terms and the error."""


class Alone(Processes):
    """One process."""

    several = False

    def share_buffers(self, model: nn.Module) -> None:
        """Do nothing."""

    def in_any(self, flags: Sequence[bool]) -> list[bool]:
        return list(flags)

    def sum_gradients(self, gradients: Sequence[list[Tensor | None]], params: Sequence[Tensor]) -> None:
        """Do nothing."""

    def sum_spread(self, spread: Spread) -> tuple[Tensor, Tensor]:
        return _sums(spread.sizes)

    def sum_numbers(self, numbers: Numbers, data: Sequence[int]) -> Numbers:
        return numbers


class Replicas(Processes):
    """Processes that each hold the whole model, in `DistributedDataParallel`; messages are sent from a device."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self.group, self.device = group, device

    def share_buffers(self, model: nn.Module) -> None:
        share_buffers(model, self.group)

    def together(self) -> AbstractContextManager[None]:
        return together(self.group)

    def in_any(self, flags: Sequence[bool]) -> list[bool]:
        return _in_any(flags, self.group, self.device)

    def sum_gradients(self, gradients: Sequence[list[Tensor | None]], params: Sequence[Tensor]) -> None:
        for gradient in gradients:
            dense = [_zeros(p) if g is None else g for g, p in zip(gradient, params, strict=True)]
            sum_over(dense, self.group)
            gradient[:] = dense

    def sum_spread(self, spread: Spread) -> tuple[Tensor, Tensor]:
        """Join the parts of all processes; the share is the mean of their shares."""
        n, squares = _sums(spread.sizes)
        parts = [spread.products.reshape(-1), n, squares.reshape(-1), _share(spread)]
        products, n, squares, share = sum_parts(parts, self.group, self.device)
        spread.products, spread.share = products.view_as(spread.products), share[:-1] / share[-1]
        return n, squares.view_as(spread.products)

    def sum_numbers(self, numbers: Numbers, data: Sequence[int]) -> Numbers:
        """Sum what was summed over batches; the gram is known, and penalties are the same in every process."""
        parts = [numbers.values, numbers.examples, numbers.rest]
        summed, examples, rest = sum_parts(parts, self.group, self.device)
        values = numbers.values.clone()
        values[list(data)] = summed[list(data)]
        return numbers._replace(values=values, examples=examples, rest=rest)


class Shards(Processes):
    """Processes that each hold a part of every parameter, by FSDP2.

    Parameters
    ----------
    group : ProcessGroup
        The processes.
    device : torch.device
        The device that messages are sent from.
    params : sequence of tensor
        All parameters that are trained.
    divisors : sequence of float
        The number by which FSDP2 divides the gradient of each of them.
    """

    may_merge = False  # forwards exchange messages, so processes must make the same number of them

    def __init__(
        self, group: dist.ProcessGroup, device: torch.device, params: Sequence[Tensor], divisors: Sequence[float]
    ) -> None:
        self.group, self.device, self.params = group, device, params
        self.divisors = {id(p): divisor for p, divisor in zip(params, divisors, strict=True)}

    def share_buffers(self, model: nn.Module) -> None:
        share_buffers(model, self.group)

    def read(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        return in_step(batches, self.group)

    def gradient(
        self, value: Tensor, n: float, params: Sequence[Tensor], *, retain_graph: bool
    ) -> tuple[Gradient, float]:
        """Differentiate n times the value, since n may differ between the processes over which gradients are summed."""
        divisors, chosen = [self.divisors[id(p)] for p in params], {id(p) for p in params}
        others = [p for p in self.params if id(p) not in chosen]
        return sharded_gradient(n * value, params, divisors, others=others, retain_graph=retain_graph), 1.0

    def in_any(self, flags: Sequence[bool]) -> list[bool]:
        return _in_any(flags, self.group, self.device)

    def sum_gradients(self, gradients: Sequence[list[Tensor | None]], params: Sequence[Tensor]) -> None:
        """Do nothing: `backward()` has summed them."""

    def sum_spread(self, spread: Spread) -> tuple[Tensor, Tensor]:
        """Join one part of every process into each part; the share is the mean of their shares."""
        local_sizes = torch.tensor(spread.sizes, dtype=torch.float64)
        sizes, share = sum_parts([local_sizes.reshape(-1), _share(spread)], self.group, self.device)
        spread.share = share[:-1] / share[-1]
        return _sums(sizes.view_as(local_sizes).tolist())

    def sum_numbers(self, numbers: Numbers, data: Sequence[int]) -> Numbers:
        """Sum everything. There is no noise in the last row and column, those of the error."""
        gram, noise, values, examples, rest = numbers
        parts = [values, examples, rest, upper(gram), upper(noise[:-1, :-1])]
        values, examples, rest, gram_sum, noise_sum = sum_parts(parts, self.group, self.device)
        padded = nn.functional.pad(symmetric(noise_sum, len(gram) - 1), (0, 1, 0, 1))
        return Numbers(symmetric(gram_sum, len(gram)), padded, values, examples, rest)


def processes_of(model: nn.Module) -> Processes:
    """Return the processes that train a model.

    Parameters
    ----------
    model : Module
        The model as it is trained, with its wrappers: ``bare(model)`` no longer shows the processes.

    Raises
    ------
    InvalidInput
        If a sum over processes may be wrong: for a plain model among several processes, more than one group, a mesh of
        two dimensions (HSDP, tensor parallel), replicas of shards, FSDP1, trainable parameters that FSDP2 ignores, and
        gradients that are not yet synchronized.
    """
    inner = bare(model)
    if any(isinstance(module, DistributedDataParallel) for module in inner.modules()):
        raise InvalidInput(
            "DistributedDataParallel must be around the whole model, but a submodule is wrapped in it. "
            "Wrap the model that you observe, not its parts."
        )
    ddp = next((module for module in model.modules() if isinstance(module, DistributedDataParallel)), None)
    reshard(model)
    sharded = any(True for _ in fsdp_modules(model)) or any(is_shard(p) for p in model.parameters())
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise InvalidInput(
            "An observation needs FSDP2, but a module is wrapped in FullyShardedDataParallel (FSDP1). "
            "Shard with torch.distributed.fsdp.fully_shard instead."
        )
    if ddp is not None and sharded:
        raise InvalidInput("A model must be in DistributedDataParallel or sharded by FSDP2, but this one is both.")
    if ddp is None and not sharded:
        _check_alone(model)
        return Alone()
    group = group_of_shards(model) if ddp is None else ddp.process_group
    params = list(trainable(model).values())
    device = params[0].device
    return Replicas(group, device) if ddp else Shards(group, device, params, gradient_divisors(inner, params))


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


def _in_any(flags: Sequence[bool], group: dist.ProcessGroup, device: torch.device) -> list[bool]:
    (counts,) = sum_parts([torch.tensor(flags, dtype=torch.float64)], group, device)
    return (counts > 0).tolist()


def _sums(sizes: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
    """Return the sums over parts (m, d) of their sizes (d,), and of the products of sizes (d, d)."""
    table = torch.tensor(sizes, dtype=torch.float64)
    return table.sum(dim=0), table.T @ table


def _share(spread: Spread) -> Tensor:
    """Return the shares and a one: their sums over processes give the mean shares."""
    return torch.cat([spread.share, torch.ones(1, dtype=torch.float64)])


def _zeros(p: Tensor) -> Tensor:
    """Return the sum of no gradients of a parameter."""
    return torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32))
