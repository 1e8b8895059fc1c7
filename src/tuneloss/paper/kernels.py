"""The inner loops of the paper's trainer, compiled by numba: one epoch of AdaGrad on softmax regression.

Arrays are float32. Params and squares are (C, D + 1), with one row per class. Their last column is the bias, which is
not penalised. Inputs are (N, D + 1), with ones in the last column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from tuneloss.hinges.lookup import Knots, cell_of, compiled, searched_bin
from tuneloss.paper.datasets import Labels

Single = NDArray[np.float32]
TINY = np.float32(1e-24)  # added to squares, so that a first gradient of 0 does not lead to 0 / 0
ONE, TWO, ZERO = np.float32(1), np.float32(2), np.float32(0)
LINE = 64  # bytes of a cache line, on x86-64 and most ARM processors

# The compiler may reorder sums and approximate 1 / sqrt to rounding. NaN stays NaN, so that divergence is detected.
_compiled = partial(compiled, fastmath=frozenset({"reassoc", "contract", "arcp", "afn", "nsz"}))


def _prefetch(context: Any, address: Any) -> Any:
    """Emit LLVM's instruction that loads memory into the cache before it is needed."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, second_cache, data = number(0), number(2), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), to_read, second_cache, data])
        return context.get_dummy_value()

    return types.void(types.intp), emit


# prefetch(address) starts to load the cache line at an address into the second-level cache. It changes no values.
prefetch = cast(Callable[[int], None], intrinsic(_prefetch))


@_compiled
def _drop_inputs(buffer: Single, clean: Single, row: int, kept: NDArray[np.uint8]) -> Single:
    """Return an input under dropout, written into `buffer`; for row -1, return the clean input.

    Each entry except the bias is doubled where kept[row] is 1, and 0 elsewhere.
    """
    if row < 0:
        return clean
    n = len(clean) - 1
    for d in range(n):
        buffer[d] = TWO * np.float32(kept[row, d]) * clean[d]
    buffer[n] = clean[n]
    return buffer


@_compiled
def _logits(for_x: Single, for_y: Single, params: Single, x: Single, y: Single) -> None:
    """Write params @ x into `for_x` and params @ y into `for_y`, both (C,), in one pass."""
    for c in range(len(for_x)):
        row, first, second = params[c], ZERO, ZERO
        for d in range(len(x)):
            first += row[d] * x[d]
            second += row[d] * y[d]
        for_x[c], for_y[c] = first, second


@_compiled
def _softmax(logits: Single) -> None:
    """Replace logits by their softmax, in place."""
    largest, total = logits.max(), ZERO
    for c in range(len(logits)):
        logits[c] = np.exp(logits[c] - largest)
        total += logits[c]
    for c in range(len(logits)):
        logits[c] /= total


@_compiled
def _slopes(logloss: Single, uniform: Single, label: int, w_uniform: np.float32, w_logloss: np.float32) -> None:
    """Replace logits, in place, by the weighted derivatives of the log loss and of the uniform-label loss."""
    _softmax(logloss)
    _softmax(uniform)
    logloss[label] -= ONE
    for c in range(len(logloss)):
        logloss[c] *= w_logloss
        uniform[c] = w_uniform * (uniform[c] - ONE / np.float32(len(uniform)))


@_compiled
def _step(
    params: Single, squares: Single, seen: Single, clean: Single, next_seen: Single, next_clean: Single,
    dropped: bool, next_dropped: bool,
    logloss: np.float32, uniform: np.float32, l1: np.float32, l2: np.float32, rate: np.float32,
) -> tuple[np.float32, np.float32]:  # fmt: skip
    """Update the params of one class, and in the same pass compute their products with the inputs of the next step.

    `seen` is the input under dropout. `dropped` says whether it differs from the clean input, and `next_dropped` says
    the same of the next step. The compiler moves both questions out of the loop.
    """
    last, first, second = len(params) - 1, ZERO, ZERO
    if not dropped:
        logloss += uniform
    for d in range(last):
        p = params[d]
        pull = np.copysign(l1, p) if p != ZERO else ZERO
        g = logloss * seen[d] + pull + l2 * p
        if dropped:
            g += uniform * clean[d]
        square = squares[d] + g * g
        p -= rate * g / np.sqrt(square + TINY)
        squares[d], params[d] = square, p
        first += p * next_seen[d]
        if next_dropped:
            second += p * next_clean[d]
    g = logloss + uniform if dropped else logloss
    squares[last] += g * g
    params[last] -= rate * g / np.sqrt(squares[last] + TINY)
    first += params[last]
    return first, second + params[last] if next_dropped else first


