"""How the weights of a trial were proposed, as it is stored in an attribute of the trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tuneloss.tuning.proposals import Proposal

KEY = "tuneloss"  # name of the user attribute with the observation, and of the system attribute with the proposal


def record_of(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as JSON types."""
    return {"weights": proposal.point.tolist(), "form": proposal.form, "way": proposal.way}


def recorded_proposal(attributes: Mapping[str, Any], n_weights: int) -> Proposal | None:
    """Return the proposal in the system attributes of a trial; None if there is none, or if it is of another box.

    Studies of earlier versions hold a list of weights, without the form of the cost, or no way.
    """
    record = attributes.get(KEY)
    if record is None:
        return None
    if isinstance(record, list):
        record = {"weights": record, "form": None}
    proposal = Proposal(np.array(record["weights"]), record["form"], record.get("way", ""))
    return proposal if len(proposal.point) == n_weights else None


def origin(attributes: Mapping[str, Any], n_weights: int) -> dict[str, Any]:
    """Return the form and the way of the proposal, as `LossTuner.tell` and `Run` take them; {} without a proposal."""
    proposal = recorded_proposal(attributes, n_weights)
    return {} if proposal is None else {"form": proposal.form, "way": proposal.way}
