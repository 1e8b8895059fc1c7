"""Sums over batches: values, gradients and numbers of examples."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch.observing.processes import Processes
from tuneloss.torch.observing.sampling_noise import Gradient

ERROR, METRIC = "the error", "the metric"  # names among those of terms


class Sums:
    """Sums over the batches of this process, by name of the term; the error and the metric have names too.

    Parameters
    ----------
    params : mapping of str to tensor
        The parameters to differentiate by.
    processes : Processes
        The processes that observe together.
    """

    def __init__(self, params: Mapping[str, Tensor], processes: Processes) -> None:
        self.params, self.processes = params, processes
        self.values: dict[str, float] = {}
        self.gradients: dict[str, list[Tensor | None]] = {}  # each by parameter
        self.counts: dict[str, int] = {}

    def count(self, what: str, n: int) -> None:
        """Add n to a count."""
        self.counts[what] = self.counts.get(what, 0) + n

    def add_value(self, name: str, value: Tensor, n: float) -> None:
        """Add a mean over n examples."""
        number = float(value.detach())
        if not self.processes.several:
            check_finite(name, number)
        self.values[name] = self.values.get(name, 0.0) + n * number

    def add_gradient(self, name: str, value: Tensor, n: float, *, last: bool) -> tuple[Gradient, float]:
        """Add the gradient of a mean over n examples.

        Parameters
        ----------
        name : str
            The name of the term.
        value : scalar tensor
            The mean.
        n : float
            The number of examples.
        last : bool
            Whether this is the last gradient of its forward.

        Returns
        -------
        gradient, times
            What was added: ``times * gradient``.
        """
        if not value.requires_grad:
            raise independent(name)
        params = list(self.params.values())
        gradient, times = self.processes.gradient(value, n, params, retain_graph=not last)
        dense = [g.to_dense() if g is not None and g.is_sparse else g for g in gradient]
        sums = self.gradients.setdefault(name, [None] * len(params))
        for i, g in enumerate(dense):
            if g is not None:
                old = sums[i]
                total = torch.zeros_like(g, dtype=torch.promote_types(g.dtype, torch.float32)) if old is None else old
                sums[i] = total.add_(g, alpha=times)
        return dense, times

    def depends(self, name: str) -> bool:
        """Return whether some gradient was found for a term."""
        return any(g is not None for g in self.gradients.get(name, []))


def check_finite(name: str, number: float) -> None:
    """Raise unless a value is finite."""
    if not math.isfinite(number):
        raise NotFinite(
            f"Values must be finite; {name!r} is {number} on a batch. If training diverged, go back "
            "to the best model (`OnlineTuner.restore_best`) or lower the learning rate."
        )


def independent(name: str) -> InvalidInput:
    """Return the error for a term that depends on no parameter that is trained."""
    return InvalidInput(
        f"Each data term and the error must depend on parameters that are trained; {name!r} does not. Leave it out, or "
        "check for a detach(), a no_grad() or a frozen model in it."
    )
