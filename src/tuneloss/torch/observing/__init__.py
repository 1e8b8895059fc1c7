"""From a model to an observation.

Import `ObserveOptions` from here and `observe` from `tuneloss.torch`. Everything else is private.

observe.py         observe: the observation of a model; its options and the checks of its arguments
passes.py          a pass over the loaders: which batches are evaluated
batches.py         batches of a loader
sums.py            sums over batches, and the observation computed from them
sampling_noise.py  what the choice of batches adds to a gram
curvature.py       the gram in the metric of the inverse curvature
gauss_newton.py    products with the Gauss-Newton matrix; lanczos.py: its inverse on a Krylov space
jacobian.py        products with the jacobian of a model's outputs, forward and backward
processes.py       alone, replicas (DDP) or shards (FSDP2): what is summed over processes
messages.py        messages between processes; fsdp.py: the internals of FSDP2
preserve.py        restores the model and the loaders
"""

from tuneloss.torch.observing.observe import ObserveOptions

__all__ = ["ObserveOptions"]
