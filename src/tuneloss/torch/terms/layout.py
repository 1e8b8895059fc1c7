"""The layout of a loss: which weights belong to which term, and the box over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tuneloss.core.box import Bound, Box
from tuneloss.errors import InvalidInput
from tuneloss.torch.terms.penalties import Penalty
from tuneloss.torch.terms.piecewise import ConvexPiecewiseLinear

Bounds = Box | Mapping[str, Bound | Mapping[str, Bound]]
P = TypeVar("P", bound=Penalty, covariant=True)


class Placed(NamedTuple, Generic[P]):
    """A penalty of a loss, with its name and the positions of its weights in the loss."""

    name: str
    penalty: P
    positions: list[int]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the weights of all terms are.

    Parameters
    ----------
    box : Box
        The box over all weights, in their order.
    penalties, learned : tuple of Placed
        All penalties, and those whose form is learned.
    data : dict of str to int
        The position of the weight of each data term, by name.
    """

    box: Box
    penalties: tuple[Placed[Penalty], ...]
    learned: tuple[Placed[ConvexPiecewiseLinear], ...]
    data: dict[str, int]

    @property
    def term_names(self) -> list[str]:
        """The names of all terms, in the order of their first weights."""
        first = self.data | {name: positions[0] for name, _, positions in self.penalties}
        return sorted(first, key=first.__getitem__)

    def positions(self, name: str) -> list[int]:
        """Return the positions of all weights of a penalty, or the position of one weight, by its name."""
        for placed in self.penalties:
            if placed.name == name:
                return placed.positions
        if name not in self.box.names:
            raise InvalidInput(f"Weights must be named as in {list(self.box.names)}; found {name!r}.")
        return [self.box.names.index(name)]


def make_layout(
    bounds: Bounds, penalties: Sequence[tuple[str, Penalty]], data: Iterable[str], *, others: bool
) -> Layout:
    """Lay out the weights of a loss.

    Parameters
    ----------
    bounds : Box or mapping
        As for `loss_box`.
    penalties : sequence of (name, penalty)
        The penalties.
    data : iterable of str
        The names of the data terms that are known.
    others : bool
        Whether the bounds may name further data terms: those of callables whose names are known after their first call.

    Raises
    ------
    InvalidInput
        If two terms or weights have the same name, or the bounds are not those of the terms.
    """
    labels = [(name, penalty.labels()) for name, penalty in penalties] + [(name, [""]) for name in data]
    names = [name for term, term_labels in labels for name in weight_names(term, term_labels)]
    if len(set(names)) < len(names) or len(dict(labels)) < len(labels):
        raise InvalidInput(
            f"Terms and their weights must have different names; found {names}. Rename some in a dict of terms."
        )
    box = loss_box(bounds, dict(labels), others=others)
    place = {name: j for j, name in enumerate(box.names)}
    placed = tuple(Placed(n, p, [place[w] for w in weight_names(n, p.labels())]) for n, p in penalties)
    taken = {j for _, _, positions in placed for j in positions}
    learned = tuple(Placed(n, p, positions) for n, p, positions in placed if isinstance(p, ConvexPiecewiseLinear))
    return Layout(box, placed, learned, {name: j for name, j in place.items() if j not in taken})


def weight_names(term: str, labels: Sequence[str]) -> list[str]:
    """Return the full names of a term's weights.

    Examples
    --------
    >>> weight_names("l2", [""]), weight_names("l2", ["first", "last"])
    (['l2'], ['l2/first', 'l2/last'])
    """
    return [f"{term}/{label}" if label else term for label in labels]


def loss_box(bounds: Bounds, terms: Mapping[str, Sequence[str]], *, others: bool) -> Box:
    """Build the box over all weights of a loss.

    Parameters
    ----------
    bounds : Box or mapping
        A box over the full names, or ``{term: bound}``. A bound applies to each of the term's weights, unless it is
        itself a mapping ``{label: bound}``.
    terms : mapping of str to sequence of str
        The labels of each term's weights.
    others : bool
        Whether the bounds may name further terms, as for `make_layout`.
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


def _check_names(names: Sequence[str], terms: Sequence[str], *, others: bool) -> None:
    missing, unknown = [name for name in terms if name not in names], [name for name in names if name not in terms]
    if missing or (unknown and not others):
        raise InvalidInput(
            f"The box must have the names of the terms, {list(terms)}; missing {missing}, unknown {unknown}. Give "
            "each term a bound, e.g. (0, 1), or a number that pins it."
        )
