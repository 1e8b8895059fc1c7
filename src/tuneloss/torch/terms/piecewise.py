"""A penalty whose form is learned: a convex piecewise-linear function of each parameter (section 3.1, app. B)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tuneloss.checks import as_finite, as_integer
from tuneloss.errors import InvalidInput
from tuneloss.hinges import PiecewiseLinear, hinge_names
from tuneloss.torch.terms.columns import Columns, HingeColumns
from tuneloss.torch.terms.hinges import Grid, Table, make_table, penalty, quantile_knots
from tuneloss.torch.terms.penalties import Penalty, add
from tuneloss.torch.terms.selection import Patterns, Select
from tuneloss.torch.wrappers import gathered, local_part
from tuneloss.types import Array


class ConvexPiecewiseLinear(Penalty):
    """The sum of r(parameter), where r is convex and piecewise linear, and its slope changes at p knots only.

    .. math:: r(x) = \\sum_j right_j \\max(x - a_j, 0) + left_j \\max(a_j - x, 0)

    It has 2p weights per group: right0 ... right(p-1), left0 ... left(p-1). Up to a constant, non-negative weights can
    represent every such r that is bounded from below.

    Parameters
    ----------
    knots : int or array, default 50
        The number of knots, or their positions in ascending order. A number of knots is placed at quantiles of the
        parameters, by `OnlineTuner` after the first epoch or by `LinearLoss.place_knots`.
    params : str, sequence of str or callable, optional
        As for `Penalty`.
    groups : mapping of str to str or sequence of str, optional
        As for `Penalty`. Each group has its own knots and its own function r.

    Notes
    -----
    The 2p hinges span p + 2 dimensions only. So look at the learned function (`curve`), not at its weights.

    Examples
    --------
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
            positions = torch.tensor(as_finite(knots, "knots"), dtype=torch.get_default_dtype())
            if positions.ndim != 1 or len(positions) == 0 or bool((positions.diff() <= 0).any()):
                raise InvalidInput(
                    f"`knots` must be numbers in ascending order, each once; found {positions.tolist()}."
                )
        else:
            positions = torch.full((as_integer(knots, "knots", 2),), torch.nan)
        self.register_buffer("knots", positions.repeat(len(self.groups), 1))
        self._cache: tuple[Tensor | None, object, list[Table]] = (None, (), [])  # knots, their state, tables

    @property
    def placed(self) -> bool:
        """Whether the knots have positions."""
        return not bool(self.knots.isnan().any())

    def place(self, params: Mapping[str, Tensor]) -> None:
        """Place the knots at quantiles of parameters, group by group.

        Parameters
        ----------
        params : mapping of str to tensor
            The parameters by name.
        """
        for names, row in zip(self.members_by_group(params), self.knots, strict=True):
            parts = [gathered(params[name]) for name in names]
            values = torch.cat([part.flatten().to(parts[0].device) for part in parts])
            row.copy_(quantile_knots(values.to(row.dtype), len(row)))

    @contextmanager
    def unplaced_on_error(self) -> Iterator[None]:
        """Return a context that puts the knots back where they were if its block fails."""
        before = self.knots.clone()
        try:
            yield
        except BaseException:
            self.knots.copy_(before)
            raise

    def labels(self) -> list[str]:
        hinges = hinge_names(self.knots.shape[1])
        return [f"{group}/{hinge}" if group else hinge for group in self.groups for hinge in hinges]

    def total(self, params: Mapping[str, Tensor], weights: Sequence[float]) -> Tensor:
        tables = self._tables(weights)
        parts = [penalty(local_part(params[name]), tables[group]) for name, group in self.members(params).items()]
        return add(parts)

    def columns(
        self, term: str, positions: Sequence[int], params: Mapping[str, Tensor], inside: Collection[str]
    ) -> Sequence[Columns]:
        """Return the hinges of each group, which gather counts and sums per bin."""
        if not self.has_closed_form(ConvexPiecewiseLinear.total):
            return super().columns(term, positions, params, inside)
        n, p = self.knots.shape
        groups = zip(np.reshape(positions, (n, 2 * p)).tolist(), self.members_by_group(params), self.knots, strict=True)
        return [HingeColumns(*group) for group in groups]

    def function(self, weights: Sequence[float], group: int = 0) -> PiecewiseLinear:
        """Return the function r of a group.

        Parameters
        ----------
        weights : sequence of float
            All weights of this term.
        group : int, default 0
            The number of the group.
        """
        self.check_placed()
        n, p = self.knots.shape
        return PiecewiseLinear.from_weights(Grid(self.knots[group]).positions, np.reshape(weights, (n, 2 * p))[group])

    def curve(self, weights: Sequence[float], group: int = 0) -> tuple[Array, Array]:
        """Return the regularizer r of a group, to be drawn.

        Parameters
        ----------
        weights : sequence of float
            All weights of this term.
        group : int, default 0
            The number of the group.

        Returns
        -------
        pair of (p,) arrays
            The knots, and r there minus its least value.
        """
        return self.function(weights, group).curve()

    def check_placed(self) -> None:
        """Raise unless the knots have positions."""
        if not self.placed:
            raise InvalidInput(
                "The knots of `ConvexPiecewiseLinear` must have positions before it is used; found none yet. "
                "`OnlineTuner.step` places them after the first epoch; or call `loss.place_knots(model)`, or give "
                "knots=[...]."
            )

    def _tables(self, weights: Sequence[float]) -> list[Table]:
        """Return one table per group. The tables are cached until knots or weights change."""
        key = (self.knots._version, tuple(weights))
        knots, old_key, tables = self._cache
        stale = knots is not self.knots or old_key != key
        if torch.compiler.is_compiling() or stale:  # while torch.compile traces, versions say nothing
            tables = [make_table(self.function(weights, i), Grid(row)) for i, row in enumerate(self.knots)]
            self._cache = (self.knots, key, tables)
        return tables

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, without the tables: the version counter of a copied buffer starts again."""
        return {**self.__dict__, "_cache": (None, (), [])}
