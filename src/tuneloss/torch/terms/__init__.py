"""What a loss is made of.

For penalties of your own, import `GroupPenalty` or `Penalty` from here. The other terms are in `tuneloss.torch`;
all else is private.

loss.py            LinearLoss: a weighted sum of terms
layout.py          which weights belong to which term
data_terms.py      terms that need data
shared_forward.py  one forward for all terms that ask for the same one
source.py          where values of data terms come from
penalties.py       terms that need parameters only
piecewise.py       a penalty whose form is learned; hinges.py: its arithmetic on tensors
columns.py         the columns of penalties in the jacobian
selection.py       which parameters a penalty is taken of
"""

from tuneloss.torch.terms.penalties import GroupPenalty, Penalty

__all__ = ["GroupPenalty", "Penalty"]
