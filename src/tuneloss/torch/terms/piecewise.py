"""A penalty whose form is learned: a convex piecewise-linear function of each parameter (section 3.1, app. B)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tuneloss.core.checks import as_finite, as_integer
from tuneloss.errors import InvalidInput
from tuneloss.torch.terms.hinges import Table, penalty, quantile_knots, table
from tuneloss.torch.terms.penalties import Penalty, add, gathered, own_part
from tuneloss.torch.terms.selection import Patterns, Select


class ConvexPiecewiseLinear(Penalty):
    """Sum of r(parameter), r convex and piecewise linear, its slope changing only at p knots.

        r(x) = sum_j right_j * max(x - knot_j, 0) + left_j * max(knot_j - x, 0)

    It has 2 p weights a group: right_0 ... right_(p-1), left_0 ... left_(p-1). Weights >= 0 give every such r that
    does not fall without end to either side, up to a constant. The hinges span p + 2 dimensions only, so look at the
    learned function (`function`), not at its coefficients.

    knots: how many, to be placed at quantiles of the parameters by `OnlineTuner` after the first epoch, or by `place`;
        or the positions themselves, in ascending order.
    params, groups: as for every penalty; each group has its own knots and r.

    >>> absolute = ConvexPiecewiseLinear(knots=[0.0])
    >>> absolute.total({"weight": torch.tensor([[1.0, -3.0]])}, [0.5, 0.5])
    tensor(2.)
    """

    name = "learned"
    entrywise = True
    knots: Tensor

    def __init__(
        self,
        knots: int | ArrayLike = 50,
        params: Select | None = None,
        *,
        groups: Mapping[str, Patterns] | None = None,
    ) -> None:
        super().__init__(params, groups=groups)
        if np.ndim(knots) > 0:
            given = torch.tensor(as_finite(knots, "knots"), dtype=torch.get_default_dtype())
            if given.ndim != 1 or len(given) == 0 or bool((given.diff() <= 0).any()):
                raise InvalidInput(f"`knots` must be numbers in ascending order, each once; found {given.tolist()}.")
        else:
            given = torch.full((as_integer(knots, "knots", 2),), torch.nan)
        self.register_buffer("knots", given.repeat(len(self.groups), 1))
        self._ready: tuple[Tensor | None, object, list[Table]] = (None, (), [])

    @property
    def placed(self) -> bool:
        """Whether the knots have positions."""
        return not bool(self.knots.isnan().any())

    def place(self, params: Mapping[str, Tensor]) -> None:
        """Put the knots at quantiles of these parameters, group by group."""
        members = self.members(params)
        for group, row in enumerate(self.knots):
            parts = [gathered(params[name]) for name, number in members.items() if number == group]
            values = torch.cat([part.flatten().to(parts[0].device) for part in parts])
            row.copy_(quantile_knots(values.to(row.dtype), len(row)))

    @contextmanager
    def unplaced_on_error(self) -> Iterator[None]:
        """Puts the knots back where they were if the block fails."""
        before = self.knots.clone()
        try:
            yield
        except BaseException:
            self.knots.copy_(before)
            raise

    def labels(self) -> list[str]:
        sides = [f"{side}{j}" for side in ("right", "left") for j in range(self.knots.shape[1])]
        return [f"{group}/{side}" if group else side for group in self.groups for side in sides]

    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        tables = self._tables(weights)
        parts = [penalty(own_part(params[name]), tables[group]) for name, group in self.members(params).items()]
        return add(parts)

    def function(self, weights: Sequence[float], group: int = 0) -> Table:
        """r as knots, slopes and intercepts, from the weights of this term."""
        return self._tables(weights)[group]

    def curve(self, weights: Sequence[float], group: int = 0) -> tuple[Tensor, Tensor]:
        """The knots (p,) and the values of r there (p,), the least of them 0: what to draw."""
        r, at_knots = self.function(weights, group), slice(1, None, 2)  # bins 2j + 1
        knots = r.grid.knots.double()
        values = r.intercept[at_knots] + r.slope[at_knots] * (knots - r.center)
        return knots, values - values.min()

    def check_placed(self) -> None:
        """Raise unless the knots have positions."""
        if not self.placed:
            raise InvalidInput(
                "The knots of `ConvexPiecewiseLinear` must have positions before it is used; found none yet. "
                "`OnlineTuner.step` places them after the first epoch; or call `loss.place_knots(model)`, or give "
                "knots=[...]."
            )

    def _tables(self, weights: Sequence[float]) -> list[Table]:
        key = (self.knots._version, tuple(weights))
        known, of, made = self._ready
        if torch.compiler.is_compiling() or known is not self.knots or of != key:  # versions say nothing then
            self.check_placed()
            n, p = self.knots.shape
            sides = torch.tensor(weights, dtype=torch.float64, device=self.knots.device).reshape(n, 2, p)
            made = [table(row, right, left) for row, (right, left) in zip(self.knots, sides, strict=True)]
            self._ready = (self.knots, key, made)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For a copy: its buffers count their versions anew, so what was made of them is forgotten."""
        return {**self.__dict__, "_ready": (None, (), [])}
