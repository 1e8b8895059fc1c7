"""Sphinx: `make docs` builds the pages into docs/_build, with warnings as errors."""

import re
from importlib import metadata

project, author = "tuneloss", "tuneloss maintainers"
copyright = "tuneloss maintainers, Apache-2.0"
release = metadata.version("tuneloss")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", "results"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
default_role = "code"
html_theme = "pydata_sphinx_theme"
html_title = "tuneloss"
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"**": []}


def as_rst(app, what, name, obj, options, lines):
    """Our docstrings are plain text: `name: meaning` lines, indented formulas, doctests. Say so in reStructuredText."""
    made, before = [], "the first line is a sentence"
    for line in lines:
        text = line.strip()
        indented, doctest = line.startswith("    "), text.startswith(">>>")
        if indented and not doctest and not before.strip() and not in_block(made):
            made += ["::", ""]  # a formula
        if not indented and not doctest and not in_doctest(made):
            line = escaped(line)
            starts = not before.strip()
            if re.match(r"[A-Za-z_][\w\\ ,]*: \S", line) and (starts or is_field(made)):
                line = f":{line}"
            elif text and not starts and is_field(made):
                made.append("")
        made.append(line)
        before = line
    lines[:] = made


def escaped(line):
    """What plain text means by these signs, outside of `code`."""
    parts = re.split(r"(`[^`]*`)", line)
    parts[::2] = [
        re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part.replace("|", r"\|").replace("*", r"\*")) for part in parts[::2]
    ]
    return "".join(parts)


def in_block(made):
    """Whether the last line that does not belong to the text's margin is part of a formula or a field."""
    for line in reversed(made):
        if line.strip():
            return line.startswith(("    ", ":"))
    return False


def in_doctest(made):
    return (
        bool(made)
        and bool(made[-1].strip())
        and any(line.strip().startswith(">>>") for line in made[last_blank(made) :])
    )


def last_blank(made):
    return max((i for i, line in enumerate(made) if not line.strip()), default=0)


def is_field(made):
    paragraph = made[last_blank(made) :]
    return any(line.startswith(":") for line in paragraph)


def setup(app):
    app.connect("autodoc-process-docstring", as_rst)
