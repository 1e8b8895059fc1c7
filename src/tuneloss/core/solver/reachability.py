"""Which observations can be the argmin: is there any loss in the box that selects this one?

Observation g is reachable if some weights in the box give no other observation a lower loss. It is not reachable if
some mixture of the others has a lower loss than g under *all* weights in the box. Solvers propose the weights and the
mixture. Neither counts before plain arithmetic, with a bound on its rounding, has confirmed it; so fast solvers may be
asked first, and a slow one only if nothing was confirmed. A mixture that rules out one guess is tried on later ones.

All is in scaled coordinates; rivals are other observations, of which few are needed at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.core.box import Box
from tuneloss.core.solver.program import Scaling, lengths
from tuneloss.core.solver.qp import piqp_solver
from tuneloss.errors import SolverError
from tuneloss.types import Array

Rows = NDArray[np.intp]
SELECTS = 1e-10  # how far a guess's loss may exceed another's: rows have unit length, the largest weight is 1
MARGIN = 1e-9  # by how much a mixture must be below the guess, relative to the sizes of what is summed
ROUNDING = float(np.finfo(np.float64).eps)
ROUGH, FINE = 1e-3, 1e-8  # tolerances of the solvers that propose
REWARD = 1e-6  # for a weight without an upper bound: above what solvers leave undecided, below what sets guesses apart
FARTHEST = 1e6  # what stands for an infinite weight, in scaled units, where it has a reward
FIRST_ROWS = 24  # rivals to start with: the nearest of those that were part of any mixture so far
PROBES = 16  # weights in the box, some high and most low: a rival that always beats a guess beats it under each
NEW_ROWS = 16  # rivals added at a time: those that the proposed weights prefer most to the guess


@dataclass(frozen=True, eq=False)
class Mixture:
    """Observations (r,) and their parts (r,), which are positive."""

    rows: Rows
    parts: Array


class Reach:
    """Answers `allows(guess)` for one set of features (m, k) and a box, and learns from each answer."""

    def __init__(self, features: Array, box: Box, scales: Scaling) -> None:
        k = len(box)
        self._scales, self._raw = scales, features
        self._features = features / scales.unit
        self._lower, self._upper = scales.weights(box.lower), scales.weights(box.upper)
        self._total: Array | None = None
        if box.is_simplex:  # as a cone, cut where the scaled weights have sum 1
            self._lower, self._upper = np.zeros(k), np.ones(k)
            self._total = np.append(np.ones(k), 0.0)[None]
        self._endless = np.isinf(self._upper)
        span = np.minimum(self._upper, self._lower + 10 * np.maximum(1.0, np.abs(self._lower))) - self._lower
        self._probes = self._lower + span * (np.random.default_rng(0).random((PROBES, k)) < 1 / 8)
        self._losses = self._features @ self._probes.T
        self._mixtures: list[Mixture] = []
        self._mixture_losses = np.zeros((0, PROBES))
        self._useful = np.zeros(len(features), dtype=bool)  # was it part of any mixture so far?

    def allows(self, guess: int) -> bool | None:
        """Whether some weights in the box select the guess (Theorem 2); None if neither could be confirmed."""
        if self._is_beaten_by_one(guess) or self._is_beaten_by_known(guess):
            return False
        rows = self._nearest(guess)
        if not rows.size:  # all have the same features
            return True
        proposers = (self._deepest_mixture, self._margin, self._exact_margin)
        for propose in proposers if (self._lower >= 0).all() else proposers[1:]:
            while True:
                weights, mixture = propose(guess, rows)
                if self._confirms(guess, Mixture(rows[mixture > 0], mixture[mixture > 0]), remember=True):
                    return False
                new = self._preferred(guess, rows, weights)
                if not new.size:
                    break
                rows = np.append(rows, new)
            if self._selects(np.clip(weights, self._lower, self._upper), guess):
                return True
        return None

    def least_cap(self, guess: int) -> float:
        """The least cap (see `form`) within which the guess is reachable."""
        k = len(self._lower)
        differences, _ = self._differences(guess, np.arange(len(self._features)))
        within = np.column_stack([np.eye(k), -self._scales.cap_units(self._lower)])
        rows = np.vstack([np.pad(-differences, ((0, 0), (0, 1))), within])
        return float(self._linprog(np.append(np.zeros(k), 1.0), rows, self._upper, (0.0, np.inf))[0][-1])

    def _nearest(self, guess: int) -> Rows:
        """The rivals nearest to the guess, of those in any mixture so far; of all, if there is none of these."""
        for rivals in (np.flatnonzero(self._useful), np.arange(len(self._features))):
            distance = lengths(self._features[rivals] - self._features[guess])
            order = np.argsort(distance)
            found: Rows = rivals[order[distance[order] > 0][:FIRST_ROWS]]
            if found.size:
                break
        return found

    def _differences(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """features_row - features_guess with unit norm (r, k), and their norms before (1 where it is 0)."""
        differences = self._features[rows] - self._features[guess]
        sizes = lengths(differences)
        sizes = np.where(sizes > 0, sizes, 1.0)
        return differences / sizes[:, None], sizes

    def _preferred(self, guess: int, rows: Rows, weights: Array) -> Rows:
        """The rivals beyond `rows` that these weights prefer most to the guess."""
        losses = self._features @ weights
        own = losses[guess]
        losses[rows] = np.inf
        losses[(self._raw == self._raw[guess]).all(axis=1)] = np.inf  # the guess is no rival of itself
        lowest = np.argpartition(losses, NEW_ROWS)[:NEW_ROWS] if len(losses) > NEW_ROWS else np.arange(len(losses))
        return np.asarray(lowest[losses[lowest] < own])

    def _selects(self, weights: Array, guess: int) -> bool:
        """Whether no observation has a lower loss than the guess."""
        differences, _ = self._differences(guess, np.arange(len(self._features)))
        return bool((differences @ weights).min() >= -SELECTS * np.abs(weights).max())

    def _is_beaten_by_one(self, guess: int) -> bool:
        """Whether a single observation has a lower loss than the guess under all weights in the box."""
        rivals = np.flatnonzero((self._losses < self._losses[guess]).all(axis=1))
        differences = (self._raw[rivals] - self._raw[guess]) / self._scales.unit
        return bool(self._are_below_0(differences, 4 * ROUNDING * np.abs(differences)).any())

    def _is_beaten_by_known(self, guess: int) -> bool:
        """Whether a mixture that ruled out another guess rules out this one too."""
        better = np.flatnonzero((self._mixture_losses < self._losses[guess]).all(axis=1))
        lowest_first = better[np.argsort(self._mixture_losses[better].sum(axis=1))]
        return any(self._confirms(guess, self._mixtures[i]) for i in lowest_first)

    def _confirms(self, guess: int, mixture: Mixture, *, remember: bool = False) -> bool:
        """Whether the mixture has a lower loss than the guess under all weights in the box.

        Differences to the guess are taken before they are scaled and added, so each has a relative error of a few
        roundings, and the sum over r rows at most r + 4 roundings of the sum of sizes.
        """
        differences = (self._raw[mixture.rows] - self._raw[guess]) / self._scales.unit
        doubt = (len(mixture.rows) + 4) * ROUNDING * (mixture.parts @ np.abs(differences))
        if not self._are_below_0((mixture.parts @ differences)[None], doubt[None])[0]:
            return False
        if remember:
            self._mixtures.append(mixture)
            losses = mixture.parts @ self._losses[mixture.rows] / mixture.parts.sum()
            self._mixture_losses = np.vstack([self._mixture_losses, losses])
            self._useful[mixture.rows[mixture.parts > 1e-3 * mixture.parts.max()]] = True
        return True

    def _are_below_0(self, differences: Array, doubt: Array) -> NDArray[np.bool_]:
        if self._total is not None:
            return np.asarray((differences + doubt).max(axis=1) < 0)
        return always_below_0(differences, doubt, self._lower, self._upper)

    # The proposers: (guess, rows) -> weights (k,) that prefer the guess to the rows as far as that is possible, and
    # a mixture (r,) of the rows, not normalised, that may rule the guess out.

    def _deepest_mixture(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """For weights >= 0: maximise v subject to mixture @ features_rows + v * spread <= features_guess in every term.

        It forgets the bounds, but is small, and leaves room on all sides: it often rules out other guesses too.
        """
        differences = self._features[rows] - self._features[guess]
        r, spread = len(rows), np.abs(differences).max(axis=0)
        size = spread.max() or 1.0
        found = largest(
            rows=np.column_stack([differences.T, spread]) / size,
            total=np.append(np.ones(r), 0.0)[None],
            lower=np.append(np.zeros(r), -np.inf),
            upper=np.append(np.full(r, np.inf), 2.0),
            tolerance=ROUGH,
        )
        return found[1], np.maximum(found[0][:r], 0.0)

    def _margin(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """Maximise v <= 1 subject to (features_row - features_guess) . weights >= v, weights in the box: by PIQP.

        The multipliers of the rows are the mixture. In a term whose weight has no upper bound it may tie with the
        guess, and a tie up to rounding times an infinite weight confirms nothing. So it is found once more, with a
        small reward for such weights, which is by how much the mixture is then below the guess in these terms.
        """
        differences, sizes = self._differences(guess, rows)
        margin = np.column_stack([-differences, np.ones(len(rows))])
        lower, upper = np.append(self._lower, -np.inf), np.append(self._upper, 1.0)
        x, multipliers = largest(margin, self._total, lower, upper)
        if self._endless.any():
            rewards = np.append(REWARD * self._endless, 1.0)
            _, multipliers = largest(margin, self._total, lower, np.minimum(upper, FARTHEST), rewards=rewards)
        return x[:-1], multipliers / sizes

    def _exact_margin(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """The same by HiGHS."""
        differences, sizes = self._differences(guess, rows)
        margin = np.column_stack([-differences, np.ones(len(rows))])
        last = np.append(np.zeros(len(self._lower)), 1.0)
        x, multipliers = self._linprog(-last, margin, self._upper, (-np.inf, 1.0))
        if self._endless.any():
            rewards = np.append(REWARD * self._endless, 1.0)
            _, multipliers = self._linprog(-rewards, margin, np.minimum(self._upper, FARTHEST), (-np.inf, 1.0))
        return x[:-1], multipliers / sizes

    def _linprog(self, objective: Array, rows: Array, upper: Array, last: tuple[float, float]) -> tuple[Array, Array]:
        """Minimise objective @ (w, v) with rows @ (w, v) <= 0, lower <= w <= upper, v in `last`; and multipliers."""
        found = highs(objective, rows, self._total, np.append(self._lower, last[0]), np.append(upper, last[1]))
        if found.x is None:
            raise SolverError(f"An LP of {rows.shape[0]} rows and {rows.shape[1]} columns failed: {found.message}")
        return found.x, np.maximum(-found.ineqlin.marginals, 0.0)


def always_below_0(vectors: Array, doubt: Array, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """For each vector (r, k), known up to `doubt` (r, k): is vector . weights < 0 for all lower <= weights <= upper?

    The largest product of each coordinate is at a corner: of the interval that the coordinate is in, and of the box.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        corners = [(vectors + sign * doubt) * bound for sign in (-1, 1) for bound in (lower, upper)]
        largest_products = np.max(np.where(np.isnan(corners), 0.0, corners), axis=0)  # 0 * infinity is 0 here
        return np.asarray(largest_products.sum(axis=1) < -MARGIN * np.abs(largest_products).sum(axis=1))


