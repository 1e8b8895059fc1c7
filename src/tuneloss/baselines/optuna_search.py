"""Samplers of Optuna, with the `ask` and `tell` of the other baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tuneloss.baselines.search import Search
from tuneloss.checks import as_integer
from tuneloss.core.box import Box
from tuneloss.errors import InvalidInput
from tuneloss.tuning.sampling import ranges
from tuneloss.types import Array

Sampler = Literal["tpe", "gp"]


class OptunaSearch(Search):
    """A sampler of Optuna. A range that spans a decade or more is on a log scale.

    Except for `n_startup`, the sampler has its default options.

    Parameters
    ----------
    box : Box
        The allowed weights.
    sampler : {"tpe", "gp"}
        `TPESampler` or `GPSampler`.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first.
    n_startup : int, optional
        Number of runs before the sampler builds a model; until then its points are random. By default it is 10, as in
        Optuna.

    Raises
    ------
    InvalidInput
        If there is no such sampler, or if `n_startup` is negative.
    """

    def __init__(
        self,
        box: Box,
        sampler: Sampler,
        *,
        seed: int = 0,
        start: Mapping[str, float] | None = None,
        n_startup: int | None = None,
    ) -> None:
        if sampler not in ("tpe", "gp"):
            raise InvalidInput(f'`sampler` must be "tpe" or "gp"; found {sampler!r}.')
        super().__init__(box, seed=seed, start=start)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        kind = optuna.samplers.TPESampler if sampler == "tpe" else optuna.samplers.GPSampler
        options: dict[str, Any] = {}
        if n_startup is not None:
            options["n_startup_trials"] = as_integer(n_startup, "n_startup", 0)
        self.sampler = kind(seed=seed, **options)
        r = ranges(box)
        self.distributions: dict[str, Any] = {
            name: optuna.distributions.FloatDistribution(float(r.low[j]), float(r.high[j]), log=bool(r.log[j]))
            for j, name in enumerate(box.names)
            if not box.pinned[j]
        }
        self._study = optuna.create_study(sampler=self.sampler)
        self._told = 0

    def propose(self) -> Array:
        """Add the runs told since the last call to the study, and return the next point."""
        import optuna

        for run in self.history[self._told :]:
            value = None if run.observation is None else run.observation.score
            params = {name: weight for name, weight in (run.weights or {}).items() if name in self.distributions}
            state = optuna.trial.TrialState.COMPLETE if run.observation else optuna.trial.TrialState.FAIL
            self._study.add_trial(
                optuna.trial.create_trial(params=params, distributions=self.distributions, value=value, state=state)
            )
        self._told = len(self.history)
        trial = self._study.ask(self.distributions)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)  # a trial with the outcome is added when it is told
        point = self.box.lower.copy()
        for j, name in enumerate(self.box.names):
            if name in trial.params:
                point[j] = trial.params[name]
        return np.clip(point, self.box.lower, self.box.upper)
