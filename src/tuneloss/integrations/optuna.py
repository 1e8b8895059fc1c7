"""TuneLossSampler: an Optuna sampler that learns loss weights and leaves all other parameters to another sampler."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tuneloss.checks import as_integer
from tuneloss.core.box import Box, check_box
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.extras import needs
from tuneloss.integrations.optuna_advice import is_range, problems
from tuneloss.integrations.optuna_records import KEY, origin, record_of, recorded_proposal
from tuneloss.integrations.optuna_study import Outcome, StudyState, idle_trials
from tuneloss.integrations.optuna_turns import MAX_LOOKS, UNDECIDED, begin_to_ask, undecided_before, wait_for
from tuneloss.tuning.ask_tell import LossTuner
from tuneloss.tuning.proposals import MAX_TRIES, Fallback, Proposal
from tuneloss.tuning.sampling import nearby, same_point
from tuneloss.types import Array

with needs("optuna", "optuna"):
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler, TPESampler
    from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from optuna.study import Study

__all__ = ["TuneLossSampler"]

PATIENCE = 3  # trials of the tuner without a gain after which the fallback samples the weights


class TuneLossSampler(BaseSampler):
    """Samples the weights of a loss by LearnLoss, and all other parameters by another sampler.

    In the objective, suggest the free weights by their names in the box, and store the observation of the model::

        weights = {name: trial.suggest_float(name, low, high) for ...}
        trial.set_user_attr("tuneloss", observation.to_dict())

    LearnLoss uses the error or metric of the observation, not the value of the trial.

    Everything that the sampler knows is in the trials of the study. So a study can be resumed, and workers and threads
    can share it. The sampler ignores trials without an observation, pruned trials, and trials whose observation cannot
    be read. It keeps away from the weights of failed trials.

    Parameters
    ----------
    box : Box
        The allowed weights. Pinned weights need not be suggested.
    fallback : optuna.samplers.BaseSampler, optional
        The sampler of all parameters that are not weights; ``TPESampler()`` by default. A sampler that you pass also
        samples the weights when the tuner repeats itself, or when three of its trials brought no gain, until it finds
        a better model to learn from. Without one, or if the box is a simplex, a point near the repeated
        one is tried instead.
    seed : int, optional
        The seed of all random numbers; a random one by default.

    Examples
    --------
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
        self._fallback_takes_over = fallback is not None and not box.is_simplex
        self._others = TPESampler(seed=seed) if fallback is None else fallback
        self._warned: set[str] = set()  # kinds of problems that were said once
        self._clear_state()

    def _clear_state(self) -> None:
        self._lock = threading.RLock()  # threads that optimize one study ask one after another
        self._studies: WeakKeyDictionary[Study, StudyState] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_studies")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clear_state()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._raise_error_if_multi_objective(study)
        return self._others.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        params: dict[str, Any] = {}
        for name, distribution in search_space.items():
            weight = self._weight(study, trial, name, distribution)
            if weight is not None:
                params[name] = weight
        if len(params) < len(search_space):
            params = self._others.sample_relative(study, trial, search_space) | params
        for name, distribution in search_space.items():
            if name not in params:
                params[name] = self._others.sample_independent(study, trial, name, distribution)
        return params

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
        if state == TrialState.COMPLETE:
            for kind, sentence in problems(trial, self.box).items():
                if kind not in self._warned:
                    self._warned.add(kind)
                    warnings.warn(sentence, RuntimeWarning, stacklevel=2)

    def reseed_rng(self) -> None:
        self._others.reseed_rng()
        self.seed = _any_seed()
        self._clear_state()

    def _weight(self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> float | None:
        """Return the weight of this name, clipped to the suggested range; None if another sampler must choose it."""
        if name not in self.box.names or not is_range(distribution):
            return None
        point = self._point(study, trial)
        if point is None:
            return None
        return float(np.clip(point[self.box.names.index(name)], distribution.low, distribution.high))

    def _point(self, study: Study, trial: FrozenTrial) -> Array | None:
        """Return the weights (k,) of this trial, the same at each call; None if the fallback is to sample them.

        They are stored in a system attribute of the trial, where other workers see that the trial uses them.
        """
        with self._lock:
            attributes = study._storage.get_trial(trial._trial_id).system_attrs
            proposal = (
                recorded_proposal(attributes, len(self.box)) if KEY in attributes else self._reserve(study, trial)
            )
            return None if proposal is None else proposal.point

    def _reserve(self, study: Study, trial: FrozenTrial) -> Proposal | None:
        """Propose weights that no other trial has, and store them; see `optuna_turns` for workers that ask at once."""
        storage = study._storage
        begin_to_ask(storage, trial)
        for _ in range(MAX_LOOKS):
            trials = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
            proposal = self._propose(study, trial, trials)
            earlier = undecided_before(trial, trials)
            if proposal is None or not earlier:
                break
            storage.set_trial_system_attr(trial._trial_id, KEY, record_of(proposal) | {UNDECIDED: True})
            points = map(self._weights, wait_for(storage, earlier))
            if not any(point is not None and same_point(proposal.point, point) for point in points):
                break
        storage.set_trial_system_attr(trial._trial_id, KEY, None if proposal is None else record_of(proposal))
        return proposal

    def _propose(self, study: Study, trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> Proposal | None:
        """Return weights for a trial, given all other trials; None if the fallback is to sample them."""
        state = self._state_of(study, trials)
        if self._fallback_takes_over and idle_trials(state.outcomes) >= PATIENCE:
            return None
        running = [other for other in trials if other.state == TrialState.RUNNING]
        in_use = [point for other in running if (point := self._weights(other)) is not None]
        proposal = state.ask(in_use, n_unknown=sum(_is_about_to_ask(other, trial) for other in running))
        taken = np.array([*state.taken, *in_use]).reshape(-1, len(self.box))
        if not same_point(taken, proposal.point):
            return proposal
        if self._fallback_takes_over:
            return None
        rng = np.random.default_rng([self.seed, trial.number])
        points = (nearby(self.box, proposal.point, rng) for _ in range(MAX_TRIES))
        free = (point for point in points if not same_point(taken, point))
        return Proposal(next(free, proposal.point), proposal.form, "nearby")

    def _state_of(self, study: Study, trials: Sequence[FrozenTrial]) -> StudyState:
        """Return the state of the study after telling the tuner all ended trials, in the order of their ends."""
        state = self._studies.get(study)
        ended = {
            (other.datetime_complete, other.number): other
            for other in trials
            if other.state.is_finished() and other.datetime_complete is not None
        }
        new = sorted(when for when in ended if state is None or when > state.last)
        if state is None or state.n_trials + len(new) != len(ended):  # another process reported an earlier end
            fallback: Fallback = "repeat" if self._fallback_takes_over else "nearby"
            state, new = StudyState(LossTuner(self.box, seed=self.seed, fallback=fallback)), sorted(ended)
        for when in new:
            self._take_in(state, ended[when])
            state.last = when
            state.n_trials += 1
        self._studies[study] = state
        return state

    def _take_in(self, state: StudyState, trial: FrozenTrial) -> None:
        """Add a trial that has ended to the state, and tell it to the tuner."""
        point = self._weights(trial)
        observation = self._told_observation(state.tuner, trial, point)
        if observation is not None and trial.datetime_start and trial.datetime_complete:
            is_learned = trial.system_attrs.get(KEY) is not None
            state.outcomes.append(Outcome(trial.datetime_start, trial.datetime_complete, observation.score, is_learned))
        if point is None:
            return
        if trial.state == TrialState.FAIL:
            state.tuner.tell(point, failed="the trial failed", **origin(trial.system_attrs, len(self.box)))
        if self._fallback_takes_over or observation is None:
            state.taken.append(point)

    def _told_observation(self, tuner: LossTuner, trial: FrozenTrial, point: Array | None) -> Observation | None:
        """Tell the tuner the observation of a complete trial, and return it; None if there is no observation."""
        if trial.state != TrialState.COMPLETE or KEY not in trial.user_attrs or self._has_category(trial):
            return None
        try:
            observation = Observation.from_dict(trial.user_attrs[KEY])
            tuner.tell(point, observation, **origin(trial.system_attrs, len(self.box)))
        except InvalidInput as reason:
            warnings.warn(f"Trial {trial.number} is left out, since {reason}", RuntimeWarning, stacklevel=2)
            return None
        return observation

    def _weights(self, trial: FrozenTrial) -> Array | None:
        """Return the weights (k,) that a trial trains with; None if they are unknown or not in the box."""
        if self._has_category(trial):
            return None
        point = self.box.lower.copy()
        proposal = recorded_proposal(trial.system_attrs, len(self.box)) if trial.state == TrialState.RUNNING else None
        for j, name in enumerate(self.box.names):
            if name in trial.params:
                point[j] = trial.params[name]
            elif proposal is not None:
                point[j] = proposal.point[j]  # the trial has not suggested it yet
            elif not self.box.pinned[j]:
                return None
        try:
            return self.box.as_array(point)
        except InvalidInput:
            return None

    def _has_category(self, trial: FrozenTrial) -> bool:
        """Return whether a parameter with the name of a weight is no number. Such a trial says nothing of weights."""
        return any(not isinstance(trial.params.get(name, 0.0), Real) for name in self.box.names)


def _is_about_to_ask(other: FrozenTrial, trial: FrozenTrial) -> bool:
    """Return whether another trial, which began before this one, has no weights yet."""
    return KEY not in other.system_attrs and other.number < trial.number


def _any_seed() -> int:
    """Return a random seed."""
    return int(np.random.SeedSequence().generate_state(1)[0])
