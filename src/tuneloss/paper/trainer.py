"""The paper's trainer: AdaGrad, one example per step, on the five-term loss of softmax regression (app. B)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuneloss.errors import InvalidInput, RunFailed
from tuneloss.hinges.lookup import make_cells
from tuneloss.paper import kernels
from tuneloss.paper.datasets import Split
from tuneloss.paper.terms import NAMES, check_params
from tuneloss.types import Array


class AdaGrad:
    """AdaGrad on softmax regression, epoch by epoch. Each epoch may have other weights.

    Each epoch takes the examples in a new order, one per step. A step follows an unbiased estimate of the gradient of
    the loss divided by the number of examples N. The state of AdaGrad is kept between epochs. All numbers are float32.

    Parameters
    ----------
    split : Split
        The training examples are used.
    rng : numpy.random.Generator
        Draws the order of examples and the dropout masks.
    learning_rate : float, default 0.1
        The learning rate.
    start : (D + 1, C) array, optional
        Params to start from; zeros by default. The array is not changed.

    Attributes
    ----------
    params : (C, D + 1) array
        The params, with the bias in the last column. They change in place.
    squares : (C, D + 1) array
        Sums of squared gradients. They change in place.

    Raises
    ------
    InvalidInput
        If `learning_rate` is not above 0, or if `start` does not fit the split.
    """

    def __init__(
        self, split: Split, rng: np.random.Generator, *, learning_rate: float = 0.1, start: Array | None = None
    ) -> None:
        if not learning_rate > 0:
            raise InvalidInput(f"`learning_rate` must be above 0; found {learning_rate}.")
        if start is not None:
            check_params(np.asarray(start), split, "start")
        self.rng, self.learning_rate = rng, learning_rate
        self.n, self.epochs = len(split.train_y), 0
        self._x = np.ones((self.n, split.params_shape[0]), dtype=np.float32)
        self._x[:, :-1] = split.train_x
        self._labels = split.train_y
        self.params = np.zeros(split.params_shape[::-1], dtype=np.float32)
        if start is not None:
            self.params[:] = start.T
        self.squares = np.zeros_like(self.params)

    def epoch(self, weights: Array) -> None:
        """Train for one epoch on the five terms.

        Dropout is applied to an example with probability dropout / (logloss + dropout). The gradient of the example is
        multiplied by logloss + dropout, and each penalty counts 1/N per step.

        Parameters
        ----------
        weights : (5,) array
            The weights of the terms, in the order of `NAMES`.

        Raises
        ------
        RunFailed
            If params are no longer finite.
        """
        l1, l2, uniform, dropout, logloss = np.asarray(weights, dtype=np.float32)
        n, total = np.float32(self.n), logloss + dropout
        dropped = self.rng.random(self.n) < (dropout / total if total > 0 else 0.0)
        mask = np.where(dropped, np.cumsum(dropped) - 1, -1)
        width = -(-self._x.shape[1] // 8)  # bytes: one random bit per input, which is kept with probability KEEP = 1/2
        bits = self.rng.integers(0, 256, size=(int(dropped.sum()), width), dtype=np.uint8)
        kept = np.unpackbits(bits, axis=1, bitorder="little")
        order, rate = self.rng.permutation(self.n), np.float32(self.learning_rate)
        kernels.epoch(
            self.params, self.squares, self._x, self._labels, order, mask, kept,
            l1 / n, 2 * l2 / n, uniform, total, rate,
        )  # fmt: skip
        self._check()

    def epoch_with_slopes(self, knots: Array, slopes: Array) -> None:
        """Train for one epoch on the mean log loss and a piecewise-linear penalty.

        Parameters
        ----------
        knots : (p,) array
            Positions, in increasing order.
        slopes : (2p + 1,) array
            Slopes of the penalty: slopes[2j] strictly between knots j - 1 and j, slopes[2j + 1] at knot j.

        Raises
        ------
        InvalidInput
            If the numbers of knots and slopes do not fit.
        RunFailed
            If params are no longer finite.
        """
        if len(slopes) != 2 * len(knots) + 1:
            raise InvalidInput(f"`slopes` must be 2 p + 1 for p knots; found {len(slopes)} for {len(knots)}.")
        cells, slope = make_cells(knots.astype(np.float32)), slopes.astype(np.float32)
        order, rate = self.rng.permutation(self.n), np.float32(self.learning_rate)
        kernels.hinge_epoch(
            self.params, self.squares, self._x, self._labels, order, rate, slope,
            cells.knots, cells.first, cells.scale, cells.bins,
        )  # fmt: skip
        self._check()

    def _check(self) -> None:
        self.epochs += 1
        if not np.isfinite(self.params).all():
            raise RunFailed(
                f"Training diverged in epoch {self.epochs}: params are no longer finite. "
                f"Take a learning_rate below {self.learning_rate}, or smaller weights."
            )


def train(
    split: Split,
    weights: Mapping[str, float],
    rng: np.random.Generator,
    *,
    epochs: int = 30,
    learning_rate: float = 0.1,
    start: Array | None = None,
) -> Array:
    """Minimise weights . terms on the training examples by AdaGrad.

    Parameters
    ----------
    split : Split
        The training examples are used.
    weights : mapping of str to float
        One number, at least 0, for each of l1, l2, uniform, dropout and logloss.
    rng : numpy.random.Generator
        See `AdaGrad`.
    epochs : int, default 30
        Number of epochs.
    learning_rate : float, default 0.1
        See `AdaGrad`.
    start : (D + 1, C) array, optional
        See `AdaGrad`.

    Returns
    -------
    (D + 1, C) array
        The params.

    Raises
    ------
    InvalidInput
        If an argument is not as described.
    RunFailed
        If params are no longer finite.

    Examples
    --------
    >>> from tuneloss.paper.datasets import digits
    >>> weights = {"l1": 0.1, "l2": 1, "uniform": 0, "dropout": 0.5, "logloss": 1}
    >>> train(digits(0), weights, np.random.default_rng(0), epochs=1).shape
    (65, 10)
    """
    if set(weights) != set(NAMES):
        raise InvalidInput(f"`weights` must name {', '.join(NAMES)}; found {', '.join(weights) or 'none'}.")
    values = np.array([weights[name] for name in NAMES], dtype=float)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InvalidInput(f"`weights` must be finite and not negative; found {dict(weights)}.")
    if not values.any():
        raise InvalidInput("`weights` must not all be 0, since every model then has loss 0. Take e.g. logloss=1.")
    if epochs < 0:
        raise InvalidInput(f"`epochs` must be at least 0; found {epochs}.")
    trainer = AdaGrad(split, rng, learning_rate=learning_rate, start=start)
    for _ in range(epochs):
        trainer.epoch(values)
    return trainer.params.T.astype(float)
