"""Terms and numbers as people read them. The terminal and the page use the same words and digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

TERMS = {  # names of this package's own terms; a user's names stay as they are
    "l1": "L1",
    "l2": "L2",
    "uniform": "label smoothing (uniform)",
    "dropout": "dropout",
    "logloss": "log loss",
    "log_loss": "log loss",
}
SCORE_DIGITS, WEIGHT_DIGITS = 4, 3  # significant digits
PLAIN_RANGE = (1e-4, 1e6)  # numbers of this size are written without an exponent
MOST_DECIMALS = 7  # of a column


def term_words(name: str) -> str:
    """Return the name of a term for people.

    Examples
    --------
    >>> term_words("uniform"), term_words("smooth")
    ('label smoothing (uniform)', 'smooth')
    """
    return TERMS.get(name, name)


def weight_text(weight: float) -> str:
    """Return a weight with three significant digits.

    Examples
    --------
    >>> [weight_text(w) for w in (0.0, 0.30000001, 1234.0, 1000000.0, 2.5e-7)]
    ['0', '0.3', '1234', '1e+06', '2.5e-07']
    """
    return _significant(weight, WEIGHT_DIGITS)


def range_text(low: float, high: float) -> str:
    """Return a range of weights.

    Examples
    --------
    >>> range_text(0.01, 100.0), range_text(0.0, math.inf), range_text(1.0, 1.0)
    ('0.01 to 100', '0 or more', 'fixed at 1')
    """
    if low == high:
        return f"fixed at {weight_text(low)}"
    return f"{weight_text(low)} or more" if math.isinf(high) else f"{weight_text(low)} to {weight_text(high)}"


def score_text(score: float) -> str:
    """Return an error, a metric or a loss with four significant digits.

    Examples
    --------
    >>> [score_text(s) for s in (0.26214, 12345.678, -2.0)]
    ['0.2621', '12346', '-2.000']
    """
    return _significant(score, SCORE_DIGITS, padded=True)


def _significant(number: float, digits: int, *, padded: bool = False) -> str:
    """Return a number with some significant digits; `padded` keeps zeros at the end."""
    if number == 0:
        return "0"
    if not PLAIN_RANGE[0] <= abs(number) < PLAIN_RANGE[1]:
        return f"{number:.{digits}g}"
    decimals = max(digits - 1 - math.floor(math.log10(abs(number))), 0)
    text = f"{number:.{decimals}f}"
    return text if padded or "." not in text else text.rstrip("0").rstrip(".")


def score_column(scores: Sequence[float]) -> list[str]:
    """Return scores with the same number of decimals, enough for four digits of the smallest that is not 0.

    Examples
    --------
    >>> score_column([0.26214, 1.5])
    ['0.2621', '1.5000']
    """
    sizes = [abs(score) for score in scores if math.isfinite(score) and score != 0]
    if not sizes or min(sizes) < PLAIN_RANGE[0] or max(sizes) >= PLAIN_RANGE[1]:
        return [score_text(score) for score in scores]
    decimals = min(max(SCORE_DIGITS - 1 - math.floor(math.log10(min(sizes))), 0), MOST_DECIMALS)
    return [f"{score:.{decimals}f}" for score in scores]


def share_text(share: float) -> str:
    """Return a share of rows in per cent.

    Examples
    --------
    >>> share_text(0.32674)
    '32.7%'
    """
    return f"{share:.1%}"


def change_words(score: float, other: float) -> str:
    """Say how much lower or higher a score is than another one, in percent; empty if that cannot be said.

    Examples
    --------
    >>> change_words(0.262, 0.462), change_words(0.46, 0.45)
    ('43% lower', '2.2% higher')
    """
    percent = 100 * (score - other) / abs(other) if other else math.nan
    if not math.isfinite(percent):
        return ""
    size = f"{abs(percent):.0f}" if abs(percent) >= 10 else f"{abs(percent):.1f}"
    return f"{size}% {'lower' if percent < 0 else 'higher'}"


def count_words(n: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count_words(1, "run"), count_words(3, "epoch")
    ('1 run', '3 epochs')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def listed(names: Iterable[str], most: int = 5) -> str:
    """Return names as a list in words; of many, the first few and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed("abcdefgh", most=2)
    ('a, b and c', 'a, b and 6 more')
    """
    names = list(names)
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
