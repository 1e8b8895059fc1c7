"""Loss weights inside one training run of PyTorch: terms, the loss, observations of a model, the online tuner."""

from tuneloss.torch.loss import LinearLoss
from tuneloss.torch.observe import observe
from tuneloss.torch.online import OnlineTuner
from tuneloss.torch.penalties import L1, L2
from tuneloss.torch.piecewise import ConvexPiecewiseLinear
from tuneloss.torch.select import by_layer
from tuneloss.torch.terms import Augmented, Dropout, UniformLabels

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
