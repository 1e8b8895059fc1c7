"""What keeps a sampler from learning from a complete trial, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from tuneloss.core.box import Box
from tuneloss.extras import needs
from tuneloss.integrations.optuna_records import KEY

with needs("optuna", "optuna"):
    from optuna.distributions import BaseDistribution, FloatDistribution

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def is_range(distribution: BaseDistribution) -> TypeGuard[FloatDistribution]:
    """Return whether a parameter can be any number between two bounds, as a weight can."""
    return isinstance(distribution, FloatDistribution) and not distribution.step


def problems(trial: FrozenTrial, box: Box) -> dict[str, str]:
    """Return what keeps a sampler from learning from a complete trial.

    Parameters
    ----------
    trial : optuna.trial.FrozenTrial
        The trial.
    box : Box
        The box of the sampler.

    Returns
    -------
    dict of str to str
        A sentence for each kind of problem: "observation" and "weights".
    """
    found = {}
    if KEY not in trial.user_attrs:
        found["observation"] = _without_observation(trial)
    free = [name for name, is_pinned in zip(box.names, box.pinned, strict=True) if not is_pinned]
    usable = {name for name, distribution in trial.distributions.items() if is_range(distribution)}
    unused = [name for name in free if name not in usable]
    if unused:
        found["weights"] = (
            "An objective must suggest each free weight of the box by its name, as a float without step; trial "
            f"{trial.number} suggested {list(trial.params)}, so TuneLossSampler cannot choose {unused}. Call e.g. "
            f"trial.suggest_float({unused[0]!r}, low, high), or pin the weight in the box."
        )
    return found


def _without_observation(trial: FrozenTrial) -> str:
    """Say that a trial has no observation, or that it has one by another name."""
    misnamed = [key for key, value in trial.user_attrs.items() if isinstance(value, Mapping) and "features" in value]
    what = f"an observation as user attribute {misnamed[0]!r}" if misnamed else "none"
    return (
        f"A trial must store an observation as user attribute {KEY!r}; trial {trial.number} has {what}, so "
        f"TuneLossSampler learns nothing from it. Call trial.set_user_attr({KEY!r}, observation.to_dict()) in the "
        "objective, or tune.report(reported(observation)) in Ray Tune."
    )
