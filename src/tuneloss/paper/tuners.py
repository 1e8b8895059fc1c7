"""The tuners that are compared, by name: one ask and tell for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from tuneloss import Box, LossTuner, Observation
from tuneloss.baselines.gp_ei_mcmc import GpEiMcmc
from tuneloss.baselines.optuna_search import OptunaSearch
from tuneloss.baselines.random_search import RandomSearch
from tuneloss.baselines.tunereg import TuneReg
from tuneloss.errors import InvalidInput
from tuneloss.report import colors


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


Maker = Callable[..., Tuner]  # of box, seed, start and options
_MADE: dict[str, Maker] = {
    "tuneloss": LossTuner,
    "tuneloss-paper": partial(LossTuner, objective="paper", epsilon="paper", fallback="random"),
    "random": RandomSearch,
    "gp-ei-mcmc": GpEiMcmc,
    "tunereg": TuneReg,
    "tpe": partial(OptunaSearch, sampler="tpe"),
    "gp": partial(OptunaSearch, sampler="gp"),
}
TUNERS = tuple(_MADE)
READ_TERMS = ("tuneloss", "tuneloss-paper", "tunereg")  # the others read the error of an observation alone
LABELS = {
    "tuneloss": "TuneLoss (ours)",
    "tuneloss-paper": "TuneLoss (paper's form)",
    "random": "random search",
    "gp-ei-mcmc": "GP-EI-MCMC",
    "tunereg": "TuneReg",
    "tpe": "Optuna TPE",
    "gp": "Optuna GP",
}

COLORS = {  # of Okabe and Ito: told apart without red and green; the same everywhere
    "tuneloss": colors.COLORS["TuneLoss"],
    "tuneloss-paper": "#56B4E9",
    "random": colors.COLORS["random search"],
    "gp-ei-mcmc": "#D55E00",
    "tunereg": "#009E73",
    "tpe": "#CC79A7",
    "gp": "#E69F00",
}


def make_tuner(name: str, box: Box, seed: int, start: Mapping[str, float] | None, **options: Any) -> Tuner:
    """The tuner of this name; all begin with the weights of `start`. options: of its own."""
    check_tuners([name])
    return _MADE[name](box, seed=seed, start=start, **options)


def check_tuners(names: Sequence[str]) -> None:
    """Raise unless these are names of tuners."""
    unknown = [name for name in names if name not in _MADE]
    if unknown:
        raise InvalidInput(f"A tuner must be one of {', '.join(TUNERS)}; found {unknown[0]!r}.")
