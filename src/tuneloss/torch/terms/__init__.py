"""What a loss is made of.

To write your own penalty, import `GroupPenalty` or `Penalty` from here. The other terms are in `tuneloss.torch`.
Everything else is private.

loss.py        LinearLoss: a weighted sum of terms
decimals.py    weights as short decimals
layout.py      which weights belong to which term
data_terms.py  terms that need data, and how a loss calls them
per_source.py  one term per data source
penalties.py   terms that need parameters only
piecewise.py   a penalty whose form is learned; hinges.py: its arithmetic on tensors
columns.py     the columns of penalties in the jacobian, and the gram of all terms
selection.py   which parameters a penalty applies to
"""

from tuneloss.torch.terms.penalties import GroupPenalty, Penalty

__all__ = ["GroupPenalty", "Penalty"]
