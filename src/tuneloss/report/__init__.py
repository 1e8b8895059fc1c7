"""A page about the runs of one tuner, made from its journal. This room is private: use `tuneloss report`.

Numbers first, then words and charts, then one static HTML page:

    runs_info.py           the runs of a journal, and what LearnLoss learns from them
    learned_info.py        what the learned loss says about models and terms
    gains.py               which weights brought the gain, estimated from gradients
    verdict.py             the headline: how good, against what
    weights_table.py       the weights that are used
    run_charts.py          charts of the runs
    explanation.py         why LearnLoss chose these weights
    online_explanation.py  why an online run has its weights
    findings.py            what to act on, in words
    next_code.py           code to type
    next_steps.py          what to do next
    runs_table.py          all runs
    runs_page.py           the page

How they look:

    words.py               terms and numbers as people read them
    charts.py              small charts as SVG, with values under the pointer
    ticks.py               round numbers for axes
    html.py, style.py      a self-contained page

Figures of `tuneloss.paper`, by matplotlib:

    axes.py                the look of axes, and the drawing of one weight over the runs
    colors.py              colours; free of matplotlib, so that tables can import it
    labels.py              names of any script and length as labels
    pictures.py            figures as files, and as parts of a page
"""
