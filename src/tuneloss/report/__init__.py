"""Pages about runs: numbers first (`*_info`), then figures, then one static HTML page.

html.py          a self-contained page
figures.py       how figures look everywhere; colors.py: in which colours; letters.py: with which names
pictures.py      figures as files and as parts of a page

of one tuner's runs, from its journal:

runs_info.py     the runs, and what was learned from them
learned_info.py  what the learned loss says of models and terms
findings.py      what to act on
runs_figures.py  figures
why.py           the section that says why these weights
runs_page.py     the page

of a comparison of methods:

records.py       what it is made from
info.py          curves, final values with intervals, weights
comparison.py    the page
"""
