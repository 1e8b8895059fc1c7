"""A table on which the choice of the regularizer matters, drawn from a known model."""

from __future__ import annotations

import numpy as np

from tuneloss.data.dataset import Dataset

N_ROWS, N_INPUTS, N_USED = 600, 300, 8  # few of many inputs matter, so that L1 is far better than L2
CLASSES = ("a", "b", "c")
COEFFICIENT_SCALE = 2.0  # standard deviation of the coefficients of the inputs that matter


def make_sparse_table(seed: int = 0) -> Dataset:
    """Draw 600 rows of 300 normal inputs, of which 8 matter, and labels of 3 classes.

    Labels are drawn from the probabilities of a softmax regression whose coefficients are normal. So no model predicts
    all of them. The table shows what a choice of regularizers can gain. It is no evidence about real data.

    Parameters
    ----------
    seed : int, default 0
        Decides all random numbers. The embedded set "sparse" has seed 0.

    Examples
    --------
    >>> table = make_sparse_table()
    >>> table.x.shape, table.names[0], table.names[-1], sorted(set(table.y.tolist()))
    ((600, 300), 'used0', 'noise291', ['a', 'b', 'c'])
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N_ROWS, N_INPUTS))
    logits = x[:, :N_USED] @ rng.normal(scale=COEFFICIENT_SCALE, size=(N_USED, len(CLASSES)))
    codes = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # draws from the softmax of the logits
    names = [f"used{j}" for j in range(N_USED)] + [f"noise{j}" for j in range(N_INPUTS - N_USED)]
    return Dataset("sparse", tuple(names), x, np.array(CLASSES)[codes])
