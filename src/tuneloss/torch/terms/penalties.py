"""Penalties: functions of parameters. Those of this package have closed forms; autograd differentiates any other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.shards import is_shard, local_part
from tuneloss.torch.terms.selection import Patterns, Select, in_groups
from tuneloss.torch.terms.source import check_scalar


class Penalty(nn.Module):
    """A term that is a function of parameters, so that it needs no data.

    A penalty of your own is a subclass that defines `total`, or a subclass of `OneWeightAGroup` that defines `value`.

    It is of the model's matrices and kernels, without biases and norms, as people expect of weight decay. A tied
    parameter counts once, a frozen one not at all.

    params: other parameters: a pattern of names ("encoder.*"), several, or a function (name, parameter) -> bool.
    groups: {group: pattern or patterns}: each group has a weight of its own, called "l2/group" if the term is "l2".
        `by_layer(model)` makes one group a layer.
    """

    name = "penalty"
    entrywise: ClassVar[bool] = False

    def __init__(self, params: Select | None = None, *, groups: Mapping[str, Patterns] | None = None) -> None:
        super().__init__()
        if params is not None and groups is not None:
            raise InvalidInput("A penalty takes `params` or `groups`; found both. Put the patterns into `groups`.")
        if groups is not None and not groups:
            raise InvalidInput("`groups` of a penalty must not be empty; found {}. Leave it out for one weight.")
        self.groups: dict[str, Select | None] = {"": params} if groups is None else dict(groups)
        self._asked: tuple[object, dict[str, int]] = ((), {})

    @property
    def is_entrywise(self) -> bool:
        """Whether it is a sum over single entries of parameters, so that it can be taken block by block.

        Its class must say `entrywise = True` itself: a subclass may change the value, so it does not inherit that.
        """
        return bool(vars(type(self)).get("entrywise", False))

    def labels(self) -> list[str]:
        """What its weights are called after the term's own name, one a weight; "" if it has one only."""
        return list(self.groups)

    def members(self, params: Mapping[str, Tensor]) -> dict[str, int]:
        """{name of a parameter: number of its group}."""
        asked = tuple((name, p.shape) for name, p in params.items())
        if asked != self._asked[0]:
            self._asked = (asked, in_groups(self.groups, params))
        return self._asked[1]

    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        """Sum of weight times value over its weights, to be differentiated: what a training step needs.

        Of a sharded parameter (FSDP2) it is the local part: its gradient is right, its value the local share.
        """
        raise NotImplementedError(
            f"A penalty must define `total`, or `value` (OneWeightAGroup); {_kind(self)} does not."
        )


class OneWeightAGroup(Penalty):
    """A penalty whose groups have one weight each: the sum of `value` over the parameters of a group.

    >>> class GroupLasso(OneWeightAGroup):
    ...     def value(self, x):
    ...         return x.norm(dim=1).sum()
    >>> GroupLasso().total({"weight": torch.tensor([[3.0, 4.0], [0.0, 2.0]])}, [0.5])
    tensor(3.5000)
    """

    def value(self, x: Tensor) -> Tensor:
        """The value at one parameter x, a scalar: a function of the whole tensor, or of each entry if `entrywise`."""
        raise NotImplementedError(f"A penalty with one weight per group must define `value`; {_kind(self)} does not.")

    def slope(self, x: Tensor) -> Tensor:
        """The gradient of `value` at x, of the same shape."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.value(x), x)
        return gradient

    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        parts = []
        for name, group in self.members(params).items():
            if weights[group] != 0:
                if is_shard(params[name]) and not self.is_entrywise:
                    raise _needs_whole_parameters(_kind(self))
                parts.append(weights[group] * self.value(local_part(params[name])))
        return add(parts)


class L1(OneWeightAGroup):
    """Sum of |parameter|. Its gradient at 0 is 0.

    >>> import torch
    >>> L1().total({"weight": torch.tensor([[1.0, -3.0]])}, [0.5])
    tensor(2.)
    """

    name = "l1"
    entrywise = True

    def value(self, x: Tensor) -> Tensor:
        return x.abs().sum()

    def slope(self, x: Tensor) -> Tensor:
        return x.sign()


class L2(OneWeightAGroup):
    """Sum of parameter². Under plain SGD a weight of w does what `weight_decay=2 * w` does.

    >>> L2(groups={"first": "0.*", "last": "2.*"}).labels()
    ['first', 'last']
    """

    name = "l2"
    entrywise = True

    def value(self, x: Tensor) -> Tensor:
        return x.square().sum()

    def slope(self, x: Tensor) -> Tensor:
        return 2 * x


def differentiate(
    term: str, penalty: Penalty, params: Mapping[str, Tensor], inside: Collection[str]
) -> Iterator[tuple[float, dict[str, Tensor]]]:
    """For each weight of a penalty: its value, and its gradient by name of the parameter, 0 where a name is missing.

    By autograd of `total` with one weight at 1 and the others at 0, over whole parameters: right for every
    differentiable penalty.

    term: its name in the loss. inside: the parameters to differentiate by.
    """
    if any(is_shard(p) for p in params.values()):
        raise _needs_whole_parameters(term)
    names = [name for name in params if name in inside]
    count = len(penalty.labels())
    for j in range(count):
        value = penalty.total(params, [float(i == j) for i in range(count)])
        check_scalar(term, value)
        if not value.requires_grad:
            raise InvalidInput(
                f"A penalty must depend on parameters that are trained; {term!r} does not. Leave it out, or check for "
                "a detach() or a no_grad() in it."
            )
        gradients = torch.autograd.grad(value, [params[name] for name in names], allow_unused=True)
        dense = {name: g.to_dense() for name, g in zip(names, gradients, strict=True) if g is not None}
        yield float(value.detach()), dense


def _needs_whole_parameters(penalty: str) -> InvalidInput:
    return InvalidInput(
        f"A penalty of your own must see whole parameters; under FSDP2 {penalty!r} would see shards of them. If it is "
        "a sum over single entries, subclass OneWeightAGroup and say `entrywise = True` in your class; else train "
        "with DistributedDataParallel."
    )


def _kind(penalty: Penalty) -> str:
    return type(penalty).__name__


def add(parts: Sequence[Tensor]) -> Tensor:
    """Their sum, on the first one's device."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part.to(total.device)
    return total
