"""Penalties: terms that are functions of parameters, without data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.terms.columns import Columns, EntrywiseColumn, GradientColumn
from tuneloss.torch.terms.data_terms import as_scalar
from tuneloss.torch.terms.selection import Patterns, Select, in_groups
from tuneloss.torch.wrappers import is_shard, local_part


class Penalty(nn.Module, ABC):
    """A term that is a function of parameters, so that it needs no data.

    By default it applies to the model's matrices and kernels, but not to biases and norms, as is usual for weight
    decay. A tied parameter counts once, a frozen one not at all.

    Parameters
    ----------
    params : str, sequence of str or callable, optional
        The parameters: a pattern of names such as ``"encoder.*"``, several patterns, or a function
        ``(name, parameter) -> bool``.
    groups : mapping of str to str or sequence of str, optional
        Patterns by group, instead of `params`. Each group has its own weights, called ``"l2/group"`` if the term is
        called ``"l2"``. `by_layer` makes one group per layer.

    Raises
    ------
    InvalidInput
        If both `params` and `groups` are given, or `groups` is empty.

    Notes
    -----
    To write your own penalty, subclass `GroupPenalty` and define `value`. If it has other weights than one per group,
    subclass this class and define `total` and `labels`. An observation then computes its gradients by autograd.
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
        self._members: tuple[object, dict[str, int]] = ((), {})  # of the parameters asked for last

    @property
    def is_entrywise(self) -> bool:
        """Whether it is a sum over single entries of parameters, so that it can be evaluated block by block.

        The class itself must set ``entrywise = True``. This is not inherited, since a subclass may change the value.
        """
        return bool(vars(type(self)).get("entrywise", False))

    def labels(self) -> list[str]:
        """Return the names of its weights, without the name of the term; a single weight has the name ""."""
        return list(self.groups)

    def members(self, params: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the number of the group of each parameter that is in one, by name."""
        key = tuple((name, p.shape) for name, p in params.items())
        if key != self._members[0]:
            self._members = (key, in_groups(self.groups, params))
        return self._members[1]

    def members_by_group(self, params: Mapping[str, Tensor]) -> list[list[str]]:
        """Return the names of the parameters of each group."""
        members = self.members(params).items()
        return [[name for name, number in members if number == group] for group in range(len(self.groups))]

    @abstractmethod
    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        """Return the sum over its weights of weight times value, to be differentiated in a training step.

        Under FSDP2 it sees the local part of each parameter. The gradient is right, and the value is the local share.

        Parameters
        ----------
        params : mapping of str to tensor
            All parameters that are trained.
        weights : sequence of float
            Its weights, in the order of `labels`.

        Returns
        -------
        scalar tensor
        """

    def columns(
        self, term: str, positions: Sequence[int], params: Mapping[str, Tensor], inside: Collection[str]
    ) -> Sequence[Columns]:
        """Return its columns of the jacobian. The default, autograd of `total`, is right for every penalty.

        Parameters
        ----------
        term : str
            Its name in the loss.
        positions : sequence of int
            The positions of its weights in the loss.
        params : mapping of str to tensor
            All parameters that are trained.
        inside : collection of str
            The names of the parameters to differentiate by.
        """
        gradients = differentiate(term, self, params, inside)
        return [GradientColumn([j], g.keys(), value, g) for j, (value, g) in zip(positions, gradients, strict=True)]

    def has_closed_form(self, total: Callable[..., Tensor]) -> bool:
        """Return whether the closed form of a method `total` is right: it is entrywise, and does not override it."""
        return self.is_entrywise and type(self).total is total


class GroupPenalty(Penalty):
    """A penalty with one weight per group: the sum of `value` over the parameters of the group.

    Parameters
    ----------
    params, groups
        As for `Penalty`.

    Notes
    -----
    A subclass defines `value`. If the value is a sum over single entries, set ``entrywise = True`` in the class. Then
    the penalty is evaluated block by block, and works under FSDP2.

    Examples
    --------
    >>> class GroupLasso(GroupPenalty):
    ...     def value(self, x):
    ...         return x.norm(dim=1).sum()
    >>> GroupLasso().total({"weight": torch.tensor([[3.0, 4.0], [0.0, 2.0]])}, [0.5])
    tensor(3.5000)
    """

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """Return the value at one parameter.

        Parameters
        ----------
        x : tensor
            The whole parameter; if `entrywise`, it may be some of its entries.

        Returns
        -------
        scalar tensor
        """

    def slope(self, x: Tensor) -> Tensor:
        """Return the gradient of `value`; by default by autograd.

        Parameters
        ----------
        x : tensor
            As for `value`.

        Returns
        -------
        tensor of the shape of x
        """
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.value(x), x)
        return gradient

    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        parts = []
        for name, group in self.members(params).items():
            if weights[group] != 0:
                if is_shard(params[name]) and not self.is_entrywise:
                    raise _needs_whole_parameters(type(self).__name__)
                parts.append(weights[group] * self.value(local_part(params[name])))
        return add(parts)

    def columns(
        self, term: str, positions: Sequence[int], params: Mapping[str, Tensor], inside: Collection[str]
    ) -> Sequence[Columns]:
        """Return one column per group: block by block if it is entrywise, else by autograd."""
        if not self.has_closed_form(GroupPenalty.total):
            return super().columns(term, positions, params, inside)
        # A subclass may have replaced `value` after `slope` was defined for it.
        of_value, of_slope = (next(c for c in type(self).__mro__ if name in vars(c)) for name in ("value", "slope"))
        slope = self.slope if issubclass(of_slope, of_value) else partial(GroupPenalty.slope, self)
        groups = zip(positions, self.members_by_group(params), strict=True)
        return [EntrywiseColumn([j], members, self.value, slope) for j, members in groups]


class L1(GroupPenalty):
    """The sum of the absolute values of the parameters. Its gradient at 0 is 0.

    Parameters
    ----------
    params, groups
        As for `Penalty`.

    Examples
    --------
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


class L2(GroupPenalty):
    """The sum of the squares of the parameters. Under plain SGD, a weight w acts like ``weight_decay=2 * w``.

    Parameters
    ----------
    params, groups
        As for `Penalty`.

    Examples
    --------
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
    """Yield the value and the gradient of each weight of a penalty, by autograd over whole parameters.

    It differentiates `total` with one weight at 1 and the others at 0.

    Parameters
    ----------
    term : str
        Its name in the loss.
    penalty : Penalty
    params : mapping of str to tensor
        All parameters that are trained.
    inside : collection of str
        The names of the parameters to differentiate by.

    Yields
    ------
    value : float
    gradient : dict of str to tensor
        By name of the parameter; a missing one is 0.
    """
    if any(is_shard(p) for p in params.values()):
        raise _needs_whole_parameters(term)
    names = [name for name in params if name in inside]
    count = len(penalty.labels())
    for j in range(count):
        value = as_scalar(term, penalty.total(params, [float(i == j) for i in range(count)]))
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
        "a sum over single entries, subclass GroupPenalty and say `entrywise = True` in your class; else train "
        "with DistributedDataParallel."
    )


def add(parts: Sequence[Tensor]) -> Tensor:
    """Sum scalars on the device of the first one."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part.to(total.device)
    return total
