"""Optuna's samplers, with the ask and tell of the other baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tuneloss.baselines.search import Search
from tuneloss.core.box import Box
from tuneloss.errors import InvalidInput
from tuneloss.tuning.sampling import ranges
from tuneloss.types import Array

Sampler = Literal["tpe", "gp"]


class OptunaSearch(Search):
    """TPE ("tpe") or a Gaussian process ("gp") as Optuna ships them; log scale where a range spans a decade or more."""

    def __init__(self, box: Box, sampler: Sampler, *, seed: int = 0, start: Mapping[str, float] | None = None) -> None:
        if sampler not in ("tpe", "gp"):
            raise InvalidInput(f'`sampler` must be "tpe" or "gp"; found {sampler!r}.')
        super().__init__(box, seed=seed, start=start)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        made = optuna.samplers.TPESampler if sampler == "tpe" else optuna.samplers.GPSampler
        self.sampler = made(seed=seed)
        r = ranges(box)
        self.distributions: dict[str, Any] = {
            name: optuna.distributions.FloatDistribution(float(r.low[j]), float(r.high[j]), log=bool(r.log[j]))
            for j, name in enumerate(box.names)
            if not box.pinned[j]
        }
        self._study = optuna.create_study(sampler=self.sampler)
        self._told = 0

    def propose(self) -> Array:
        """The next point; runs told since the last are put into the study first."""
        import optuna

        for run in self.history[self._told :]:
            seen = run.observation
            value = None if seen is None else seen.score
            params = {name: weight for name, weight in (run.weights or {}).items() if name in self.distributions}
            state = optuna.trial.TrialState.COMPLETE if seen else optuna.trial.TrialState.FAIL
            self._study.add_trial(
                optuna.trial.create_trial(params=params, distributions=self.distributions, value=value, state=state)
            )
        self._told = len(self.history)
        trial = self._study.ask(self.distributions)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)  # what came of it is added when it is told
        point = self.box.lower.copy()
        for j, name in enumerate(self.box.names):
            if name in trial.params:
                point[j] = trial.params[name]
        return np.clip(point, self.box.lower, self.box.upper)
