"""A self-contained HTML page. It has no scripts and no external links, and fits light and dark screens of any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as escape_markup

from tuneloss.report.style import STYLE
from tuneloss.text import visible


def escape(text: str) -> str:
    """Return plain text as HTML: markup is escaped, hidden characters are shown, and newlines become spaces."""
    return escape_markup(visible(text.replace("\n", " ").replace("\t", " ")))


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Parameters
    ----------
    heading : str
        The heading, as plain text.
    body : str
        What stands below it, as HTML that the functions of this file return.
    """

    heading: str
    body: str


def paragraphs(sentences: Iterable[str]) -> str:
    """Return sentences of plain text as one paragraph.

    Examples
    --------
    >>> paragraphs(["a < b.", "b < c."])
    '<p>a &lt; b. b &lt; c.</p>'
    """
    return f"<p>{escape(' '.join(sentences))}</p>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str = "",
    chosen: int | None = None,
    wrap: bool = False,
) -> str:
    """Return a table of plain text.

    On a narrow page, cells break into lines. If that is not enough, the table scrolls, with a shadow on the side where
    there is more.

    Parameters
    ----------
    header : sequence of str
        The titles of the columns.
    rows : iterable of sequences of str
        The cells of each row.
    caption : str
        A line above the table; none by default.
    chosen : int, optional
        The index of a row to highlight.
    wrap : bool, default False
        Whether cells hold sentences, which are aligned to the left.
    """
    title = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    cells = ([escape(cell) for cell in row] for row in rows)
    return title + raw_table([escape(cell) for cell in header], cells, chosen=chosen, wrap=wrap)


def raw_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, chosen: int | None = None, wrap: bool = False
) -> str:
    """Do what `table` does with cells that are HTML already."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr{' class=chosen' if i == chosen else ''}>{line}</tr>\n" for i, line in enumerate(lines))
    inside = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>"
    return f'<div class="scroll"><table{" class=words" if wrap else ""}>{inside}</table></div>'


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Return (svg, caption) pairs as HTML, side by side if there is room."""
    items = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in pairs)
    return f'<div class="figures">{"".join(items)}</div>'


def code(text: str) -> str:
    """Return code to type, line by line as it is."""
    return f"<pre>{escape_markup(visible_lines(text))}</pre>"


def visible_lines(text: str) -> str:
    """Show hidden characters, except ends of lines."""
    return "\n".join(visible(line) for line in text.split("\n"))


@dataclass(frozen=True)
class Card:
    """One step that a reader can take.

    Parameters
    ----------
    heading : str
        What the step is, in a few words.
    sentences : sequence of str
        Why to take it, as plain text.
    code : str
        What to type; empty if there is nothing to type.
    """

    heading: str
    sentences: Sequence[str]
    code: str = ""


def cards(steps: Iterable[Card]) -> str:
    """Return steps as a list of cards, side by side if there is room."""
    items = (
        f"<li><b>{escape(step.heading)}</b>{paragraphs(step.sentences)}{code(step.code) if step.code else ''}</li>"
        for step in steps
    )
    return f'<ul class="next">{"".join(items)}</ul>'


def pair(left: str, right: str, *, fit: bool = False) -> str:
    """Return two pieces of HTML side by side if there is room; one of them may be empty.

    With `fit`, the left one is as wide as its content.
    """
    if not left or not right:
        return left + right
    return f'<div class="pair{" fit" if fit else ""}"><div>{left}</div><div>{right}</div></div>'


def folded(summary: str, body: str) -> str:
    """Return HTML that is shown when its summary is clicked."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def page(title: str, about: str, sections: Iterable[Section], *, headline: str = "") -> str:
    """Return the whole page: its title, a headline with the result, a line about it, and its sections."""
    body = "\n".join(f"<section><h2>{escape(s.heading)}</h2>\n{s.body}</section>" for s in sections)
    result = f'<p class="verdict">{escape(headline)}</p>\n' if headline else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n{result}<p class="about">{escape(about)}</p>\n{body}\n</body>\n</html>\n'
    )
