"""Where among a few knots each of many numbers lies, without a search for most of them.

Bin 2j lies strictly between knots j-1 and j, and bin 2j + 1 is knot j itself. An even grid of cells is laid over the
knots; a cell without a knot is in one bin, which a table says. Only the few numbers whose cell holds a knot are
searched for among the knots, which takes ten times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

CELLS = 2**15  # so many that few numbers share one with a knot, so few that the cache holds a table of them


@dataclass(frozen=True)
class Grid:
    """Cells 1 .. CELLS - 2 over increasing knots (p,); cells 0 and CELLS - 1 are for what is outside of them.

    center: a number near the knots, from which distances are taken.
    bins: (CELLS,), the bin of each cell; -1 where it holds a knot.
    with_knot: the cells (p,) of the knots.
    """

    knots: Tensor
    center: float
    scale: float
    offset: Tensor
    bins: Tensor
    with_knot: Tensor

    def cells_of(self, distance: Tensor, room: Tensor) -> Tensor:
        """The cells (int32) of numbers at these distances from the center, both float32; they are put into `room`.

        Every step rounds, but none changes the order, so that a cell without a knot is in one bin.
        """
        torch.add(self.offset, distance, alpha=self.scale, out=room).clamp_(0, CELLS - 1)
        return room.view(torch.int32).copy_(room).clamp_(min=0)  # NaN becomes some integer

    def bins_of(self, x: Tensor) -> Tensor:
        """The bin, 0..2p, of every entry of `x` (n,).

        >>> grid(torch.tensor([0.0, 1.0]), 0.0).bins_of(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist()
        [0, 1, 2, 3, 4]
        """
        if x.dtype != torch.float32 or x.device.type != "cpu":
            return searched_bins(x, self.knots)
        x = x.detach()
        cells = self.cells_of(x - self.center, torch.empty_like(x))
        found = torch.index_select(self.bins, 0, cells)
        unsure = (found < 0).nonzero().squeeze(1)
        found[unsure] = searched_bins(x[unsure], self.knots)
        return found


def grid(knots: Tensor, center: float) -> Grid:
    """A grid over finite and increasing knots."""
    p, device = len(knots), knots.device
    first, last = knots[[0, -1]].double().tolist()
    scale = min((CELLS - 4) / ((last - first) or 2.0), 1e30)
    empty = torch.empty(0, dtype=torch.int32, device=device)
    distance = knots.float() - center
    made = Grid(knots, center, scale, distance.new_tensor((center - first) * scale + 1.5), empty, empty)
    cells = made.cells_of(distance, torch.empty_like(distance)).long()
    length = torch.cat([cells, cells.new_full((1,), CELLS)]).diff(prepend=cells.new_zeros(1))
    bins = torch.arange(0, 2 * p + 2, 2, device=device).repeat_interleave(length).index_fill_(0, cells, -1)
    return replace(made, bins=bins, with_knot=cells)


def searched_bins(x: Tensor, knots: Tensor) -> Tensor:
    """The bin, 0..2p, of every entry of `x`, by search.

    >>> searched_bins(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0]), torch.tensor([0.0, 1.0])).tolist()
    [0, 1, 2, 3, 4]
    """
    dtype = torch.promote_types(torch.promote_types(x.dtype, knots.dtype), torch.float32)
    x, knots = x.detach().reshape(-1).to(dtype), knots.to(dtype)
    below = torch.bucketize(x, knots)  # how many knots are less
    return 2 * below + (below < len(knots)) * (x == knots[below.clamp(max=len(knots) - 1)])
