"""The gram in the metric of the inverse curvature of the training loss, damped as much as noise demands.

The plain gram M'M compares gradients M = [J | g] of terms and error as they are. In directions of high curvature the
loss returns to its minimum, whatever a term does there, so large gradients in them say little about where training
leads. With the Gauss-Newton matrix F of the present loss, this file computes::

    gram = lambda M' (F + lambda I)^-1 M

The inverse also amplifies directions that hold only sampling noise. Two halves A and B of the validation examples show
how much: their gradients agree if ``gram_AB / sqrt(gram_AA gram_BB)`` is near 1. The smallest lambda with sufficient
agreement is used, and the plain gram if there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import rows_of, size
from tuneloss.torch.observing.batches import merged
from tuneloss.torch.observing.gauss_newton import ADVICE, GaussNewton, evaluate, l2_diagonal
from tuneloss.torch.observing.lanczos import Ritz, block_lanczos
from tuneloss.torch.observing.passes import Pass
from tuneloss.torch.observing.preserve import seed_everything
from tuneloss.torch.observing.processes import Alone, Processes
from tuneloss.torch.observing.sampling_noise import nearest_gram
from tuneloss.torch.observing.sums import ERROR, HALF, Sums
from tuneloss.torch.terms.columns import blocks
from tuneloss.torch.terms.data_terms import Batch, DataTerm
from tuneloss.torch.terms.loss import LinearLoss

AGREEMENT = 0.5  # least cosine between the gradients of the two halves: best of 0.5, 0.6, 0.7 on the choosing problems
DAMPINGS = (1.0, 0.1, 0.01, 1e-3, 1e-4)  # times the largest Ritz value
EXAMPLES = 12  # training examples of the Gauss-Newton matrix, about: level with 25 and 400 on the choosing problems
STEPS = 2  # blocks: cheaper than 3, which were not significantly better; with more, small dampings are more exact
COLUMNS = 64  # most weights of a loss: memory and time grow with them


def check_curvature(model: nn.Module, loss: LinearLoss, processes: Processes) -> None:
    """Raise unless the curvature metric can be computed for this model and loss, by these processes."""
    if any(getattr(module, "sparse", False) for module in model.modules()):
        raise InvalidInput(
            'gradient_metric="curvature" supports dense gradients; found an embedding with sparse=True. Build it with '
            f"sparse=False. {ADVICE}"
        )
    if not isinstance(processes, Alone):
        raise InvalidInput(
            'gradient_metric="curvature" supports a model in one process, without DistributedDataParallel and FSDP2; '
            f"found a wrapped one. {ADVICE}"
        )
    if len(loss.names) > COLUMNS:
        raise InvalidInput(
            f'gradient_metric="curvature" supports a loss with at most {COLUMNS} weights; found {len(loss.names)}. '
            f"Give fewer knots or groups. {ADVICE}"
        )


def in_curvature_metric(
    observation: Observation, look: Pass, loss: LinearLoss, params: Mapping[str, Tensor]
) -> Observation:
    """Return an observation with its gram in the curvature metric, or as it is if the two halves do not agree.

    Parameters
    ----------
    observation : Observation
        The observation with the plain gram.
    look : Pass
        The pass that made it, with the gradients of a half of the error, and with training batches that it kept.
    loss : LinearLoss
        The loss that was observed.
    params : mapping of str to tensor
        All parameters that are trained; those of ``look.sums`` are in the gram.
    """
    matrix = GaussNewton(look.sums.params, l2_diagonal(loss, params))
    terms, times = _drawn_terms(loss, np.random.default_rng(look.seed))
    batches = _some_batches(look) if terms else []
    examples = sum(map(size, batches))
    for batch in merged(iter(batches), examples) if look.may_merge else batches:
        seed_everything(look.seed, 0, look.draws)  # no draw of the observation has this number
        part = times * size(batch) / examples
        matrix.parts.append(evaluate(look.model, loss, terms, batch, matrix.params, part))
    rows, noise = dense_rows(look.sums, loss, params), _noise_row(look)
    ritz = block_lanczos(matrix, torch.cat([noise.to(rows), rows]), STEPS)
    damping = trusted_damping(ritz)
    if damping is None:
        return observation
    first = look.sums.counts[HALF] / look.sums.counts[ERROR]
    k = len(loss.names)
    join = torch.eye(k + 1, k + 2, dtype=torch.float64)  # the gradient of the error is a mean of those of the halves
    join[k, k:] = torch.tensor([first, 1 - first])
    all_rows = ritz.gram(damping)
    gram = join @ all_rows[len(noise) :, len(noise) :] @ join.T
    if len(noise):  # subtract what was subtracted from the plain gram, shrunk as the metric shrinks noise
        plain = join @ (rows @ rows.T).cpu().double() @ join.T
        shrinkage = float(all_rows[0, 0]) / float(noise.square().sum())
        excess = shrinkage * (plain - torch.tensor(observation.gram))
        gram = nearest_gram(gram - excess, gram.diagonal().sqrt())
    gram = (gram + gram.T) / 2
    return Observation(
        observation.error, observation.features, gram.numpy(), metric=observation.metric, names=loss.names
    )


def _noise_row(look: Pass) -> Tensor:
    """Return a vector (1, n) of the noise of sampled training batches, or no vector (0, n) if it is not known."""
    params = list(look.sums.params.values())
    gradient = look.contrast.total if look.contrast is not None else []
    parts = [torch.zeros_like(p) if g is None else g for g, p in zip(gradient, params, strict=bool(gradient))]
    flat = torch.cat([part.detach().reshape(-1) for part in parts or params]).unsqueeze(0)
    return flat if parts and bool(flat.any()) else flat[:0]


def trusted_damping(ritz: Ritz) -> float | None:
    """Return the smallest damping with which the halves agree, the last two rows; None if they agree with none."""
    trusted = None
    for damping in (c * ritz.largest for c in DAMPINGS if ritz.largest > 0):
        (aa, ab), (_, bb) = ritz.gram(damping)[-2:, -2:].tolist()
        if ab >= AGREEMENT * math.sqrt(aa * bb) > 0:
            trusted = damping
    return trusted


def dense_rows(sums: Sums, loss: LinearLoss, params: Mapping[str, Tensor]) -> Tensor:
    """Return the gradients (k + 2, n) of all terms, and of the error on both halves, by the parameters in the gram."""
    k, chosen = len(loss.names), sums.params
    dtype = torch.float32
    for p in chosen.values():
        dtype = torch.promote_types(dtype, p.dtype)
    ends = np.cumsum([p.numel() for p in chosen.values()]).tolist()
    starts = dict(zip(chosen, [0, *ends], strict=False))
    rows = torch.zeros(k + 2, ends[-1], dtype=dtype, device=next(iter(chosen.values())).device)
    n = {HALF: sums.counts[HALF], ERROR: sums.counts[ERROR] - sums.counts[HALF]}
    for name, j in (loss.layout.data | {HALF: k, ERROR: k + 1}).items():
        for start, gradient in zip(starts.values(), sums.gradients[name], strict=True):
            if gradient is not None:
                rows[j, start : start + gradient.numel()] = gradient.reshape(-1).to(rows)
    rows[k + 1] -= rows[k]
    for name, j in (loss.layout.data | {HALF: k, ERROR: k + 1}).items():
        rows[j] /= n.get(name, sums.counts[name])
    for name, penalty, positions in loss.layout.penalties:
        for columns in penalty.columns(name, positions, params, chosen):
            for member in (member for member in chosen if member in columns.members):
                for block in blocks(member, chosen[member]):
                    columns.see(block)
                    start = starts[member] + block.part.start
                    part = slice(start, start + len(block.numbers))
                    rows[columns.positions, part] = columns.rows(block).to(rows)
    return rows


def _drawn_terms(loss: LinearLoss, rng: np.random.Generator) -> tuple[list[DataTerm], float]:
    """Draw which data terms to evaluate, and return them with how often each of their terms counts.

    Plain terms come together, and a random one comes alone, since each costs products of its own. They are drawn in
    proportion to their weights, so the matrix is exact in expectation. If all weights are 0, there are no terms.
    """
    weights = loss.numbers()
    groups = [[term for term in loss.data_terms if not term.is_random]]
    groups += [[term] for term in loss.data_terms if term.is_random]
    names = [[name for term in group for name in term.names or ()] for group in groups]
    sizes = np.array([sum(max(weights[loss.layout.data[name]], 0.0) for name in of_group) for of_group in names])
    if not sizes.any():
        return [], 0.0
    shares = sizes / sizes.sum()
    drawn = int(rng.choice(len(groups), p=shares))
    return groups[drawn], 1 / float(shares[drawn])


def _some_batches(look: Pass) -> list[Batch]:
    """Return the first batches that were kept, with about EXAMPLES examples; large ones are thinned."""
    batches: list[Batch] = []
    for batch in look.kept:
        if batches and sum(map(size, batches)) + size(batch) / 2 > EXAMPLES:
            break
        batches.append(_thinned(batch, EXAMPLES) if look.merge else batch)
    return batches


def _thinned(batch: Batch, wanted: int) -> Batch:
    """Return every second, third, ... row of a batch if it has more rows than wanted, and can be cut."""
    step = size(batch) // wanted
    try:
        return rows_of(batch, slice(0, None, step)) if step > 1 else batch
    except InvalidInput:
        return batch
