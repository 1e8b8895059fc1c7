"""Loss weights inside one training run of PyTorch.

The names in `__all__` are public, and so are those that `tuneloss.torch.sources`, `tuneloss.torch.terms` and
`tuneloss.torch.observing` export.
All else is private. Start with `LinearLoss` and `OnlineTuner.step`. A file imports only from those listed below it.

online.py    OnlineTuner: learns the weights while a model trains, by a policy of `tuneloss.tuning`
observing/   observe: a model becomes an observation
sources/     loaders of several data sources
terms/       LinearLoss and its terms: data terms, penalties, the learned penalty
batch.py     what a batch is: its size, its rows, several as one
wrappers.py  what stands around a model: torch.compile, DDP, FSDP2, one forward for all terms; its parameters
"""

from tuneloss.extras import needs

with needs("torch", "torch"):
    from tuneloss.torch.observing.observe import observe
    from tuneloss.torch.online import OnlineTuner
    from tuneloss.torch.terms.data_terms import Augmented, Dropout, UniformLabels
    from tuneloss.torch.terms.loss import LinearLoss
    from tuneloss.torch.terms.penalties import L1, L2
    from tuneloss.torch.terms.per_source import PerSource
    from tuneloss.torch.terms.piecewise import ConvexPiecewiseLinear
from tuneloss.torch.terms.selection import by_layer

__all__ = [
    "L1",
    "L2",
    "Augmented",
    "ConvexPiecewiseLinear",
    "Dropout",
    "LinearLoss",
    "OnlineTuner",
    "PerSource",
    "UniformLabels",
    "by_layer",
    "observe",
]
