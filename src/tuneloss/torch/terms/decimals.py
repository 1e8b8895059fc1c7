"""Numbers of a tensor as short decimals: 0.1, where the float32 nearest to it is 0.10000000149011612."""

from __future__ import annotations

from collections.abc import Sequence

import torch

MOST_DIGITS = 9  # significant digits that tell any two numbers of float32 apart, and of every shorter type


def shortest(numbers: Sequence[float], dtype: torch.dtype) -> list[float]:
    """Return for each number of a tensor the shortest decimal that rounds to it in the tensor's type.

    Parameters
    ----------
    numbers : sequence of float
        What ``tensor.tolist()`` returns.
    dtype : torch.dtype
        The type of the tensor. Numbers of float64 are returned as they are.

    Examples
    --------
    >>> shortest(torch.tensor([0.1, 1 / 3]).tolist(), torch.float32)
    [0.1, 0.33333334]
    """
    if dtype == torch.float64:
        return list(numbers)
    exact, decimals = torch.tensor(numbers, dtype=dtype), list(numbers)
    is_open = torch.ones(len(decimals), dtype=torch.bool)
    for digits in range(1, MOST_DIGITS + 1):
        rounded = [float(f"{number:.{digits}g}") for number in numbers]
        found = (torch.tensor(rounded, dtype=dtype) == exact) & is_open
        for j in found.nonzero().flatten().tolist():
            decimals[j] = rounded[j]
        is_open &= ~found
        if not is_open.any():
            break
    return decimals
