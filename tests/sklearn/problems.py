"""Small problems for the tests of tuneloss.sklearn."""

import numpy as np

from tuneloss.sklearn.softmax import Data, make_data

NO_WEIGHTS = {"l1": 0.0, "l2": 0.0, "uniform": 0.0, "dropout": 0.0, "logloss": 1.0}


def make_problem(n_classes: int = 3, n: int = 60, d: int = 7, seed: int = 0, *, intercept: bool = True) -> Data:
    """Examples of classes that overlap, with inputs of unequal means and scales, and sample weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.linspace(0.5, 2, d) + np.linspace(-2, 2, d)
    y = np.argmax(x @ rng.normal(size=(d, n_classes)) + 2 * rng.gumbel(size=(n, n_classes)), axis=1)
    y[:n_classes] = np.arange(n_classes)
    return make_data(x, y, rng.uniform(0.5, 2, size=n), n_classes, intercept=intercept)


def some_params(data: Data, seed: int = 0) -> np.ndarray:
    params = np.random.default_rng(seed).normal(size=data.zeros().shape)
    if not data.intercept:
        params[:, -1] = 0
    return params
