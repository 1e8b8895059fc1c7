"""Sphinx: `make docs` builds the pages into docs/_build. Warnings are errors."""

import sys
from pathlib import Path

import tuneloss

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project, author = "tuneloss", "tuneloss maintainers"
copyright = "tuneloss maintainers, Apache-2.0"
release = tuneloss.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "commands", "intervals"]
exclude_patterns = ["_build", "results"]
templates_path = ["_templates"]
myst_heading_anchors = 3
# Formulas are set by MathJax, which a page with a formula loads from a public server. Without network they show as
# TeX, and the page says so (site.css). For a site without network, name a local copy: sphinx-build -D mathjax_path=...
mathjax_options = {"onerror": "document.documentElement.classList.add('without-mathjax')"}
myst_enable_extensions = ["dollarmath", "deflist"]

# Docstrings are in NumPy style. Types come from signatures where a docstring gives none.
napoleon_google_docstring = False
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_class_signature = "mixed"
autodoc_typehints = "description"
autodoc_typehints_description_target = "all"
autodoc_type_aliases = {name: name for name in ("Array", "ArrayLike", "Epsilon", "Objective", "Patterns", "Select")}
default_role = "code"
smartquotes_action = "D"  # dashes only: quotes in messages, options and JSON stay as they are typed

html_theme = "pydata_sphinx_theme"
html_title = "tuneloss"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"**": ["sidebar-pages.html"]}
html_theme_options = {
    "navbar_center": [],  # all pages are in the sidebar
    "navigation_with_keys": False,
    "show_toc_level": 1,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
