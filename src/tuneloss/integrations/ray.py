"""TuneLossSearch: a Ray Tune searcher that learns loss weights, on Ray's own OptunaSearch.

Ray saves a searcher by pickle, together with its experiment, about every ten seconds. The journal of this file is JSON
lines, holds each result as soon as it is told, and is read again without pickle.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from tuneloss.core.box import Box, check_box
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.extras import needs

with needs("ray", "ray", "optuna"):
    from optuna.distributions import FloatDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial, TrialState
    from ray.tune.search.optuna import OptunaSearch

    from tuneloss.integrations.optuna import TuneLossSampler
    from tuneloss.integrations.optuna_records import KEY
    from tuneloss.integrations.ray_journal import SearchJournal, Told

__all__ = ["TuneLossSearch", "reported"]

WEIGHTS = "weights"  # name of the weights in the configuration of a trial


def reported(observation: Observation, **further: Any) -> dict[str, Any]:
    """Return what a trial reports to Ray Tune: its error, and its observation as one string.

    Ray flattens nested results, so the observation travels as JSON.

    Parameters
    ----------
    observation : Observation
        The trained model.
    **further : object
        Other entries of the result, by name.

    Returns
    -------
    dict
        The argument of ``ray.tune.report``.

    Examples
    --------
    >>> result = reported(Observation(0.5, {"l2": 4.0, "logloss": 0.3}), epoch=3)
    >>> result["error"], result["epoch"], result["tuneloss"][:30]
    (0.5, 3, '{"error": 0.5, "features": [4.')
    """
    return {**further, "error": observation.error, KEY: json.dumps(observation.to_dict())}


class TuneLossSearch(OptunaSearch):
    """Searches the weights of a loss by LearnLoss, and all other parameters by another Optuna sampler.

    The configuration of a trial holds all weights of the box by name, as ``config["weights"]``. Other parameters are
    those of the tuner's ``param_space``. A trial reports its observation::

        tune.report(reported(observation))

    A trial whose last report has no observation teaches nothing, which a warning says. The search keeps away from the
    weights of failed trials.

    Parameters
    ----------
    box : Box
        The allowed weights.
    metric : str, default "error"
        The entry of a result that the other parameters should improve, unless the tuner names one.
    mode : {"min", "max"}, default "min"
        Whether less of it is better, unless the tuner says so.
    journal : path, optional
        A file on the driver that keeps each result as soon as it is told. ``Tuner.restore`` reads it, so that nothing
        told is lost if the driver is killed; Ray's own snapshots may be some trials old. A new search continues an
        existing one. `LossTuner` and ``tuneloss report`` read it, too.
    fallback : optuna.samplers.BaseSampler, optional
        As for `TuneLossSampler`.
    seed : int, optional
        As for `TuneLossSampler`.

    Examples
    --------
    >>> box = Box.from_dict({"l2": (0.1, 10.0), "logloss": 1.0})
    >>> search = TuneLossSearch(box, seed=0)
    >>> search.suggest("first trial")
    {'weights': {'l2': 1.0, 'logloss': 1.0}}
    >>> model = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])
    >>> search.on_trial_complete("first trial", reported(model))
    >>> round(search.suggest("second trial")["weights"]["l2"], 6)
    2.0
    """

    _ot_study: Any  # of Optuna, once the parameters are known

    def __init__(
        self,
        box: Box,
        *,
        metric: str = "error",
        mode: str = "min",
        journal: str | os.PathLike[str] | None = None,
        fallback: BaseSampler | None = None,
        seed: int | None = None,
    ) -> None:
        check_box(box)
        super().__init__(metric=metric, mode=mode, sampler=TuneLossSampler(box, fallback=fallback, seed=seed))
        self.box = box
        self._path = None if journal is None else os.path.abspath(journal)
        self._journal: SearchJournal | None = None

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Take over what the tuner says: its metric and mode, and the parameters that are not weights."""
        if self._space is not None:
            return False
        space = self.convert_search_space(config)
        taken = [name for name in (WEIGHTS, *self.box.names) if name in {*config, *space}]
        if taken:
            raise InvalidInput(
                f"`param_space` must not name {WEIGHTS!r} or weights of the box, which TuneLossSearch sets as "
                f"config[{WEIGHTS!r}]; found {taken}. Leave them out, or rename them."
            )
        for name, low, high in zip(self.box.names, self.box.lower, self.box.upper, strict=True):
            if low < high:
                space[name] = FloatDistribution(float(low), float(high))
        self._space = space
        self._metric, self._mode = metric or self._metric, mode or self._mode
        self._setup_study(self._mode or "min")
        self._journal = None if self._path is None else SearchJournal(self._path, self.box, space)
        self._read_journal()
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Return the configuration of a new trial."""
        if self._space is None:  # Ray does not call `set_search_properties` without a `param_space`
            self.set_search_properties(None, None, {})
        nested = super().suggest(trial_id) or {}
        params = self._ot_trials[trial_id].params
        others = {name.split("/")[0] for name in params if name not in self.box.names}  # "a/b" is "b" of a dict "a"
        return {name: nested[name] for name in others} | {WEIGHTS: self._weights(params)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Take in a result of a trial that goes on; Ray repeats trials that ended after its last snapshot."""
        if trial_id not in self._completed_trials:
            super().on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Learn from the last result of a trial, and keep it in the journal. A trial that Ray repeats counts once."""
        if trial_id in self._completed_trials:
            return
        asked = self._ot_trials[trial_id]
        if result and KEY in result:
            asked.set_user_attr(KEY, _as_record(result[KEY]))
        super().on_trial_complete(trial_id, result=result, error=error)
        trial = self._told(asked)
        if not trial.state.is_finished():  # Optuna does not take a metric that is NaN
            self._ot_study.tell(asked, state=TrialState.FAIL)
            trial = self._told(asked)
        if self._journal is not None:
            self._journal.append(Told(trial_id, trial, self._weights(trial.params)))

    def restore(self, checkpoint_path: str) -> None:
        """Continue from a snapshot of Ray, and from the journal if there is one."""
        super().restore(checkpoint_path)
        self._read_journal()

    def _told(self, asked: Trial) -> FrozenTrial:
        trial: FrozenTrial = self._ot_study.get_trials(deepcopy=False)[asked.number]
        return trial

    def _weights(self, params: dict[str, Any]) -> dict[str, float]:
        """Return all weights of the box by name, given the parameters of a trial."""
        pinned = zip(self.box.names, self.box.lower, strict=True)
        return self.box.as_dict(np.array([params.get(name, low) for name, low in pinned]))

    def _read_journal(self) -> None:
        """Tell the study all trials in the journal that it does not know yet."""
        for told in () if self._journal is None else self._journal.read():
            if told.trial_id in self._completed_trials:
                continue
            asked = self._ot_trials.get(told.trial_id)
            if asked is None:  # Ray's snapshot is older than this trial
                self._ot_study.add_trial(told.trial)
            else:
                for name, value in told.trial.user_attrs.items():
                    asked.set_user_attr(name, value)
                is_complete = told.trial.state == TrialState.COMPLETE  # Optuna finds the value of another one itself
                self._ot_study.tell(asked, told.trial.value if is_complete else None, state=told.trial.state)
            self._completed_trials.add(told.trial_id)


def _as_record(text: Any) -> Any:
    """Return the record of an observation; text that is no JSON stays as it is, and the sampler says what is wrong."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
