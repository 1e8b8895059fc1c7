"""The observation, computed from sums over batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tuneloss.core.observation import Observation
from tuneloss.errors import NotFinite
from tuneloss.torch.observing.gram import gram_and_values
from tuneloss.torch.observing.processes import Numbers, Processes
from tuneloss.torch.observing.sampling_noise import Spread, nearest_gram, products, sampled
from tuneloss.torch.observing.sums import ERROR, METRIC, Sums, check_finite, independent
from tuneloss.torch.terms.loss import LinearLoss


def make_observation(
    sums: Sums, spread: Spread, loss: LinearLoss, params: Mapping[str, Tensor], processes: Processes
) -> Observation:
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
    processes : Processes
        The processes that observe together.

    Raises
    ------
    InvalidInput
        If a data term or the error depends on no parameter.
    NotFinite
        If a value or a gradient is not finite.
    """
    columns = loss.layout.data | {ERROR: len(loss.names)}
    _check_dependent(sums, columns, whole=len(sums.params) == len(params))
    processes.sum_gradients([sums.gradients[name] for name in columns], list(sums.params.values()))
    numbers = processes.sum_numbers(_numbers(sums, spread, loss, params, columns, processes), list(columns.values()))
    _check_numbers(numbers, columns)
    gram = numbers.gram
    if numbers.noise.any() and bool(gram.isfinite().all()):  # otherwise `_observation` says what is wrong
        gram = nearest_gram(gram - numbers.noise, gram.diagonal().sqrt())
    return _observation(loss, numbers._replace(gram=gram), with_metric=METRIC in sums.values)


def _numbers(
    sums: Sums,
    spread: Spread,
    loss: LinearLoss,
    params: Mapping[str, Tensor],
    columns: Mapping[str, int],
    processes: Processes,
) -> Numbers:
    """Return what this process knows; `rest` is the metric and the numbers of examples, as `_observation` reads it."""
    gradients = {
        j: {n: g for n, g in zip(sums.params, sums.gradients[name], strict=True) if g is not None}
        for name, j in columns.items()
    }
    gram, values = gram_and_values(params, loss.layout.penalties, gradients, len(loss.names), inside=sums.params)
    noise = torch.zeros_like(gram)
    if spread.compares and spread.names:
        n, squares = processes.sum_spread(spread)
        at = torch.tensor(list(loss.layout.data.values()))
        noise[at.unsqueeze(1), at] = spread.excess(_products(sums, spread.names), n, squares)
    for name, j in columns.items():
        values[j] = sums.values[name]
    counts = [float(sums.counts[what]) for what in ("train", "validation", ERROR)]
    return Numbers(gram, noise, values, torch.tensor([sums.values.get(METRIC, 0.0), *counts], dtype=torch.float64))


def _products(sums: Sums, names: Sequence[str]) -> Tensor:
    """Return inner products of sampled entries of the summed gradients of data terms."""
    params = list(sums.params.values())
    return products([sampled(sums.gradients[name], params) for name in names])


def _observation(loss: LinearLoss, numbers: Numbers, *, with_metric: bool) -> Observation:
    """Turn sums over examples into means."""
    gram, _, values, rest = numbers
    metric, n_train, n_validation, n_gradient = rest.tolist()
    k = len(loss.names)
    examples, in_gradient = torch.ones(2, k + 1, dtype=torch.float64)
    for j in loss.layout.data.values():
        examples[j] = in_gradient[j] = n_train
    examples[k], in_gradient[k] = n_validation, n_gradient
    values, gram = values / examples, gram / in_gradient / in_gradient.unsqueeze(1)
    return Observation(
        float(values[k]),
        values[:k].numpy(),
        gram.numpy(),
        metric=metric / n_validation if with_metric else None,
        names=loss.names,
    )


def _check_dependent(sums: Sums, columns: Mapping[str, int], *, whole: bool) -> None:
    """Raise if a term has no gradient; if only some parameters were chosen, it may depend on the others."""
    for name in columns:
        if name not in sums.gradients or (whole and not sums.depends(name)):
            raise independent(name)


def _check_numbers(numbers: Numbers, columns: Mapping[str, int]) -> None:
    """Raise unless the sums over processes are finite."""
    for name, j in columns.items():
        check_finite(name, float(numbers.values[j]))
    check_finite(METRIC, float(numbers.rest[0]))
    if bad := [name for name, j in columns.items() if not math.isfinite(numbers.gram[j, j])]:
        raise NotFinite(
            f"Gradients must be finite; those of {bad} are not, though their values are. Look for a square root "
            "or a division at 0 in them."
        )
