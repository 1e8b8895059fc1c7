"""The gram of all terms and the error, summed over blocks of parameters. No n x k matrix is ever formed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tuneloss.torch.terms.columns import Block, Columns, add_block
from tuneloss.torch.terms.penalties import Penalty
from tuneloss.torch.wrappers import local

BLOCK = 1 << 15  # entries of a parameter at a time: a block with a few dozen rows in float64 fits into a CPU's cache

Gradients = Mapping[int, Mapping[str, Tensor]]


def gram_and_values(
    params: Mapping[str, Tensor],
    penalties: Sequence[tuple[str, Penalty, Sequence[int]]],
    gradients: Gradients,
    k: int,
    *,
    inside: Collection[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the gram of all columns, and the values of the penalties, over the local shards.

    Parameters
    ----------
    params : mapping of str to tensor
        All parameters that are trained.
    penalties : sequence of (name, penalty, positions)
        The penalties of the loss, and the positions of their weights.
    gradients : mapping
        The gradients of the data terms and of the error: ``{column: {parameter: gradient}}``; a missing one is 0.
    k : int
        The number of weights. Column k is the error's.
    inside : collection of str, optional
        The parameters in the gram, by default all. The others count in the values of penalties only.

    Returns
    -------
    gram : (k + 1, k + 1) float64 tensor
    values : (k + 1,) float64 tensor
        0 for data terms and the error.
    """
    gram, values = torch.zeros(k + 1, k + 1, dtype=torch.float64), torch.zeros(k + 1, dtype=torch.float64)
    inside = set(params if inside is None else inside)
    columns = [c for name, penalty, at in penalties for c in penalty.columns(name, at, params, inside)]
    for name, p in params.items():
        of_penalties = [c for c in columns if name in c.members]
        of_data = {j: gradient[name].reshape(-1) for j, gradient in gradients.items() if name in gradient}
        for block in blocks(name, p):
            for c in of_penalties:
                c.see(block)
            if name in inside:
                _add_products(gram, block, of_data, of_penalties)
    for c in columns:
        c.add_to(gram, values)
    return gram, values


def _add_products(gram: Tensor, block: Block, of_data: Mapping[int, Tensor], of_penalties: Sequence[Columns]) -> None:
    """Add the products of all columns over a block. One penalty may gather sums per bin; the others are rows."""
    gathering = [c for c in of_penalties if c.gathers][:1]
    as_rows = [c for c in of_penalties if c not in gathering]
    columns = [*of_data, *(j for c in as_rows for j in c.positions)]
    data_rows = [_with_float64(gradient[block.part]).double().unsqueeze(0) for gradient in of_data.values()]
    rows = torch.cat([*data_rows, *(c.rows(block) for c in as_rows), block.numbers.new_zeros(0, len(block.numbers))])
    add_block(gram, columns, columns, (rows @ rows.T).cpu())
    for c in gathering:
        c.gather(columns, rows)


def blocks(name: str, p: Tensor) -> Iterator[Block]:
    """Cut the local part of a parameter into blocks."""
    flat = local(p).reshape(-1)
    for start in range(0, flat.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        entries = _with_float64(flat[part])
        yield Block(name, part, entries, entries.double())


def _with_float64(x: Tensor) -> Tensor:
    """Return a tensor on a device that has float64: on the CPU instead of mps."""
    return x.cpu() if x.device.type == "mps" else x
