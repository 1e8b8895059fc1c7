"""Names that users chose, as labels of figures. A label is one line of bounded width, in any script."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.text import Text

from tuneloss.text import visible

WIDEST = 28  # width of a label in letters; a wide letter, as in Chinese, counts as two


def as_label(name: str) -> str:
    """Return a name as a label that matplotlib shows literally.

    A dollar sign does not start a formula, and a leading underscore does not hide the label. The middle of a long name
    is left out.

    Examples
    --------
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
    """Return the width of text in letters; a wide letter counts as two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _start(text: str, width: int) -> str:
    """Return the longest start of text that is not wider than `width`."""
    text = text[:width]
    while _width(text) > width:
        text = text[:-1]
    return text


@contextmanager
def drawable(figure: Figure) -> Iterator[None]:
    """Inside the block, give the labels of a figure a font that has their letters.

    If no installed font has a letter, its code is shown. Only bitmaps need this: in an SVG, labels stay text and are
    drawn in the reader's fonts.
    """
    before = [(text, text.get_text(), text.get_fontfamily()) for text in figure.findobj(Text) if isinstance(text, Text)]
    try:
        for text, content, family in before:
            _make_drawable(text, content, family)
        yield
    finally:
        for text, content, family in before:
            text.set_text(content)
            text.set_fontfamily(family)


def _make_drawable(text: Text, content: str, family: list[str]) -> None:
    """Give text a font that has its letters, or replace letters that no font has by their codes."""
    missing = {letter for letter in content if letter.isprintable() and not _has(_default_font(), letter)}
    if not missing:
        return
    font = _font_with(frozenset(missing))
    if font is not None:
        text.set_fontfamily([*family, font])
    else:
        codes = (c.encode("unicode_escape").decode() if c in missing else c for c in content)
        text.set_text("".join(codes))


def _default_font() -> str:
    """Return the path of matplotlib's default font."""
    return str(fontManager.findfont(FontProperties()))


def _has(path: str, letter: str) -> bool:
    """Return whether the font at a path has a letter."""
    return bool(get_font(path).get_char_index(ord(letter)))


@lru_cache(maxsize=64)
def _font_with(letters: frozenset[str]) -> str | None:
    """Return the name of an installed font that has all of these letters, if there is one."""
    for font in fontManager.ttflist:
        if font.name.startswith("Last Resort"):  # it draws a placeholder for every letter
            continue
        try:
            if all(_has(font.fname, letter) for letter in letters):
                return str(font.name)
        except (OSError, RuntimeError):  # the file is gone, or it is not a font
            continue
    return None
