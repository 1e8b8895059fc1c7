"""The box of a loss: bounds given by term, spread over the weights of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuneloss.core.box import Bound, Box
from tuneloss.errors import InvalidInput

Bounds = Box | Mapping[str, Bound | Mapping[str, Bound]]


def weight_names(term: str, labels: Sequence[str]) -> list[str]:
    """The full names of a term's weights.

    >>> weight_names("l2", [""]), weight_names("l2", ["first", "last"])
    (['l2'], ['l2/first', 'l2/last'])
    """
    return [f"{term}/{label}" if label else term for label in labels]


def loss_box(bounds: Bounds, terms: Mapping[str, Sequence[str]], *, others: bool) -> Box:
    """The box over all weights of a loss.

    bounds: a Box over the full names, or {term: bound}; a bound is for each of a term's weights, or itself a
        {label: bound}.
    terms: {term: labels of its weights}.
    others: whether further names are those of terms that will be known when they are first evaluated.
    """
    if isinstance(bounds, Box):
        names = [name for term, labels in terms.items() for name in weight_names(term, labels)]
        _check_names(bounds.names, names, others=others)
        return bounds
    if not isinstance(bounds, Mapping):
        raise InvalidInput(f"`box` must be a Box or {{term: (lower, upper)}}; found {type(bounds).__name__}.")
    _check_names(tuple(bounds), list(terms), others=others)
    spread: dict[str, Bound] = {}
    for term, bound in bounds.items():
        labels = terms.get(term, [""])
        if isinstance(bound, Mapping):
            if set(bound) != set(labels):
                raise InvalidInput(f"The bounds of {term!r} must be given for {list(labels)}; found {list(bound)}.")
            spread |= {name: bound[label] for name, label in zip(weight_names(term, labels), labels, strict=True)}
        else:
            spread |= dict.fromkeys(weight_names(term, labels), bound)
    return Box.from_dict(spread)


def _check_names(found: Sequence[str], terms: Sequence[str], *, others: bool) -> None:
    missing, unknown = [name for name in terms if name not in found], [name for name in found if name not in terms]
    if missing or (unknown and not others):
        raise InvalidInput(
            f"The box must have the names of the terms, {list(terms)}; missing {missing}, unknown {unknown}. Give "
            "each term a bound, e.g. (0, 1), or a number that pins it."
        )
