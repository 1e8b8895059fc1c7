"""A page about the runs of one tuner, made from its journal. This room is private: use `tuneloss report`.

Numbers first, then figures, then one static HTML page:

    runs_info.py     the runs of a journal, and what LearnLoss learns from them
    learned_info.py  what the learned loss says about models and terms
    findings.py      what to act on, in words
    explanation.py   why LearnLoss chose these weights, in words and figures
    runs_figures.py  figures of the runs
    runs_page.py     the page

How figures and pages look, here and in `tuneloss.paper`:

    axes.py          the look of axes, and the drawing of one weight over the runs
    colors.py        colours; free of matplotlib, so that tables can import it
    labels.py        names of any script and length as labels
    pictures.py      figures as files, and as parts of a page
    html.py          a self-contained page
"""
