"""Other ways to choose the weights of a loss, with the same `ask` and `tell` as `LossTuner`.

search.py          Search, which all of them extend; Cube, the box as a unit cube
random_search.py   RandomSearch: independent draws from the box
tunereg.py         TuneReg: linear programs on values, without gradients
gp_ei_mcmc.py      GpEiMcmc: expected improvement, averaged over sampled Gaussian processes
gp.py              the Gaussian processes of GpEiMcmc
optuna_search.py   OptunaSearch: samplers of Optuna
hypergradients.py  Hoag and HypergradientLbfgs: descent along derivatives of the error by the weights
implicit.py        implicit_derivative: such a derivative, from products with the Hessian

Users may import what is in `__all__`; everything else is private.
"""

from tuneloss.baselines.gp_ei_mcmc import GpEiMcmc
from tuneloss.baselines.hypergradients import Hoag, HypergradientLbfgs
from tuneloss.baselines.implicit import implicit_derivative
from tuneloss.baselines.optuna_search import OptunaSearch
from tuneloss.baselines.random_search import RandomSearch
from tuneloss.baselines.tunereg import TuneReg

__all__ = [
    "GpEiMcmc",
    "Hoag",
    "HypergradientLbfgs",
    "OptunaSearch",
    "RandomSearch",
    "TuneReg",
    "implicit_derivative",
]
