"""Penalties: sums over parameters of a function of one parameter, with values and gradients in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.select import Patterns, Select, in_groups
from tuneloss.torch.shards import is_shard


class Penalty(nn.Module):
    """A term that is a sum over parameters, so that it needs no data.

    It is of the model's matrices and kernels, without biases and norms, as people expect of weight decay. A tied
    parameter counts once, a frozen one not at all.

    params: other parameters: a pattern of names ("encoder.*"), several, or a function (name, parameter) -> bool.
    groups: {group: pattern or patterns}: each group has a weight of its own, called "l2/group" if the term is "l2".
        `by_layer(model)` makes one group a layer.
    """

    name = "penalty"

    def __init__(self, params: Select | None = None, *, groups: Mapping[str, Patterns] | None = None) -> None:
        super().__init__()
        if params is not None and groups is not None:
            raise InvalidInput("A penalty takes `params` or `groups`; found both. Put the patterns into `groups`.")
        if groups is not None and not groups:
            raise InvalidInput("`groups` of a penalty must not be empty; found {}. Leave it out for one weight.")
        self.groups: dict[str, Select | None] = {"": params} if groups is None else dict(groups)
        self._asked: tuple[object, dict[str, int]] = ((), {})

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
        raise NotImplementedError


class OneWeightAGroup(Penalty):
    """A penalty whose groups have one weight each."""

    def value(self, x: Tensor) -> Tensor:
        """The value at the parameters x, a scalar."""
        raise NotImplementedError

    def slope(self, x: Tensor) -> Tensor:
        """Its gradient at the parameters x, of the same shape."""
        raise NotImplementedError

    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        parts = [
            weights[group] * self.value(own_part(params[name]))
            for name, group in self.members(params).items()
            if weights[group] != 0
        ]
        return add(parts)


class L1(OneWeightAGroup):
    """Sum of |parameter|. Its gradient at 0 is 0.

    >>> import torch
    >>> L1().total({"weight": torch.tensor([[1.0, -3.0]])}, [0.5])
    tensor(2.)
    """

    name = "l1"

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

    def value(self, x: Tensor) -> Tensor:
        return x.square().sum()

    def slope(self, x: Tensor) -> Tensor:
        return 2 * x


def own_part(p: Tensor) -> Tensor:
    """A parameter, or this process's shard of it, with the gradient's path kept."""
    return p.to_local() if is_shard(p) else p  # type: ignore[attr-defined]


def gathered(p: Tensor) -> Tensor:
    """All of a parameter, from every process that holds a shard of it; detached."""
    whole: Tensor = p.detach().full_tensor() if is_shard(p) else p.detach()  # type: ignore[attr-defined]
    return whole


def add(parts: Sequence[Tensor]) -> Tensor:
    """Their sum, on the first one's device."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part.to(total.device)
    return total
