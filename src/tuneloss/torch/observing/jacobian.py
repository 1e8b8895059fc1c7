"""The jacobian J of a model's outputs by its parameters, known by its products: J v forward, J' u backward.

Forward mode computes many products J v in one pass. Not every model allows it: dropout draws anew, and some operations
have no rule. Then J v is the derivative of J' u by u, which takes two passes backward for each v.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.func import functional_call, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

KEEP: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
AT_ONCE = 16  # products in one pass forward: memory grows with them
ALIKE = 1e-4  # of the largest output: how far a second forward may be from the first
Changes = Callable[[Sequence[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of the model, and which leaves of what it returned have a gradient.

    Parameters
    ----------
    args, kwargs
        The arguments.
    outputs : mapping of int to tensor
        The tensors with a gradient, with their graph, by their number among the leaves that were returned.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: Mapping[int, Tensor]


class Jacobian:
    """The jacobian of the outputs of some calls.

    Parameters
    ----------
    model : Module
        The model that was called.
    calls : sequence of Call
        The calls.
    used : sequence of int
        Which of their outputs to differentiate, counted over all calls.
    params : sequence of tensor
        The parameters to differentiate by.
    """

    def __init__(self, model: nn.Module, calls: Sequence[Call], used: Sequence[int], params: Sequence[Tensor]) -> None:
        outputs = [output for call in calls for output in call.outputs.values()]
        self.outputs, self.params = [outputs[i] for i in used], params
        self._changes = _forward_mode(model, calls, used, params) if used else None
        if used and self._changes is None:
            self._changes = _double_backward(self.outputs, params)

    def changes(self, vectors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return J v for each output, with vectors (r, ...) for each parameter."""
        return self._changes(vectors) if self._changes is not None else []

    def pulled(self, vectors: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """Return J' u for each parameter, with vectors (r, ...) or None for each output; None is 0."""
        used = [i for i, u in enumerate(vectors) if u is not None]
        if not used:
            return []
        return pull([self.outputs[i] for i in used], self.params, [vectors[i] for i in used])


def pull(outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Any]) -> list[Tensor | None]:
    """Pull vectors (r, ...) back from outputs to inputs; None is 0."""
    with suppress(RuntimeError):  # an operation without a rule for several vectors at once
        return list(grad(outputs, inputs, vectors, is_grads_batched=True, **KEEP))
    one_by_one = [grad(outputs, inputs, several, **KEEP) for several in zip(*vectors, strict=True)]
    return [None if column[0] is None else torch.stack(column) for column in zip(*one_by_one, strict=True)]


def _forward_mode(
    model: nn.Module, calls: Sequence[Call], used: Sequence[int], params: Sequence[Tensor]
) -> Changes | None:
    """Return a function that computes J v by calling the model again; None if the model does not allow it."""
    named = {id(p): name for name, p in model.named_parameters()}
    inputs = [x for call in calls for x in tree_leaves((call.args, dict(call.kwargs))) if isinstance(x, Tensor)]
    if any(id(p) not in named for p in params) or any(x.requires_grad for x in inputs):  # these may depend on params
        return None
    names, at = [named[id(p)] for p in params], tuple(p.detach() for p in params)

    def outputs(*values: Tensor) -> tuple[Tensor, ...]:
        replaced = dict(zip(names, values, strict=True))
        returned = []
        with sdpa_kernel(SDPBackend.MATH):
            for call in calls:
                leaves = tree_leaves(functional_call(model, replaced, call.args, dict(call.kwargs)))
                returned += [leaves[i] for i in call.outputs]
        return tuple(returned[i] for i in used)

    def again_and_changes(*vectors: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        again, changes = jvp(outputs, at, vectors)[:2]
        return again, changes

    try:
        with _attributes_kept(model), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what PyTorch loads for the first product
            again, _ = vmap(again_and_changes)(*(torch.zeros_like(p).unsqueeze(0) for p in at))
    except Exception:  # of whatever kind: the other way then says what is wrong, if anything is
        return None
    before = [output for call in calls for output in call.outputs.values()]
    if not all(_is_alike(a[0], before[i].detach()) for a, i in zip(again, used, strict=True)):
        return None
    several: Callable[..., tuple[Tensor, ...]] = vmap(lambda *vectors: jvp(outputs, at, vectors)[1], chunk_size=AT_ONCE)

    def changes(vectors: Sequence[Tensor]) -> Sequence[Tensor]:
        with _attributes_kept(model), torch.no_grad():  # other parameters may require gradients
            return several(*vectors)

    return changes


def _double_backward(outputs: Sequence[Tensor], params: Sequence[Tensor]) -> Changes:
    """Return a function that computes J v as the derivative of J' u, which is linear in u, in the direction v."""
    along = [torch.zeros_like(z, requires_grad=True) for z in outputs]
    by_param = grad(outputs, params, along, create_graph=True, **KEEP)
    at = [i for i, g in enumerate(by_param) if g is not None]
    pulled = [by_param[i] for i in at]
    if any(change is None for change in grad(pulled, along, pulled, **KEEP)):  # else J v would be 0 without a word
        raise RuntimeError("the graph of a gradient does not lead back to the outputs")
    return lambda vectors: pull(pulled, along, [vectors[i] for i in at])  # type: ignore[return-value]


@contextmanager
def _attributes_kept(model: nn.Module) -> Iterator[None]:
    """Return a context after which modules have the attributes that they had, such as activations that they keep."""
    before = [(module, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes in before:
            vars(module).update(attributes)
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]


def _is_alike(again: Tensor, before: Tensor) -> bool:
    return again.shape == before.shape and bool((again - before).abs().max() <= ALIKE * before.abs().max())