@_compiled
def epoch(
    params: Single, squares: Single, x: Single, labels: Labels, order: Labels, mask: Labels, kept: NDArray[np.uint8],
    l1: np.float32, l2: np.float32, w_uniform: np.float32, w_logloss: np.float32, rate: np.float32,
) -> None:  # fmt: skip
    """Take one AdaGrad step per example, in place: squares += g^2; params -= rate * g / sqrt(squares).

    Each step adds l1 * sign(param) + l2 * param to the gradient.

    Parameters
    ----------
    params, squares : (C, D + 1) array
        The params and the sums of squared gradients, which change.
    x : (N, D + 1) array
        Inputs.
    labels : (N,) array of int
        Labels.
    order : (N,) array of int
        The examples in the order of their steps.
    mask : (N,) array of int
        For each step, the row of `kept` that says which inputs it keeps, or -1 for all inputs.
    kept : (masks, D + 1) array of 0 and 1
        Dropout masks.
    l1, l2, w_uniform, w_logloss : float
        Weights; `w_logloss` is the sum of the weights of log loss and dropout.
    rate : float
        The learning rate.
    """
    n_classes, width = params.shape
    lines = 1 + params[0].nbytes // (LINE * n_classes)
    logloss, uniform = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.float32)
    buffers = np.empty((2, width), np.float32)  # for the inputs of this step and of the next
    seen = _drop_inputs(buffers[0], x[order[0]], mask[0], kept)
    _logits(logloss, uniform, params, seen, x[order[0]])
    for step in range(len(order)):
        then = min(step + 1, len(order) - 1)
        clean, next_clean = x[order[step]], x[order[then]]
        next_seen = _drop_inputs(buffers[then % 2], next_clean, mask[then], kept)
        _slopes(logloss, uniform, labels[order[step]], w_uniform, w_logloss)
        soon = x[order[min(step + 2, len(order) - 1)]].ctypes.data  # loaded into the cache while classes are updated
        for c in range(n_classes):
            for line in range(c * lines, (c + 1) * lines):
                prefetch(soon + LINE * line)
            logloss[c], uniform[c] = _step(
                params[c], squares[c], seen, clean, next_seen, next_clean, mask[step] >= 0, mask[then] >= 0,
                logloss[c], uniform[c], l1, l2, rate,
            )  # fmt: skip
        seen = next_seen


@_compiled
def hinge_epoch(
    params: Single, squares: Single, x: Single, labels: Labels, order: Labels, rate: np.float32, slopes: Single,
    knots: Knots, first: np.float32, scale: np.float32, bins: NDArray[np.int32],
) -> None:  # fmt: skip
    """Take one AdaGrad step per example, in place, on the log loss plus a piecewise-linear penalty.

    The penalty has slope slopes[b] in bin b. `knots`, `first`, `scale` and `bins` are the fields of the cells that find
    the bin of a param (`tuneloss.hinges.lookup.Cells`). The other arguments are those of `epoch`.
    """
    n_classes, last, top = params.shape[0], params.shape[1] - 1, len(bins) - 1
    logloss, uniform = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.float32)
    for step in range(len(order)):
        seen = x[order[step]]
        _logits(logloss, uniform, params, seen, seen)
        _slopes(logloss, uniform, labels[order[step]], ZERO, ONE)
        for c in range(n_classes):
            for d in range(last + 1):
                p, penalty = params[c, d], ZERO
                if d < last:
                    b = int(bins[cell_of(p, first, scale, top)])
                    if b < 0:
                        b = searched_bin(p, knots)
                    penalty = slopes[np.uint32(b)]
                g = logloss[c] * seen[d] + penalty
                square = squares[c, d] + g * g
                squares[c, d] = square
                params[c, d] = p - rate * g / np.sqrt(square + TINY)
