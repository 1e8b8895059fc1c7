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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.torch.observing.batches import merged, rows_of, size
from tuneloss.torch.observing.gauss_newton import ADVICE, GaussNewton, evaluate, l2_diagonal
from tuneloss.torch.observing.lanczos import Ritz, block_lanczos
from tuneloss.torch.observing.passes import Pass
from tuneloss.torch.observing.preserve import seed_everything
from tuneloss.torch.observing.processes import Alone, Processes
from tuneloss.torch.observing.sampling_noise import nearest_gram
from tuneloss.torch.observing.sums import ERROR, HALF, Sums
from tuneloss.torch.terms.columns import blocks
from tuneloss.torch.terms.data_terms import Batch, Source
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.types import Array

AGREEMENT = 0.5  # least cosine between the gradients of the two halves: best of 0.5, 0.6, 0.7 on the choosing problems
DAMPINGS = (1.0, 0.1, 0.01, 1e-3, 1e-4)  # times the largest Ritz value
EXAMPLES = 400  # training examples of the Gauss-Newton matrix, about
SOURCES = 2  # callables that give data terms: of more, some are drawn, since each costs its own products
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
    for number, share in enumerate(_shares(loss, look)):
        batches = merged(iter(share.batches), share.examples) if look.may_merge else share.batches
        for batch in batches:
            seed_everything(look.seed, number, look.draws)  # no draw of the observation has this number
            times = share.times * size(batch) / share.examples
            matrix.parts.append(evaluate(look.model, loss, share.sources, batch, matrix.params, times))
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
        rows[j] /= n.get(name, sums.counts["train"])
    for name, penalty, positions in loss.layout.penalties:
        for columns in penalty.columns(name, positions, params, chosen):
            for member in (member for member in chosen if member in columns.members):
                for block in blocks(member, chosen[member]):
                    columns.see(block)
                    start = starts[member] + block.part.start
                    part = slice(start, start + len(block.numbers))
                    rows[columns.positions, part] = columns.rows(block).to(rows)
    return rows


@dataclass(frozen=True)
class _Share:
    """The batches on which some sources of data terms are evaluated, and how often each of their terms counts."""

    sources: Sequence[Source]
    batches: Sequence[Batch]
    times: float

    @property
    def examples(self) -> int:
        return sum(map(size, self.batches))


def _shares(loss: LinearLoss, look: Pass) -> Iterator[_Share]:
    """Share batches out to sources of data terms, in proportion to their weights; plain sources come together.

    Of many sources some are drawn, in proportion to their weights too: the matrix is exact in expectation.
    """
    weights = loss.numbers()
    groups = [[source for source in loss.sources if not source.is_random]]
    groups += [[source] for source in loss.sources if source.is_random]
    names = [[name for source in group for name in source.names or ()] for group in groups]
    sizes = np.array([sum(max(weights[loss.layout.data[name]], 0.0) for name in of_group) for of_group in names])
    if not sizes.any():
        return
    shares = sizes / sizes.sum()
    drawn = _drawn(shares, np.random.default_rng(look.seed)) if np.count_nonzero(sizes) > SOURCES else shares
    kept, at = look.kept, 0
    most = min(EXAMPLES, sum(map(size, kept)))
    for group, share, part in zip(groups, shares, drawn, strict=True):
        if part > 0:
            batches: list[Batch] = []
            while not batches or sum(map(size, batches)) + size(kept[at % len(kept)]) / 2 <= most * part:
                batch = kept[at % len(kept)]
                batches.append(_thinned(batch, most * part) if look.merge else batch)
                at += 1
            yield _Share(group, batches, part / share)


def _drawn(shares: Array, rng: np.random.Generator) -> Array:
    """Return parts that sum to 1, of which at most SOURCES are not 0, and whose expectations are the shares."""
    points = (np.arange(SOURCES) + rng.random()) / SOURCES
    order = rng.permutation(len(shares))
    counts = np.zeros(len(shares))
    np.add.at(counts, order[np.minimum(np.searchsorted(np.cumsum(shares[order]), points), len(shares) - 1)], 1.0)
    return counts / SOURCES


def _thinned(batch: Batch, wanted: float) -> Batch:
    """Return every second, third, ... row of a batch if it has more rows than wanted, and can be cut."""
    step = int(size(batch) / max(wanted, 1.0))
    try:
        return rows_of(batch, slice(0, None, step)) if step > 1 else batch
    except InvalidInput:
        return batch
