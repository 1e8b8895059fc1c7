"""Problems that can be trained exactly."""

from __future__ import annotations

import numpy as np

from tuneloss import Observation


def ridge(seed: int = 0, n: int = 30, d: int = 8):
    """Training and validation data of a regression, and train(weights) -> Observation by the exact minimum."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=d)
    x, x_val = rng.normal(size=(n, d)), rng.normal(size=(200, d))
    y, y_val = x @ true + 4 * rng.normal(size=n), x_val @ true + 4 * rng.normal(size=200)

    def observe(params: np.ndarray) -> Observation:
        r, v = x @ params - y, x_val @ params - y_val
        return Observation.from_gradients(
            v @ v, [params @ params, r @ r], 2 * x_val.T @ v, np.column_stack([2 * params, 2 * x.T @ r])
        )

    return lambda weights: observe(np.linalg.solve(x.T @ x + weights["l2"] * np.eye(d), x.T @ y))
