"""A page about the runs of one tuner, made from its journal. All of it is private: use `tuneloss report`.

Numbers first, then figures, then one static HTML page:

    runs_info.py     the runs of a journal, and what LearnLoss learns from them
    learned_info.py  what the learned loss says about models and terms
    findings.py      what to act on, in words
    explanation.py   why these weights: the section in words and figures
    runs_figures.py  figures of the runs
    runs_page.py     the page

How figures and pages look, here and in `tuneloss.paper`:

    axes.py          the look of axes, and a weight by run
    colors.py        colours
    labels.py        names of terms as labels, in any script and of any length
    pictures.py      figures as files, and as parts of a page
    html.py          a self-contained page
"""