def highs(objective: Array, rows: Array, total: Array | None, lower: Array, upper: Array) -> Any:
    """Minimise objective @ x subject to rows @ x <= 0, total @ x = 1, lower <= x <= upper; x is None if it failed.

    Returns SciPy's OptimizeResult. Rarely needed, and slow to import: so it is imported here.
    """
    from scipy.optimize import linprog

    return linprog(
        objective,
        A_ub=rows,
        b_ub=np.zeros(len(rows)),
        A_eq=total,
        b_eq=None if total is None else np.ones(1),
        bounds=np.column_stack([lower, upper]),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )


def largest(
    rows: Array,
    total: Array | None,
    lower: Array,
    upper: Array,
    tolerance: float = FINE,
    rewards: Array | None = None,
) -> tuple[Array, Array]:
    """Maximise rewards @ x (the last coordinate, if there are none), by PIQP, subject to

        rows @ x <= 0,  total @ x = 1,  lower <= x <= upper.

    Returns x and the multipliers of the rows: fast proposals, to be checked.
    """
    n = rows.shape[1]
    solver = piqp_solver(tolerance, iterations=50)
    solver.setup(
        np.zeros((n, n), order="F"),
        np.append(np.zeros(n - 1), -1.0) if rewards is None else -rewards,
        None if total is None else np.asfortranarray(total),
        None if total is None else np.ones(1),
        np.asfortranarray(rows),
        None,
        np.zeros(len(rows)),
        lower,
        upper,
    )
    solver.solve()
    x, multipliers = solver.result.x, solver.result.z_u
    if not np.isfinite(x.sum() + multipliers.sum()):
        return np.zeros(n), np.zeros(len(rows))  # proposes nothing: the next solver is asked
    return x, np.maximum(multipliers, 0.0)
