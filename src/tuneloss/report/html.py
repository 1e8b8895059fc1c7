"""A self-contained HTML page. It has no scripts and no external links, and fits light and dark screens of any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as escape_markup

from tuneloss.text import visible

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1d2127; --soft: #5a626d; --grid: #dfe2e7;
  --accent: #0072b2; --more: #1d212755; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e6e9ed; --soft: #a3abb6; --grid: #363c45; --accent: #6aa9ee; --more: #e6e9ed55; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 68rem;
  background: var(--ground); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h1, h2, p, figcaption { overflow-wrap: break-word; }
p { max-width: 46rem; margin: .5rem 0; }
.about, figcaption, .caption { color: var(--soft); }
.figures { display: grid; gap: 1.5rem 2rem; margin-top: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; max-width: 36rem; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
figure svg text { font-family: system-ui, sans-serif !important; }
figcaption, .caption { font-size: .9rem; }
.scroll { overflow-x: auto; background:
  linear-gradient(to right, var(--ground) 1rem, transparent 2.5rem) local left / 100% 100%,
  linear-gradient(to left, var(--ground) 1rem, transparent 2.5rem) local right / 100% 100%,
  linear-gradient(to right, var(--more), transparent .8rem) left / 100% 100%,
  linear-gradient(to left, var(--more), transparent .8rem) right / 100% 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; border-bottom: 1px solid var(--grid); }
th { vertical-align: bottom; }
@media (max-width: 30rem) { th, td { padding-right: .5rem; } }
th:first-child, td:first-child { text-align: left; }
table.words th, table.words td { text-align: left; vertical-align: top; min-width: 6rem; }
tr.chosen td { font-weight: 650; }
tr.chosen td:first-child { color: var(--accent); }
"""


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
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr{' class=chosen' if i == chosen else ''}>{line}</tr>\n" for i, line in enumerate(lines))
    title = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    inside = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>"
    return f'{title}<div class="scroll"><table{" class=words" if wrap else ""}>{inside}</table></div>'


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Return (svg, caption) pairs as HTML, side by side if there is room."""
    items = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in pairs)
    return f'<div class="figures">{"".join(items)}</div>'


def page(title: str, about: str, sections: Iterable[Section]) -> str:
    """Return the whole page: its title, a line about it, and its sections."""
    body = "\n".join(f"<section><h2>{escape(s.heading)}</h2>\n{s.body}</section>" for s in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="about">{escape(about)}</p>\n{body}\n</body>\n</html>\n'
    )
