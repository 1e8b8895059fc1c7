"""Where among a few knots each parameter lies: by a compiled look-up (lookup.py) on a CPU, by search elsewhere.

Bin 2j lies strictly between knots j-1 and j, and bin 2j + 1 is knot j itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tuneloss.hinges import lookup


@dataclass(frozen=True)
class Grid:
    """Finite and increasing knots (p,)."""

    knots: Tensor

    @cached_property
    def cells(self) -> tuple[Any, ...]:
        """What each look-up asks for: knots, and the cells over them."""
        wide = self.knots.detach().to(torch.promote_types(self.knots.dtype, torch.float32))
        made = lookup.make_cells(wide.cpu().numpy())
        return made.knots, made.first, made.scale, made.bins

    def bins_of(self, x: Tensor) -> Tensor:
        """The bin, 0..2p, of every entry of `x` (n,).

        >>> Grid(torch.tensor([0.0, 1.0])).bins_of(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist()
        [0, 1, 2, 3, 4]
        """
        if not can_look_up(x):
            return searched_bins(x, self.knots)
        found = torch.empty(len(x), dtype=torch.long)
        lookup.all_bins(found.numpy(), x.detach().contiguous().numpy(), *self.cells)
        return found


def can_look_up(x: Tensor) -> bool:
    """Whether the compiled look-up takes these numbers; torch.compile cannot look into it."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and not torch.compiler.is_compiling()


def searched_bins(x: Tensor, knots: Tensor) -> Tensor:
    """The bin, 0..2p, of every entry of `x`, by search.

    >>> searched_bins(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0]), torch.tensor([0.0, 1.0])).tolist()
    [0, 1, 2, 3, 4]
    """
    dtype = torch.promote_types(torch.promote_types(x.dtype, knots.dtype), torch.float32)
    x, knots = x.detach().reshape(-1).to(dtype), knots.to(dtype)
    below = torch.bucketize(x, knots)  # how many knots are less
    return 2 * below + (below < len(knots)) * (x == knots[below.clamp(max=len(knots) - 1)])
