"""Names of anyone as labels of figures: as they are, in a line of some length, whatever their letters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.text import Text

from tuneloss.text import visible

WIDEST = 28  # of a label, in letters; one that takes the room of two, as in Chinese, counts so


def as_label(name: str) -> str:
    """A name as a label: a dollar sign begins no formula, an underscore hides nothing; the middle of a long one is cut.

    >>> as_label("$1"), as_label("a" * 20 + "-" * 99 + "b" * 20)
    ('\\\\$1', 'aaaaaaaaaaaaa…bbbbbbbbbbbbb')
    """
    text = visible(name)
    if _width(text) > WIDEST:
        text = _start(text, WIDEST // 2 - 1) + "…" + _start(text[::-1], WIDEST // 2 - 1)[::-1]
    if not text or text.startswith("_"):  # matplotlib shows no such label in a legend
        text = " " + text
    return text.replace("$", r"\$")


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _start(text: str, width: int) -> str:
    text = text[:width]
    while _width(text) > width:
        text = text[:-1]
    return text


@contextmanager
def drawable(figure: Figure) -> Iterator[None]:
    """For the time of the block, its labels are drawn in a font that has their letters; if there is none, as codes.

    For pictures. In an SVG labels stay text, and whoever shows it has the fonts.
    """
    before = [(text, text.get_text(), text.get_fontfamily()) for text in figure.findobj(Text) if isinstance(text, Text)]
    try:
        for text, content, family in before:
            missing = {letter for letter in content if letter.isprintable() and not _has(_default_font(), letter)}
            font = _font_with(frozenset(missing)) if missing else None
            if font is not None:
                text.set_fontfamily([*family, font])
            elif missing:
                codes = (c.encode("unicode_escape").decode() if c in missing else c for c in content)
                text.set_text("".join(codes))
        yield
    finally:
        for text, content, family in before:
            text.set_text(content)
            text.set_fontfamily(family)


def _default_font() -> str:
    return str(fontManager.findfont(FontProperties()))


def _has(path: str, letter: str) -> bool:
    return bool(get_font(path).get_char_index(ord(letter)))


@lru_cache(maxsize=64)
def _font_with(letters: frozenset[str]) -> str | None:
    """The name of an installed font with all of these letters."""
    for font in fontManager.ttflist:
        try:
            if all(_has(font.fname, letter) for letter in letters):
                return str(font.name)
        except (OSError, RuntimeError):  # a file that is gone, or that no font can be read from
            continue
    return None
