"""Two methods of the field for the weights of text domains, with the observations of tuneloss.

Both multiply the weight of a domain by exp(step * alignment). The alignment is the inner product of the gradients of
the domain's loss and of the loss on the target. One observation gives all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuneloss import Observation

Array = NDArray[np.float64]


class DoGE:
    """Domain reweighting with generalization estimation (Fan, Pagliardini and Jaggi, arXiv 2310.15393).

    A first run learns. The mean of its weights is for the run that counts.

    Parameters
    ----------
    k : int
        The number of domains.
    step_size : float
        Its authors divide by mu and multiply by the learning rate; here is one number for both.
    """

    def __init__(self, k: int, step_size: float) -> None:
        self.weights, self.step_size = np.full(k, 1 / k), step_size
        self._sum, self._n = np.zeros(k), 0

    def update(self, seen: Observation) -> Array:
        """Return the weights of the next steps (k,)."""
        gram, norms = gradients(seen)
        alignment = gram[:-1, -1] / max(norms[-1], 1.0) / norms[:-1].mean()  # the target's gradient is clipped at 1
        self.weights = tilted(self.weights, self.step_size * alignment)
        self._sum, self._n = self._sum + self.weights, self._n + 1
        return self.weights

    def mean(self) -> Array:
        """Return the mean of the weights after each update (k,)."""
        mean: Array = self._sum / self._n
        return mean


class DGA:
    """Dynamic gradient alignment (Fan, Grangier and Ablin, arXiv 2410.02498), in the run that counts.

    Parameters
    ----------
    k : int
        The number of domains.
    step_size : float
        For alignments that are divided by the norms of both gradients, so that one step size suits a whole run.
    keep : float
        The part of the old weights in the moving average with which data are drawn.
    """

    def __init__(self, k: int, step_size: float, keep: float) -> None:
        self.weights, self.step_size, self.keep = np.full(k, 1 / k), step_size, keep
        self._tilted = self.weights

    def update(self, seen: Observation) -> Array:
        """Return the weights of the next steps (k,)."""
        gram, norms = gradients(seen)
        alignment = gram[:-1, -1] / (norms[-1] * norms[:-1].mean())
        self._tilted = tilted(self._tilted, self.step_size * alignment)
        self.weights = self.keep * self.weights + (1 - self.keep) * self._tilted
        return self.weights


def gradients(seen: Observation) -> tuple[Array, Array]:
    """Return the gram of the gradients of all domains and of the target (k + 1, k + 1), and their norms (k + 1,)."""
    assert seen.gram is not None
    return seen.gram, np.sqrt(np.maximum(np.diag(seen.gram), 1e-12))


def tilted(weights: Array, by: Array) -> Array:
    """Multiply weights by exp(by), and divide by their sum."""
    tilt = weights * np.exp(by - by.max())
    shares: Array = tilt / tilt.sum()
    return shares
