"""The gram of all terms and the error, block by block of parameters: no n x k matrix is ever made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tuneloss.hinges import hinge_gram, hinge_matrix, hinge_products, hinge_values
from tuneloss.torch.shards import local
from tuneloss.torch.terms.hinges import Grid, bin_sums
from tuneloss.torch.terms.penalties import OneWeightAGroup, Penalty, differentiate
from tuneloss.torch.terms.piecewise import ConvexPiecewiseLinear

BLOCK = 1 << 15  # parameters at a time


def gram_and_values(
    params: Mapping[str, Tensor],
    penalties: Sequence[tuple[str, Penalty, list[int]]],
    gradients: Mapping[int, Mapping[str, Tensor]],
    k: int,
    *,
    inside: Collection[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """The gram (k + 1, k + 1) and the values (k + 1,) of the penalties, 0 for other terms; of the local shards.

    Columns of [jacobian | gradient] are in three forms: gradients of data terms and of the error, as given, and of
    penalties without a closed form, by autograd; slopes of L1 and L2, computed in each block; hinges, of which only
    counts and sums by bin are needed (see hinges.py).

    params: all that are trained. gradients: {column: {name of a parameter: gradient}}, those that are 0 left out.
    inside: the parameters in the gram, if not all; the others count in the penalties' values only.
    """
    gram, values = torch.zeros(k + 1, k + 1, dtype=torch.float64), torch.zeros(k + 1, dtype=torch.float64)
    inside = set(params if inside is None else inside)
    gradients = dict(gradients)
    for name, term, at in penalties:
        if not _has_closed_form(term):
            for j, (value, gradient) in zip(at, differentiate(name, term, params, inside), strict=True):
                values[j], gradients[j] = value, gradient
    hinges: dict[tuple[int, int], _Hinges] = {}
    for name, p in params.items():
        x = local(p).reshape(-1)
        given = [(j, own[name].reshape(-1)) for j, own in gradients.items() if name in own]
        on_it = [(n, term, term.members(params)[name], at) for n, (_, term, at) in enumerate(penalties)
                 if _has_closed_form(term) and name in term.members(params)]  # fmt: skip
        for start in range(0, x.numel(), BLOCK):
            part = slice(start, start + BLOCK)
            raw = _here(x[part])
            block = raw.double()
            columns, rows = [j for j, _ in given], [_here(g[part]).double() for _, g in given]
            binned: list[tuple[_Hinges, Tensor]] = []
            for n, term, group, at in on_it:
                if isinstance(term, OneWeightAGroup):
                    values[at[group]] += float(term.value(block))
                    columns.append(at[group])
                    rows.append(term.slope(block))
                elif isinstance(term, ConvexPiecewiseLinear):
                    if (n, group) not in hinges:
                        hinges[n, group] = _Hinges.of(term.knots[group].to(raw.device), at, group, k)
                    own = hinges[n, group]
                    index = own.grid.bins_of(raw)
                    own.count(index, block)
                    if binned and name in inside:  # a second one on the same parameters: as rows
                        columns += own.positions
                        rows += list(torch.as_tensor(hinge_matrix(len(own.grid.knots))).to(block)[:, index])
                    else:
                        binned.append((own, index))
            if name in inside:
                stacked = torch.stack(rows) if rows else block.new_zeros(0, len(block))
                _add(gram, columns, columns, (stacked @ stacked.T).cpu())
                for own, index in binned:
                    own.add(index, columns, stacked)
    for own in hinges.values():
        own.finish(gram, values)
    return gram, values


@dataclass
class _Hinges:
    """Counts and sums by bin of one group of hinges."""

    grid: Grid
    positions: list[int]
    k: int
    all_counts: Tensor = field(init=False)  # of every parameter: for the values
    all_sums: Tensor = field(init=False)
    counts: Tensor = field(init=False)  # of those in the gram
    sums: Tensor = field(init=False)

    def __post_init__(self) -> None:
        n = 2 * len(self.grid.knots) + 1
        self.all_counts, self.all_sums, self.counts = torch.zeros(3, n, dtype=torch.float64)
        self.sums = torch.zeros(n, self.k + 1, dtype=torch.float64)

    @classmethod
    def of(cls, knots: Tensor, at: list[int], group: int, k: int) -> _Hinges:
        size = 2 * len(knots)
        return cls(Grid(knots), at[group * size : (group + 1) * size], k)

    def count(self, index: Tensor, block: Tensor) -> None:
        self.all_counts += torch.bincount(index, minlength=len(self.counts)).cpu()
        self.all_sums += bin_sums(index, block.unsqueeze(0), len(self.counts)).squeeze(1).cpu()

    def add(self, index: Tensor, columns: list[int], rows: Tensor) -> None:
        self.counts += torch.bincount(index, minlength=len(self.counts)).cpu()
        self.sums[:, columns] += bin_sums(index, rows, len(self.counts)).cpu()

    def finish(self, gram: Tensor, values: Tensor) -> None:
        own = hinge_values(self.all_counts.numpy(), self.all_sums.numpy(), self.grid.positions)
        values[self.positions] += torch.from_numpy(own)
        _add(gram, self.positions, self.positions, torch.from_numpy(hinge_gram(self.counts.numpy())))
        cross = torch.from_numpy(hinge_products(self.sums.numpy()))
        everything = list(range(self.k + 1))
        _add(gram, self.positions, everything, cross)
        _add(gram, everything, self.positions, cross.T)


def _has_closed_form(term: Penalty) -> bool:
    """Whether its value and slopes can be taken block by block, and agree with its `total`."""
    return term.is_entrywise and type(term).total in (OneWeightAGroup.total, ConvexPiecewiseLinear.total)


def _add(gram: Tensor, rows: list[int], columns: list[int], block: Tensor) -> None:
    """gram[rows, columns] += block; rows and columns are different numbers each."""
    gram[torch.tensor(rows, dtype=torch.long).unsqueeze(1), torch.tensor(columns, dtype=torch.long)] += block


def _here(x: Tensor) -> Tensor:
    """On the CPU where the device has no float64."""
    return x.cpu() if x.device.type == "mps" else x
