"""Which parameters of a model a penalty applies to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from tuneloss.errors import InvalidInput
from tuneloss.torch.wrappers import trainable

Patterns = str | Sequence[str]
Select = Patterns | Callable[[str, Tensor], bool]


def matches(select: Select | None, name: str, p: Tensor) -> bool:
    """Return whether a parameter is selected by a pattern such as ``"*.weight"``, by one of several, or by a function.

    None selects what usually has weight decay: matrices and kernels, but not biases and norms.

    Examples
    --------
    >>> matches("encoder.*", "encoder.0.weight", Tensor(2, 2))
    True
    """
    if select is None:
        return p.ndim >= 2
    if callable(select):
        return bool(select(name, p))
    patterns = [select] if isinstance(select, str) else select
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)  # a name may hold a "["


def by_layer(model: nn.Module) -> dict[str, list[str]]:
    """Build groups for a penalty with one weight per layer.

    Parameters
    ----------
    model : Module
        The model.

    Returns
    -------
    dict of str to list of str
        The names of the weights of each layer, without biases and norms.

    Examples
    --------
    >>> by_layer(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1)))
    {'0': ['0.weight'], '2': ['2.weight']}
    """
    groups: dict[str, list[str]] = {}
    for name, p in trainable(model).items():
        if matches(None, name, p):
            groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return groups


def in_groups(groups: Mapping[str, Select | None], params: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the number of the group of each parameter that is in one, by name.

    Raises
    ------
    InvalidInput
        If a group has no parameter, or a parameter is in two groups.
    """
    numbers: dict[str, int] = {}
    for number, (group, select) in enumerate(groups.items()):
        names = [name for name, p in params.items() if matches(select, name, p)]
        if not names:
            raise InvalidInput(
                f"Each group of a penalty must have a parameter that is trained; found none for {group or 'all'!r} "
                f"({select if select is not None else 'matrices and kernels'}) among {list(params)}. "
                "Give `params` or `groups` patterns of these names."
            )
        if twice := [name for name in names if name in numbers]:
            raise InvalidInput(
                f"A parameter must be in one group of a penalty; found {twice} in two. Make the patterns of {group!r} "
                "narrower."
            )
        numbers |= dict.fromkeys(names, number)
    return numbers
