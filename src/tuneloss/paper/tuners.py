"""The tuners that are compared, by name. All of them have the same `ask` and `tell`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from tuneloss import Box, LossTuner, Observation
from tuneloss.baselines import GpEiMcmc, HypergradientLbfgs, OptunaSearch, RandomSearch, TuneReg
from tuneloss.errors import InvalidInput
from tuneloss.report import colors


class Tuner(Protocol):
    """What an experiment needs of a tuner: it proposes weights, and it is told the outcome."""

    def ask(self) -> dict[str, float]: ...

    def tell(
        self,
        weights: Mapping[str, float],
        observation: Observation | None = None,
        *,
        failed: str | None = None,
    ) -> object: ...


_MAKERS: dict[str, Callable[..., Tuner]] = {  # called with box, seed, start and options
    "tuneloss": LossTuner,
    "tuneloss-paper": partial(LossTuner, objective="paper", epsilon="paper", fallback="random"),
    "random": RandomSearch,
    "gp-ei-mcmc": GpEiMcmc,
    "tunereg": TuneReg,
    "tpe": partial(OptunaSearch, sampler="tpe"),
    "gp": partial(OptunaSearch, sampler="gp"),
    "gp-3": partial(OptunaSearch, sampler="gp", n_startup=3),
    "hypergradient": HypergradientLbfgs,
}
TUNERS = tuple(_MAKERS)
READ_TERMS = ("tuneloss", "tuneloss-paper", "tunereg")  # the other tuners use only the error of an observation
READ_HYPERGRADIENTS = ("hypergradient",)  # they are told the derivative of the error too: tell(..., derivative=...)
LABELS = {
    "tuneloss": "TuneLoss (ours)",
    "tuneloss-paper": "TuneLoss (paper's form)",
    "random": "random search",
    "gp-ei-mcmc": "GP-EI-MCMC",
    "tunereg": "TuneReg",
    "tpe": "Optuna TPE",
    "gp": "Optuna GP",
    "gp-3": "Optuna GP, 3 start-up trials",
    "hypergradient": "L-BFGS on hypergradients",
}

COLORS = {  # from the palette of Okabe and Ito, the same in every figure
    "tuneloss": colors.COLORS["TuneLoss"],
    "tuneloss-paper": "#56B4E9",
    "random": colors.COLORS["random search"],
    "gp-ei-mcmc": "#D55E00",
    "tunereg": "#009E73",
    "tpe": "#CC79A7",
    "gp": "#E69F00",
    "gp-3": "#F0E442",
    "hypergradient": "#000000",
}


def make_tuner(name: str, box: Box, seed: int, start: Mapping[str, float] | None, **options: Any) -> Tuner:
    """Build the tuner of this name.

    Parameters
    ----------
    name : str
        One of `TUNERS`.
    box : Box
        The allowed weights.
    seed : int
        Seed of the tuner.
    start : mapping of str to float, or None
        The weights to begin with; None to begin with the first proposal of the tuner.
    **options
        Further options of the tuner.

    Raises
    ------
    InvalidInput
        If there is no such tuner.
    """
    check_tuner(name)
    return _MAKERS[name](box, seed=seed, start=start, **options)


def check_tuner(name: str) -> None:
    """Raise `InvalidInput` unless this is the name of a tuner."""
    if name not in _MAKERS:
        raise InvalidInput(f"A tuner must be one of {', '.join(TUNERS)}; found {name!r}.")
