"""Make text of others visible: characters that steer a terminal, or cannot be written, are replaced by their codes."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters; one of them begins a terminal's escape sequences
    "\u2028\u2029"  # ends of lines and paragraphs
    "\u202a-\u202e\u2066-\u2069"  # they change the direction of all text that follows
    "\ud800-\udfff"  # halves of a surrogate pair, which no encoding can write
    "\ufdd0-\ufdef\ufffe\uffff"  # not characters at all
    "]"
)


def visible(text: str) -> str:
    r"""Replace each character that would not be seen by its code.

    Examples
    --------
    >>> print(visible("runs\x1b[31m of\n\ud800 学習"))
    runs\x1b[31m of\n\ud800 学習
    """
    return HIDDEN.sub(lambda character: character[0].encode("unicode_escape").decode("ascii"), text)
