"""A small problem for Gaussian processes, and scikit-learn's process with the same hyperparameters."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from tuneloss.tuning.gaussian_process import JITTER

THETA = np.array([0.2, 0.3, -3.0, 0.4, 1.1])


def made_data() -> tuple[np.ndarray, np.ndarray]:
    """Twelve points in the unit square, and standardised values."""
    rng = np.random.default_rng(0)
    x = rng.random((12, 2))
    y = np.sin(4 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.standard_normal(12)
    return x, (y - y.mean()) / y.std()


def reference(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> GaussianProcessRegressor:
    """Condition scikit-learn's process on the data, without its mean."""
    kernel = ConstantKernel(np.exp(2 * theta[1])) * Matern(theta[3:], nu=2.5) + WhiteKernel(np.exp(theta[2]) + JITTER)
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0).fit(x, y - theta[0])
