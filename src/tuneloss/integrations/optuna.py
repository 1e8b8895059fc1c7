"""TuneLoss as a sampler of Optuna: loss weights by LearnLoss, all other parameters by another sampler."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from tuneloss.core.box import Box, check_box
from tuneloss.core.checks import as_integer
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.tuning.ask_tell import LossTuner
from tuneloss.tuning.sampling import nearby, same_point
from tuneloss.types import Array

if TYPE_CHECKING:
    from optuna.study import Study

__all__ = ["TuneLossSampler"]

PATIENCE = 3  # trials with learned weights without a gain, after which the fallback samples the weights
KEY = "tuneloss"  # of the user attribute that holds the observation, and of the system attribute with what was asked


class Told(NamedTuple):
    """When a trial began and ended, its error or metric, and whether its weights were learned."""

    began: datetime
    ended: datetime
    score: float
    learned: bool


@dataclass
class Known:
    """What is known of a study.

    tuner: told of all trials that have ended. told: the same in short. taken: weights not to be proposed again.
    n_trials, last: how many trials were told, and when the last of them ended, with its number.
    """

    tuner: LossTuner
    told: list[Told] = field(default_factory=list)
    taken: list[Array] = field(default_factory=list)
    n_trials: int = 0
    last: tuple[datetime, int] = (datetime.min, -1)

    def ask(self, in_use: Sequence[Array], n_unknown: int) -> Array:
        """The next weights, where others are in use, and so many trials are about to ask for theirs."""
        asked: list[Array] = []
        try:
            for point in in_use:
                self.tuner.reserve(point)
                asked.append(point)
            for _ in range(n_unknown + 1):
                asked.append(self.tuner.box.as_array(self.tuner.ask()))
            return asked[-1]
        finally:
            for point in asked:
                self.tuner.release(point)


class TuneLossSampler(BaseSampler):
    """Samples the weights of a loss by LearnLoss, and all other parameters by another sampler.

    In the objective, suggest the free weights by their names in the box, and store what was observed of the model:

        weights = {name: trial.suggest_float(name, low, high) for ...}
        trial.set_user_attr("tuneloss", observation.to_dict())

    Where LearnLoss repeats itself, or three trials with learned weights brought no gain, `fallback` samples the weights
    too, until it finds a better model to learn from. Without one, a point near by is tried in the first case; so it is
    for a simplex, whose weights no other sampler would keep at a sum of 1. All that it knows is in the trials of the
    study, so a study resumes, and workers and threads share it. Trials without an observation, pruned ones and
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
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # threads that optimize one study ask one after another
        self._studies: WeakKeyDictionary[Study, Known] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_studies")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

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
        self._forget()

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
        with self._lock:
            kept = study._storage.get_trial(trial._trial_id).system_attrs
            if KEY not in kept:
                point = self._propose(study, trial)
                study._storage.set_trial_system_attr(trial._trial_id, KEY, None if point is None else point.tolist())
                return point
            return None if kept[KEY] is None else np.array(kept[KEY])

    def _propose(self, study: Study, trial: FrozenTrial) -> Array | None:
        trials = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        known = self._known_of(study, trials)
        if self._replaces and idle_trials(known.told) >= PATIENCE:
            return None
        running = [other for other in trials if other.state == TrialState.RUNNING]
        in_use = [point for other in running if (point := self._weights(other)) is not None]
        point = known.ask(in_use, n_unknown=sum(_is_about_to_ask(other, trial) for other in running))
        if not any(same_point(point, other) for other in (*known.taken, *in_use)):
            return point
        rng = np.random.default_rng([self.seed, trial.number])
        return None if self._replaces else nearby(self.box, point, rng)

    def _known_of(self, study: Study, trials: Sequence[FrozenTrial]) -> Known:
        """What is known of the study, after all trials that have ended were told, in the order in which they did."""
        known = self._studies.get(study)
        ended = {
            (other.datetime_complete, other.number): other
            for other in trials
            if other.state.is_finished() and other.datetime_complete is not None
        }
        new = sorted(when for when in ended if known is None or when > known.last)
        if known is None or known.n_trials + len(new) != len(ended):  # another process told of an earlier end
            tuner = LossTuner(self.box, seed=self.seed, fallback="repeat" if self._replaces else "nearby")
            known, new = Known(tuner), sorted(ended)
        for when in new:
            self._tell(known, ended[when])
            known.last = when
            known.n_trials += 1
        self._studies[study] = known
        return known

    def _tell(self, known: Known, trial: FrozenTrial) -> None:
        """Tell a trial that has ended: an observation, if it is complete and has one, or that it failed."""
        point = self._weights(trial)
        weights = None if point is None else self.box.as_dict(point)
        observation = None
        if trial.state == TrialState.COMPLETE and KEY in trial.user_attrs:
            try:
                observation = Observation.from_dict(trial.user_attrs[KEY])
                known.tuner.tell(weights, observation)
            except InvalidInput as reason:
                observation = None
                warnings.warn(f"Trial {trial.number} is left out, since {reason}", RuntimeWarning, stacklevel=2)
        if observation is not None and trial.datetime_start and trial.datetime_complete:
            learned = trial.system_attrs.get(KEY) is not None
            known.told.append(Told(trial.datetime_start, trial.datetime_complete, observation.score, learned))
        if point is not None and weights is not None:
            if trial.state == TrialState.FAIL:
                known.tuner.tell(weights, failed="the trial failed")
            if self._replaces or observation is None:
                known.taken.append(point)

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


def _is_about_to_ask(other: FrozenTrial, trial: FrozenTrial) -> bool:
    """Whether another trial, which began before this one, is without its weights yet."""
    return KEY not in other.system_attrs and other.number < trial.number


def _any_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
