"""Loss weights inside one training run of PyTorch: terms, the loss, observations of a model, the online tuner."""

from tuneloss.torch.observing.observe import observe
from tuneloss.torch.online import OnlineTuner
from tuneloss.torch.terms.data_terms import Augmented, Dropout, UniformLabels
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.penalties import L1, L2
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
    "UniformLabels",
    "by_layer",
    "observe",
]
