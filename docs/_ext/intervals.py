"""Keeps the sign ± and the number after it on one line of a table."""

from typing import Any

from docutils import nodes


def join_intervals(app: Any, doctree: nodes.document) -> None:
    """Replace the blank after each ± in a table by one that does not break. A line may still break before the sign."""
    for entry in doctree.findall(nodes.entry):
        for text in list(entry.findall(nodes.Text)):
            if "± " in text:
                text.parent.replace(text, nodes.Text(text.replace("± ", "±\u00a0")))


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", join_intervals)
    return {"parallel_read_safe": True}
