"""What stands around a model, how to see through it, and which parameters are trained.

A model may be compiled, checkpointed, in DDP, or sharded by FSDP2 (`torch.distributed.fsdp.fully_shard`). While the
terms of a loss are evaluated, `SharedForward` stands for it. What only an observation needs of FSDP2 is in
`observing/fsdp.py`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten

from tuneloss.errors import InvalidInput

# Parts that wrappers put into a parameter's name: torch.compile, activation checkpointing.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module"})


def bare(model: Any) -> nn.Module:
    """Return the module inside `torch.compile`, DDP, `DataParallel` and `SharedForward`, in any nesting.

    Examples
    --------
    >>> net = nn.Linear(2, 1)
    >>> bare(nn.DataParallel(net)) is net
    True
    """
    while True:
        if isinstance(model, SharedForward):
            model = model._model
        elif isinstance(model, DistributedDataParallel | DataParallel):
            model = model.module
        elif "_orig_mod" in getattr(model, "_modules", ()):
            model = model._orig_mod
        else:
            return cast(nn.Module, model)


def clean_name(name: str) -> str:
    """Return a name from ``bare(model).named_parameters()`` without the parts that wrapped submodules add.

    Examples
    --------
    >>> clean_name("encoder._orig_mod.layers.0._checkpoint_wrapped_module.weight")
    'encoder.layers.0.weight'
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that are trained, by name. A tied parameter appears once, a frozen one not at all.

    Raises
    ------
    InvalidInput
        If the model is not a module, has lazy or complex parameters, or has none that is trained.
    """
    module = bare(model)
    if not isinstance(module, nn.Module):
        raise InvalidInput(
            f"`model` must be a torch.nn.Module; found a {type(model).__name__}. Give the model that is trained."
        )
    params = [(clean_name(name), p) for name, p in module.named_parameters()]
    if lazy := [name for name, tensor in (*params, *module.named_buffers()) if is_lazy(tensor)]:
        raise InvalidInput(
            f"Parameters and buffers must have shapes; found lazy ones that have none yet: {lazy}. Call the model once "
            "on a batch first."
        )
    trained: dict[str, Tensor] = {name: p for name, p in params if p.requires_grad}
    if not trained:
        raise InvalidInput(
            "The model must have parameters that are trained (requires_grad); found none. Unfreeze some, or give "
            "the model that the optimizer trains."
        )
    if complex_names := [name for name, p in trained.items() if p.is_complex()]:
        raise InvalidInput(
            f"Parameters that are trained must be real; found complex ones: {complex_names}. Keep real and imaginary "
            "parts as two real parameters and join them with torch.complex in the forward, or freeze them."
        )
    return trained


def eagerly(model: nn.Module) -> AbstractContextManager[Any]:
    """Return a context in which compiled submodules, and modules compiled in place, run as plain Python.

    A compiled graph frees its buffers in its first backward, so it refuses a second one.
    """
    compiled = any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()  # only now: it imports dynamo


class SharedForward:
    """A stand-in for a model while terms are evaluated: a call that several terms make is made once.

    So terms that all call ``model(batch[0])`` share one forward, and one draw of the model's own dropout. If one term
    makes the same call twice, as for two views under dropout, these are two forwards. No output is used again after an
    input, an output, a parameter, an attribute, a mode or the hooks of the model were changed, also by a forward. In
    code that `torch.compile` traces, such changes are not noticed. All other attributes are those of the model.

    Parameters
    ----------
    model : Module
        The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.__dict__["_model"] = model
        self.__dict__["_calls"] = []
        self.__dict__["_used"] = set()  # numbers of the calls that the present term has made

    def next_term(self) -> None:
        """Begin with another term."""
        self._used.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        autocast = [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
        state = (torch.is_grad_enabled(), *autocast)
        inputs, model = _Seen((args, kwargs)), _Seen.of(self._model)
        for number, (old_state, seen, result) in enumerate(self._calls):
            if number not in self._used and old_state == state and seen == (inputs, model, _Seen(result)):
                self._used.add(number)
                return result
        result = self._model(*args, **kwargs)
        self._used.add(len(self._calls))
        self._calls.append((state, (inputs, _Seen.of(self._model), _Seen(result)), result))
        return result

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


class _Seen:
    """What was seen of a tree of objects, or of a model: equal to another if both have the same objects, unchanged.

    Parameters
    ----------
    tree : object
        Tensors and other objects, in tuples, lists and dicts.
    numbers : sequence, default ()
        Further things to compare.
    """

    def __init__(self, tree: Any, numbers: Sequence[object] = ()) -> None:
        self.leaves, self.form = tree_flatten(tree)
        self.numbers = list(numbers)
        if not torch.compiler.is_compiling():  # it cannot be traced
            self.numbers += [x._version for x in self.leaves if isinstance(x, Tensor) and not x.is_inference()]

    @classmethod
    def of(cls, model: nn.Module) -> _Seen:
        """Return what is seen of a model: its attributes, parameters, modes and hooks."""
        if torch.compiler.is_compiling():
            return cls(())
        inner = bare(model)
        modules = list(inner.modules())
        attributes = [value for module in modules for value in vars(module).values()]
        hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules]
        seen = cls(list(inner.parameters()), [model.training, *hooks])
        seen.leaves += attributes  # not flattened: dicts of parameters and buffers stay the same objects
        return seen

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Seen) or self.numbers != other.numbers or self.form != other.form:
            return False
        return len(self.leaves) == len(other.leaves) and all(map(operator.is_, self.leaves, other.leaves))

    __hash__ = None  # type: ignore[assignment]


def is_shard(tensor: Tensor) -> bool:
    """Return whether a tensor is one process's view of a sharded one (a DTensor)."""
    module = sys.modules.get("torch.distributed.tensor")  # if it is not imported, there is no DTensor
    return module is not None and isinstance(tensor, module.DTensor)


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
