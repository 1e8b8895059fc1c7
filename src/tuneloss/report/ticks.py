"""Where the ticks of an axis stand: at round numbers, few of them."""

from __future__ import annotations

import math

MOST_TICKS = 5
LEAST_RATIO = 3.0  # a logarithmic axis whose ends differ by less has ticks like a linear one


def linear_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return at most `most` multiples of 1, 2, 2.5 or 5 times a power of ten between two numbers.

    Examples
    --------
    >>> linear_ticks(0.0, 1.0), linear_ticks(1, 12)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [2.5, 5.0, 7.5, 10.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (m * power for m in (1, 2, 2.5, 5, 10, 20)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]
    return []


def whole_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[int]:
    """Return at most `most` + 1 ticks at whole numbers only."""
    every = max(math.ceil((high - low) / most), 1)
    step = next(m * 10**e for e in range(20) for m in (1, 2, 5) if m * 10**e >= every)
    return list(range(math.ceil(low / step) * step, math.floor(high) + 1, step))


def log_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return at most `most` powers of ten between two positive numbers; 1, 2, 3 and 5 times powers if there are few.

    Examples
    --------
    >>> log_ticks(0.05, 20.0), log_ticks(0.9, 6.0), log_ticks(1.0, 1.4)
    ([0.1, 1.0, 10.0], [1.0, 2.0, 3.0, 5.0], [1.0, 1.1, 1.2, 1.3, 1.4])
    """
    if high / low < LEAST_RATIO:
        return linear_ticks(low, high, most)
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        fine = [m * 10.0**e for e in range(first - 1, last + 1) for m in (1, 2, 3, 5)]
        return [tick for tick in fine if low <= tick <= high]
    every = math.ceil((last - first + 1) / most)
    return [10.0**e for e in range(first, last + 1, every)]
