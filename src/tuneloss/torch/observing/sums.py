"""Sums over batches (values, gradients, numbers of examples), and the observation computed from them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress

import torch
from torch import Tensor

from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch.observing.processes import Numbers, Processes
from tuneloss.torch.observing.sampling_noise import Gradient, Spread, nearest_gram, products, sampled
from tuneloss.torch.terms.columns import gram_and_values
from tuneloss.torch.terms.loss import LinearLoss

ERROR, METRIC = "the error", "the metric"  # names among those of terms
HALF = "the error on the first half"  # of the validation batches
VALIDATION = "validation examples"
WORK, STEP = "work", "work of a step"  # examples times passes: of this observation, and of the batches if trained on
BATCHES = "training batches"
PASSES = 2  # a backward takes about this many forwards


@dataclass
class Sums:
    """Sums over the batches of this process, by name of the term; the error and the metric have names too.

    Parameters
    ----------
    params : mapping of str to tensor
        The parameters to differentiate by.
    processes : Processes
        The processes that observe together.
    """

    params: Mapping[str, Tensor]
    processes: Processes
    values: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, list[Tensor | None]] = field(default_factory=dict)  # each by parameter
    differentiable: set[str] = field(default_factory=set)  # names with a gradient on some batch
    steps: float = 0.0  # about how many training steps this observation takes; known after `make_observation`
    counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of examples and batches

    def add_value(self, name: str, value: Tensor, n: float) -> None:
        """Add a mean over n examples."""
        number = float(value.detach())
        if not self.processes.several:
            _check_finite(name, number)
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
        params = list(self.params.values())
        if not value.requires_grad:
            if self.processes.several:  # the others would wait
                raise _independent(name)
            self.add_to(name, [None] * len(params), n)  # a batch without rows for the term
            return [None] * len(params), n
        self.differentiable.add(name)
        gradient, times = self.processes.gradient(value, n, params, retain_graph=not last)
        dense = [g.to_dense() if g is not None and g.is_sparse else g for g in gradient]
        self.add_to(name, dense, times)
        return dense, times

    def add_to(self, name: str, gradient: Gradient, times: float) -> None:
        """Add ``times * gradient``, a list by parameter, to the sum of this name."""
        sums = self.gradients.setdefault(name, [None] * len(self.params))
        for i, g in enumerate(gradient):
            if g is not None:
                old = sums[i]
                total = torch.zeros_like(g, dtype=torch.promote_types(g.dtype, torch.float32)) if old is None else old
                sums[i] = total.add_(g, alpha=times)

    def add_means(self, sums: Sums, share: float) -> None:
        """Add the means of the error and the metric of other sums, as if they were of `share` examples."""
        self.differentiable |= sums.differentiable
        for name, count in ((ERROR, VALIDATION), (METRIC, METRIC)):
            if sums.counts[count]:
                self.counts[count] += share
                self.values[name] = self.values.get(name, 0.0) + share * sums.values[name] / sums.counts[count]
        for name in (ERROR, HALF):
            if name in sums.gradients:
                self.counts[name] += share * sums.counts[name] / sums.counts[ERROR]
                self.add_to(name, sums.gradients[name], share / sums.counts[ERROR])

    def used_by_error(self) -> list[bool]:
        """Return, for each parameter, whether the error depends on it in some process."""
        return self.processes.in_any([g is not None for g in self.gradients[ERROR]])

    def keep_params_of_error(self) -> None:
        """From here on, differentiate only by parameters on which the error depends in some process."""
        used = self.used_by_error()
        if any(used):  # otherwise `make_observation` says that the error depends on nothing
            self.params = dict(compress(self.params.items(), used))
            self.gradients = {name: list(compress(gradient, used)) for name, gradient in self.gradients.items()}


def make_observation(sums: Sums, spread: Spread, loss: LinearLoss, params: Mapping[str, Tensor]) -> Observation:
    """Build the observation of all processes; every process gets the same one.

    Parameters
    ----------
    sums : Sums
        The sums over the batches of this process. Its gradients are summed over processes, in place.
    spread : Spread
        How the training batches differ.
    loss : LinearLoss
        The loss that was observed.
    params : mapping of str to tensor
        All parameters that are trained; those of `sums` are in the gram.

    Raises
    ------
    InvalidInput
        If a data term or the error depends on no parameter.
    NotFinite
        If a value or a gradient is not finite.
    """
    columns = loss.layout.data | {ERROR: len(loss.names)}
    whole = len(sums.params) == len(params)  # otherwise a term may depend on parameters that were not chosen
    for name in loss.source_names - sums.gradients.keys():  # other processes may have rows of these sources
        sums.gradients[name], sums.values[name] = [None] * len(sums.params), 0.0
    for name in columns.keys() - loss.source_names:
        if name not in sums.differentiable or (whole and all(g is None for g in sums.gradients[name])):
            raise _independent(name)
    sums.processes.sum_gradients([sums.gradients[name] for name in columns], list(sums.params.values()))
    numbers = sums.processes.sum_numbers(_numbers(sums, spread, loss, params, columns), list(columns.values()))
    gram, noise, values, examples, rest = numbers
    for name, j in columns.items():
        if examples[j] == 0:
            raise InvalidInput(
                f"Each source must have rows among the training batches that are read; {name!r} has none. Read more "
                "batches, or read one batch of each source with a SourceLoader."
            )
        _check_finite(name, float(values[j]))
    _check_finite(METRIC, float(rest[0]))
    if bad := [name for name, j in columns.items() if not math.isfinite(gram[j, j])]:
        raise NotFinite(
            f"Gradients must be finite; those of {bad} are not, though their values are. Look for a square root "
            "or a division at 0 in them."
        )
    if noise.any() and bool(gram.isfinite().all()):  # otherwise `Observation` says what is wrong
        gram = nearest_gram(gram - noise, gram.diagonal().sqrt())
    metric, n_metric, n_validation, work, step, batches, processes = rest.tolist()
    sums.steps = work / max(step, 1) * batches / processes
    k = len(loss.names)
    in_gradient = examples.where(examples > 0, 1.0)  # penalties are sums over parameters, not over examples
    in_value = in_gradient.clone()
    in_value[k] = n_validation
    values, gram = values / in_value, gram / in_gradient / in_gradient.unsqueeze(1)  # from sums to means
    metric = metric / n_metric if METRIC in sums.values else None
    return Observation(float(values[k]), values[:k].numpy(), gram.numpy(), metric=metric, names=loss.names)


def _numbers(
    sums: Sums, spread: Spread, loss: LinearLoss, params: Mapping[str, Tensor], columns: Mapping[str, int]
) -> Numbers:
    """Return what this process knows; `make_observation` reads the metric and the numbers of examples from `rest`."""
    gradients = {
        j: {n: g for n, g in zip(sums.params, sums.gradients[name], strict=True) if g is not None}
        for name, j in columns.items()
    }
    of_penalties = [c for name, p, at in loss.layout.penalties for c in p.columns(name, at, params, sums.params)]
    gram, values = gram_and_values(params, of_penalties, gradients, len(loss.names), inside=sums.params)
    noise = torch.zeros_like(gram)
    if spread.compares and spread.names:
        n, squares = sums.processes.sum_spread(spread)
        at = torch.tensor(list(loss.layout.data.values()))
        chosen = list(sums.params.values())
        total = products([sampled(sums.gradients[name], chosen) for name in spread.names])
        noise[at.unsqueeze(1), at] = spread.excess(total, n, squares)
    examples = torch.zeros_like(values)
    for name, j in columns.items():
        values[j], examples[j] = sums.values[name], sums.counts[name]
    rest = [sums.counts[what] for what in (METRIC, VALIDATION, WORK, STEP, BATCHES)]
    rest = [sums.values.get(METRIC, 0.0), *rest, 1.0]  # the last one counts processes
    return Numbers(gram, noise, values, examples, torch.tensor(rest, dtype=torch.float64))


def _check_finite(name: str, number: float) -> None:
    """Raise unless a value is finite."""
    if not math.isfinite(number):
        raise NotFinite(
            f"Values must be finite; {name!r} is {number} on a batch. If training diverged, go back "
            "to the best model (`OnlineTuner.restore_best`) and lower the learning rate. Under SGD, larger weights "
            "make larger steps, unless the loss has normalize=True."
        )


def _independent(name: str) -> InvalidInput:
    """Return the error for a term that depends on no parameter that is trained."""
    return InvalidInput(
        f"Each data term and the error must depend on parameters that are trained; {name!r} does not. Leave it out, or "
        "check for a detach(), a no_grad() or a frozen model in it."
    )
