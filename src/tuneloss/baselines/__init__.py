"""Other ways to choose the weights of a loss, with the same ask and tell as `LossTuner`.

random_search.py  random points of the box
tunereg.py        TuneReg: linear programs on values
gp_ei_mcmc.py     GP-EI-MCMC: expected improvement; gp.py: its Gaussian process
optuna_search.py  Optuna's TPE and Gaussian process
search.py         what all of them share

The names in `__all__` are public. Everything else in this room is private.
"""

from tuneloss.baselines.gp_ei_mcmc import GpEiMcmc
from tuneloss.baselines.optuna_search import OptunaSearch
from tuneloss.baselines.random_search import RandomSearch
from tuneloss.baselines.tunereg import TuneReg

__all__ = ["GpEiMcmc", "OptunaSearch", "RandomSearch", "TuneReg"]
