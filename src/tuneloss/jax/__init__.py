"""JAX: from a model to an observation. Everything after it is NumPy: `LossTuner`, `OnlineLearner`, `learn_loss`.

observe.py  observe: error, terms and gram of a model
"""

from tuneloss.extras import needs

with needs("jax", "jax"):
    from tuneloss.jax.observe import observe

__all__ = ["observe"]
