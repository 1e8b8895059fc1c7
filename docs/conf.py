"""Sphinx: `make docs` builds the pages into docs/_build. Warnings are errors."""

import tuneloss

project, author = "tuneloss", "tuneloss maintainers"
copyright = "tuneloss maintainers, Apache-2.0"
release = tuneloss.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", "results"]
templates_path = ["_templates"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "deflist"]

# Docstrings are in NumPy style. Types come from signatures where a docstring gives none.
napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_typehints = "description"
autodoc_typehints_description_target = "all"
autodoc_type_aliases = {name: name for name in ("Array", "ArrayLike", "Epsilon", "Objective", "Patterns", "Select")}
default_role = "code"

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
