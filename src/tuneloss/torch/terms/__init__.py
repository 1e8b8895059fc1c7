"""What a loss is made of.

loss.py        LinearLoss: a weighted sum of terms
layout.py      which weights belong to which term
data_terms.py  terms that need data
source.py      where values of data terms come from
penalties.py   terms that need parameters only
piecewise.py   a penalty whose form is learned; hinges.py, grid.py: its arithmetic
selection.py   which parameters a penalty is of
"""
