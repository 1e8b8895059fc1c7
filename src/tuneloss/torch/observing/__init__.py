"""From a model to an observation.

`ObserveOptions` may be imported from here, and `observe` from `tuneloss.torch`; all else is private.

observe.py         observe: the observation of a model
passes.py          sums over batches
gram.py            the gram, block by block of parameters
sampling_noise.py  what the choice of batches adds to a gram
batches.py         batches of a loader
preserve.py        the model and the loaders stay as they were
processes.py       sums over processes; fsdp.py: the internals of FSDP2
"""

from tuneloss.torch.observing.observe import ObserveOptions

__all__ = ["ObserveOptions"]
