"""The tuners that are compared, by name: one ask and tell for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tuneloss import Box, LossTuner, Observation
from tuneloss.baselines.gp_ei_mcmc import GpEiMcmc
from tuneloss.baselines.optuna_search import OptunaSearch
from tuneloss.baselines.random_search import RandomSearch
from tuneloss.baselines.tunereg import TuneReg
from tuneloss.errors import InvalidInput


class Tuner(Protocol):
    """What an experiment needs of a tuner: weights to try next, and somewhere to put what came of them."""

    def ask(self) -> dict[str, float]: ...

    def tell(
        self,
        weights: Mapping[str, float],
        observation: Observation | None = None,
        *,
        failed: str | None = None,
    ) -> object: ...


_MADE: dict[str, Callable[[Box, int, Mapping[str, float]], Tuner]] = {
    "tuneloss": lambda box, seed, start: LossTuner(box, seed=seed, start=start),
    "tuneloss-paper": lambda box, seed, start: LossTuner(
        box, seed=seed, start=start, objective="paper", epsilon="paper", fallback="random"
    ),
    "random": lambda box, seed, start: RandomSearch(box, seed=seed, start=start),
    "gp-ei-mcmc": lambda box, seed, start: GpEiMcmc(box, seed=seed, start=start),
    "tunereg": lambda box, seed, start: TuneReg(box, seed=seed, start=start),
    "tpe": lambda box, seed, start: OptunaSearch(box, "tpe", seed=seed, start=start),
    "gp": lambda box, seed, start: OptunaSearch(box, "gp", seed=seed, start=start),
}
TUNERS = tuple(_MADE)
LABELS = {
    "tuneloss": "TuneLoss (ours, calibrated)",
    "tuneloss-paper": "TuneLoss (paper's form)",
    "random": "random search",
    "gp-ei-mcmc": "GP-EI-MCMC",
    "tunereg": "TuneReg",
    "tpe": "Optuna TPE",
    "gp": "Optuna GP",
}

COLORS = {  # of Okabe and Ito: told apart without red and green; the same everywhere
    "tuneloss": "#0072B2",
    "tuneloss-paper": "#56B4E9",
    "random": "#7F7F7F",
    "gp-ei-mcmc": "#D55E00",
    "tunereg": "#009E73",
    "tpe": "#CC79A7",
    "gp": "#E69F00",
}


def make_tuner(name: str, box: Box, seed: int, start: Mapping[str, float]) -> Tuner:
    """The tuner of this name; all begin with the weights of `start`."""
    if name not in _MADE:
        raise InvalidInput(f"A tuner must be one of {', '.join(TUNERS)}; found {name!r}.")
    return _MADE[name](box, seed, start)
