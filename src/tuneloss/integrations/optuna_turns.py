"""Turns of trials that ask for weights at the same time, through the attributes that workers share.

A trial says that it asks, before it reads the other trials. It stores the weights that were proposed, and then waits
for earlier trials that asked when it read them. If one of these has stored the same weights, the later trial proposes
anew. An earlier trial that begins to ask after that reads the weights of the later one. So no two trials train with the
same proposal, and no worker waits for a later one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuneloss.extras import needs
from tuneloss.integrations.optuna_records import KEY

with needs("optuna", "optuna"):
    from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

ASKED_AT = "tuneloss-asked-at"  # name of the system attribute with the time at which a trial began to ask
UNDECIDED = "undecided"  # field of a proposal that its trial may still replace
LONGEST_WAIT = 10.0  # seconds; a trial that has asked for longer is taken for killed
MAX_LOOKS = 10  # proposals of a trial until it keeps the last one, as where a box is a single point
PAUSE = 0.01  # seconds between two looks


def begin_to_ask(storage: BaseStorage, trial: FrozenTrial) -> None:
    """Say in the storage that a trial asks for weights."""
    storage.set_trial_system_attr(trial._trial_id, ASKED_AT, time.time())


def undecided_before(trial: FrozenTrial, others: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return those of the other trials that come before this one and have no weights for certain yet."""
    return [other for other in others if other.number < trial.number and _is_undecided(other)]


def wait_for(storage: BaseStorage, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Wait until no trial among these asks for weights, and return the trials as they are then."""
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        now = [storage.get_trial(trial._trial_id) for trial in trials]
        if not any(map(_is_asking, now)) or time.monotonic() > deadline:
            return now
        time.sleep(PAUSE)


def _is_undecided(trial: FrozenTrial) -> bool:
    record = trial.system_attrs.get(KEY)
    has_decided = KEY in trial.system_attrs and not (isinstance(record, dict) and record.get(UNDECIDED))
    return not trial.state.is_finished() and not has_decided


def _is_asking(trial: FrozenTrial) -> bool:
    """Return whether a trial runs, has begun to ask, and may still decide."""
    began = trial.system_attrs.get(ASKED_AT)
    is_alive = began is not None and time.time() - began < LONGEST_WAIT
    return trial.state == TrialState.RUNNING and is_alive and _is_undecided(trial)
