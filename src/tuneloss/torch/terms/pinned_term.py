"""The error that a tuner minimises if no other one is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tuneloss.errors import InvalidInput
from tuneloss.torch.terms.loss import LinearLoss


def pinned_term(loss: LinearLoss, remedy: str) -> Callable[[Any, Any], Tensor]:
    """Return the data term whose weight is pinned, as a callable ``(model, batch) -> mean over the batch``.

    Regularizers, and the terms of single data sources, do not count.

    Parameters
    ----------
    loss : LinearLoss
        The loss.
    remedy : str
        What the message says to do if there is no such term.

    Raises
    ------
    InvalidInput
        Unless there is exactly one.
    """
    others = loss.source_names | {term.known_name for term in loss.data_terms if term.regularizes}
    tasks = {name: j for name, j in loss.layout.data.items() if name not in others}
    pinned = [name for name, j in tasks.items() if loss.box.pinned[j] and loss.box.lower[j] != 0]
    if len(pinned) != 1:
        raise InvalidInput(
            "By default, the error is the data term whose weight is pinned, so there must be one; found "
            f"{pinned or 'none'}. {remedy}"
        )
    return lambda model, batch: loss.data_values(model, batch, pinned)[pinned[0]]
