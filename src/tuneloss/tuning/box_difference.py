"""How two boxes differ, in words: the weights by name, with what was found and what is wanted."""

from __future__ import annotations

from tuneloss.core.box import Box

MOST = 4  # differences that are listed; of more, their number


def box_difference(found: Box, wanted: Box) -> str:
    """Say which weights differ between the box that was found and the one that is wanted; empty if none do.

    Examples
    --------
    >>> found = Box.from_dict({"l2": (0.0, 10.0), "l1": (0.0, None), "logloss": 1.0})
    >>> wanted = Box.from_dict({"l2": (0.0, 99.0), "smooth": (0.0, 1.0), "logloss": 1.0})
    >>> box_difference(found, wanted)
    "'l2' from 0 to 10, not from 0 to 99; 'l1', which is not wanted; no 'smooth'"
    """
    if found.is_simplex != wanted.is_simplex:
        return names_difference(found, wanted)
    old, new = ({name: _range(box, j) for j, name in enumerate(box.names)} for box in (found, wanted))
    changed = [f"{name!r} {old[name]}, not {new[name]}" for name in old if name in new and old[name] != new[name]]
    return _listed(changed + _names_changed(found, wanted))


def names_difference(found: Box, wanted: Box) -> str:
    """Say how the names of the weights differ, or their order, or that one box is a simplex; empty if nothing does.

    Examples
    --------
    >>> names_difference(Box([0, 1], [1, 1], ["l2", "fit"]), Box([1, 0], [1, 9], ["fit", "l2"]))
    "'l2' as weight 1, not 'fit'"
    """
    if found.is_simplex != wanted.is_simplex:
        return "a simplex, not ranges" if found.is_simplex else "ranges, not a simplex"
    return _listed(_names_changed(found, wanted))


def _names_changed(found: Box, wanted: Box) -> list[str]:
    """Return the names that only one of the boxes has; if there are none, the first one in another place."""
    changed = [f"{name!r}, which is not wanted" for name in found.names if name not in wanted.names]
    changed += [f"no {name!r}" for name in wanted.names if name not in found.names]
    if changed:
        return changed
    pairs = enumerate(zip(found.names, wanted.names, strict=True), start=1)
    return [f"{one!r} as weight {i}, not {other!r}" for i, (one, other) in pairs if one != other][:1]


def _listed(changed: list[str]) -> str:
    more = len(changed) - MOST
    return "; ".join([*changed[:MOST], *([f"and {more} more"] if more > 0 else [])])


def _range(box: Box, j: int) -> str:
    """Return a range in words, with all digits: different ranges have different words."""
    low, high = (repr(float(bounds[j])).removesuffix(".0") for bounds in (box.lower, box.upper))
    return f"fixed at {low}" if low == high else f"from {low} to {high}"
