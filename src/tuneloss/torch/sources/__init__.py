"""Data sources of a loss: what a loader of several sources yields.

source_loader.py   SourceLoader: one batch of each source at a time
mixture_loader.py  MixtureLoader: batches drawn with the weights of a loss as probabilities
target_mix.py      TargetMix: a validation error on several sets, with fixed weights
stream.py          the examples of one data set, without end, in an order that can be resumed
"""

from tuneloss.torch.batch import SourceBatch
from tuneloss.torch.sources.mixture_loader import MixtureLoader
from tuneloss.torch.sources.source_loader import SourceLoader
from tuneloss.torch.sources.target_mix import TargetMix

__all__ = ["MixtureLoader", "SourceBatch", "SourceLoader", "TargetMix"]
