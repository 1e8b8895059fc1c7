"""The inner loops of the paper's trainer, compiled by numba: one epoch of AdaGrad on softmax regression.

Arrays are float32. Params and squares are (C, D + 1), a row a class, the last column the bias, which is not penalised.
Inputs are (N, D + 1) with a last column of ones.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tuneloss.lookup import Knots, cell_of, compiled, searched_bin
from tuneloss.paper.datasets import Labels

Single = NDArray[np.float32]
TINY = np.float32(1e-12)  # keeps 0 / 0 out of the first step of a param whose gradient is 0
ONE, TWO, ZERO = np.float32(1), np.float32(2), np.float32(0)

# NaN and infinity keep their meaning; sums may be taken in another order, and so on.
_compiled = partial(compiled, fastmath=frozenset({"reassoc", "contract", "arcp", "afn", "nsz"}))


@_compiled
def _see(seen: Single, clean: Single, kept: NDArray[np.uint8]) -> None:
    """The input, doubled where it is kept (1) and 0 where it is not; the last one, of the bias, as it is."""
    n = len(clean) - 1
    for d in range(n):
        seen[d] = TWO * np.float32(kept[d]) * clean[d]
    seen[n] = clean[n]


@_compiled
def _logits(own: Single, other: Single, params: Single, x: Single, y: Single) -> None:
    """params @ x into `own`, params @ y into `other` (C,), in one pass."""
    for c in range(len(own)):
        row, first, second = params[c], ZERO, ZERO
        for d in range(len(x)):
            first += row[d] * x[d]
            second += row[d] * y[d]
        own[c], other[c] = first, second


@_compiled
def _softmax(logits: Single) -> None:
    """In place."""
    largest, total = logits.max(), ZERO
    for c in range(len(logits)):
        logits[c] = np.exp(logits[c] - largest)
        total += logits[c]
    for c in range(len(logits)):
        logits[c] /= total


@_compiled
def _slopes(
    own: Single, uniform: Single, params: Single, clean: Single, seen: Single, label: int,
    w_uniform: np.float32, w_own: np.float32,
) -> None:  # fmt: skip
    """Derivatives by the logits: of the log loss on `seen` into `own`, on uniform labels of `clean` into `uniform`."""
    _logits(own, uniform, params, seen, clean)
    _softmax(own)
    _softmax(uniform)
    own[label] -= ONE
    for c in range(len(own)):
        own[c] *= w_own
        uniform[c] = w_uniform * (uniform[c] - ONE / np.float32(len(uniform)))


@_compiled
def _step(
    params: Single, squares: Single, seen: Single, clean: Single, own: np.float32, uniform: np.float32,
    l1: np.float32, l2: np.float32, rate: np.float32,
) -> None:  # fmt: skip
    """AdaGrad on the params of one class."""
    last = len(params) - 1
    for d in range(last):
        p = params[d]
        sign = (ONE if p > ZERO else ZERO) - (ONE if p < ZERO else ZERO)
        g = own * seen[d] + uniform * clean[d] + l1 * sign + l2 * p
        square = squares[d] + g * g
        squares[d] = square
        params[d] = p - rate * g / (np.sqrt(square) + TINY)
    g = own + uniform
    squares[last] += g * g
    params[last] -= rate * g / (np.sqrt(squares[last]) + TINY)


@_compiled
def epoch(
    params: Single, squares: Single, x: Single, labels: Labels, order: Labels, mask: Labels, kept: NDArray[np.uint8],
    l1: np.float32, l2: np.float32, w_uniform: np.float32, w_own: np.float32, rate: np.float32,
) -> None:  # fmt: skip
    """One AdaGrad step an example, in place: squares += g^2; params -= rate * g / sqrt(squares).

    order: (N,), the examples in the order of their steps. mask: (N,), for each step the row of `kept` that says which
    inputs it keeps, or -1 for all. A step adds l1 * sign(param) + l2 * param to the gradient; w_uniform is the weight
    of uniform labels, w_own of the log loss and dropout together.
    """
    n_classes, last = params.shape[0], params.shape[1] - 1
    own, uniform = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.float32)
    room = np.empty(last + 1, np.float32)
    for step in range(len(order)):
        clean, row = x[order[step]], mask[step]
        seen = clean
        if row >= 0:
            _see(room, clean, kept[row])
            seen = room
        _slopes(own, uniform, params, clean, seen, labels[order[step]], w_uniform, w_own)
        for c in range(n_classes):
            _step(params[c], squares[c], seen, clean, own[c], uniform[c], l1, l2, rate)


@_compiled
def hinge_epoch(
    params: Single, squares: Single, x: Single, labels: Labels, order: Labels, rate: np.float32, slopes: Single,
    knots: Knots, first: np.float32, scale: np.float32, bins: NDArray[np.int32],
) -> None:  # fmt: skip
    """The same on the log loss and a piecewise-linear penalty, whose slope in bin b is slopes[b].

    knots, first, scale, bins: the cells that say which bin a param is in (lookup.py).
    """
    n_classes, last, top = params.shape[0], params.shape[1] - 1, len(bins) - 1
    own, uniform = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.float32)
    for step in range(len(order)):
        seen = x[order[step]]
        _slopes(own, uniform, params, seen, seen, labels[order[step]], ZERO, ONE)
        for c in range(n_classes):
            for d in range(last + 1):
                p, penalty = params[c, d], ZERO
                if d < last:
                    b = int(bins[cell_of(p, first, scale, top)])
                    if b < 0:
                        b = searched_bin(p, knots)
                    penalty = slopes[np.uint32(b)]
                g = own[c] * seen[d] + penalty
                square = squares[c, d] + g * g
                squares[c, d] = square
                params[c, d] = p - rate * g / (np.sqrt(square) + TINY)
