"""Text of others as a reader can see it: what would steer a terminal, or cannot be written, is shown by its code."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters, among them the one that begins a terminal's escape sequences
    "\u2028\u2029"  # ends of lines and paragraphs
    "\u202a-\u202e\u2066-\u2069"  # they turn the direction of all that follows
    "\ud800-\udfff"  # halves of a pair, which no encoding can write
    "\ufdd0-\ufdef\ufffe\uffff"  # no characters at all
    "]"
)


def visible(text: str) -> str:
    r"""The same text, each character that steers instead of being shown as its code.

    >>> print(visible("runs\x1b[31m of\n\ud800 学習"))
    runs\x1b[31m of\n\ud800 学習
    """
    return HIDDEN.sub(lambda character: character[0].encode("unicode_escape").decode("ascii"), text)
