"""TuneLoss as a sampler of Optuna: loss weights by LearnLoss, all other parameters by another sampler."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from tuneloss.core.box import Box, check_box
from tuneloss.core.checks import Array, as_integer
from tuneloss.core.observation import Observation
from tuneloss.core.sample import nearby, same_point
from tuneloss.core.tune import LossTuner
from tuneloss.errors import InvalidInput

if TYPE_CHECKING:
    from optuna.study import Study

PATIENCE = 3  # trials with learned weights without a gain, after which the fallback samples the weights
KEY = "tuneloss"  # of the user attribute that holds the observation, and of the system attribute with what was asked


class Told(NamedTuple):
    """When a trial began and ended, its error or metric, and whether its weights were learned."""

    began: datetime
    ended: datetime
    score: float
    learned: bool


class TuneLossSampler(BaseSampler):
    """Samples the weights of a loss by LearnLoss, and all other parameters by another sampler.

    In the objective, suggest the free weights by their names in the box, and store what was observed of the model:

        weights = {name: trial.suggest_float(name, low, high) for ...}
        trial.set_user_attr("tuneloss", observation.to_dict())

    Where LearnLoss repeats itself, or three trials with learned weights brought no gain, `fallback` samples the weights
    too, until it finds a better model to learn from. Without one, a point near by is tried in the first case; so it is
    for a simplex, whose weights no other sampler would keep at a sum of 1. The sampler keeps nothing: it reads the
    trials of the study, so a study resumes, and workers share it. Trials without an observation, pruned ones and
    those whose observation cannot be read teach it nothing. Failed ones teach it where not to go: it keeps away from
    their weights (where a fallback may take over, it does not propose just these again). The value of a trial plays no
    part in LearnLoss: the error, or metric, of its observation does.

    box: the weights, by name. Pinned ones need not be suggested.
    fallback: an Optuna sampler, such as GPSampler(). Parameters that are not weights are always its task (TPESampler()
        without one).

    >>> import optuna
    >>> from tuneloss import Observation
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> def objective(trial):
    ...     l2 = trial.suggest_float("l2", 0.1, 10.0, log=True)
    ...     seen = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])
    ...     trial.set_user_attr("tuneloss", seen.to_dict())
    ...     return seen.error
    >>> box = Box.from_dict({"l2": (0.1, 10.0), "logloss": 1.0})
    >>> study = optuna.create_study(sampler=TuneLossSampler(box, seed=0))
    >>> study.optimize(objective, n_trials=2)
    >>> [round(trial.params["l2"], 6) for trial in study.trials]
    [1.0, 2.0]
    """

    def __init__(self, box: Box, *, fallback: BaseSampler | None = None, seed: int | None = None) -> None:
        check_box(box)
        if fallback is not None and not isinstance(fallback, BaseSampler):
            raise InvalidInput(f"`fallback` must be an Optuna sampler; found a {type(fallback).__name__}.")
        self.box = box
        self.seed = _any_seed() if seed is None else as_integer(seed, "seed", 0)
        self._replaces = fallback is not None and not box.is_simplex
        self._others = TPESampler(seed=seed) if fallback is None else fallback

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._raise_error_if_multi_objective(study)
        return self._others.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        found: dict[str, Any] = {}
        for name, distribution in search_space.items():
            weight = self._weight(study, trial, name, distribution)
            if weight is not None:
                found[name] = weight
        if len(found) < len(search_space):
            found = self._others.sample_relative(study, trial, search_space) | found
        for name, distribution in search_space.items():
            if name not in found:
                found[name] = self._others.sample_independent(study, trial, name, distribution)
        return found

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        weight = self._weight(study, trial, param_name, param_distribution)
        if weight is not None:
            return weight
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._others.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._others.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self._others.reseed_rng()
        self.seed = _any_seed()

    def _weight(self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> float | None:
        """The weight of this name, or the nearest in the range that was asked for; None if another is to sample it."""
        if name not in self.box.names or not isinstance(distribution, FloatDistribution) or distribution.step:
            return None
        point = self._point(study, trial)
        if point is None:
            return None
        return float(np.clip(point[self.box.names.index(name)], distribution.low, distribution.high))

    def _point(self, study: Study, trial: FrozenTrial) -> Array | None:
        """The weights of this trial (k,), or None if the fallback is to sample them; the same at each call.

        They are kept in a system attribute of the trial, where other workers see that it has taken them.
        """
        kept = study._storage.get_trial(trial._trial_id).system_attrs
        if KEY not in kept:
            point = self._propose(study, trial)
            study._storage.set_trial_system_attr(trial._trial_id, KEY, None if point is None else point.tolist())
            return point
        return None if kept[KEY] is None else np.array(kept[KEY])

    def _propose(self, study: Study, trial: FrozenTrial) -> Array | None:
        tuner = LossTuner(self.box, seed=self.seed, fallback="repeat" if self._replaces else "nearby")
        taken, told = self._tell_all(tuner, study, trial)
        if self._replaces and idle_trials(told) >= PATIENCE:
            return None
        point = self.box.as_array(tuner.ask())
        if not any(same_point(point, other) for other in taken):
            return point
        rng = np.random.default_rng([self.seed, trial.number])
        return None if self._replaces else nearby(self.box, point, rng)

    def _tell_all(self, tuner: LossTuner, study: Study, trial: FrozenTrial) -> tuple[list[Array], list[Told]]:
        """Tell the tuner of all other trials; returns weights that are not to be proposed again, and what was told."""
        taken: list[Array] = []
        scores: list[Told] = []
        unknown = 0
        for other in study.get_trials(deepcopy=False):
            if other.number == trial.number:
                continue
            point = self._weights(other)
            unknown += (
                other.state == TrialState.RUNNING and KEY not in other.system_attrs and other.number < trial.number
            )
            weights = None if point is None else self.box.as_dict(point)
            told = other.state == TrialState.COMPLETE and self._tell(tuner, weights, other)
            if told and other.datetime_start and other.datetime_complete and (seen := tuner.history[-1].observation):
                learned = other.system_attrs.get(KEY) is not None
                scores.append(Told(other.datetime_start, other.datetime_complete, seen.score, learned))
            if point is not None and weights is not None:
                if other.state == TrialState.FAIL:
                    tuner.tell(weights, failed="the trial failed")
                elif other.state == TrialState.RUNNING:
                    tuner.reserve(weights)
                if self._replaces or not told:
                    taken.append(point)
        for _ in range(unknown):
            tuner.ask()  # what a trial will ask that began just before this one
        return taken, scores

    def _tell(self, tuner: LossTuner, weights: dict[str, float] | None, trial: FrozenTrial) -> bool:
        """Tell the observation of a trial; False if it has none that can be used."""
        if KEY not in trial.user_attrs:
            return False
        try:
            tuner.tell(weights, Observation.from_dict(trial.user_attrs[KEY]))
        except InvalidInput as reason:
            warnings.warn(f"Trial {trial.number} is left out, since {reason}", RuntimeWarning, stacklevel=2)
            return False
        return True

    def _weights(self, trial: FrozenTrial) -> Array | None:
        """The weights (k,) that a trial trains with; None if they are not known, or not in the box."""
        point = self.box.lower.copy()
        asked = trial.system_attrs.get(KEY)
        for j, name in enumerate(self.box.names):
            if name in trial.params:
                point[j] = trial.params[name]
            elif trial.state == TrialState.RUNNING and asked is not None:
                point[j] = asked[j]  # to be suggested yet
            elif not self.box.pinned[j]:
                return None
        try:
            return self.box.as_array(point)
        except InvalidInput:
            return None


def idle_trials(told: Sequence[Told]) -> int:
    """How many trials with learned weights have brought no gain, of those that began after the last one was known."""
    best, known, idle = math.inf, datetime.max, 0
    for one in sorted(told, key=lambda one: one.ended):
        if one.score < best:
            best, known, idle = one.score, one.ended, 0
        elif one.learned and one.began >= known:
            idle += 1
    return idle


def _any_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
