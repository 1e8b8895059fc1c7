"""Which observations can be the argmin: do any weights in the box select this one?

An observation g is reachable if some weights in the box give no other observation a lower loss. It is not reachable if
some mixture of the others has a lower loss than g under all weights in the box. Solvers propose weights and mixtures. A
proposal counts only after plain arithmetic, with a bound on its rounding, has confirmed it. So fast solvers are asked
first, and a slow one only if nothing was confirmed. A mixture that rules out one guess is tried on later guesses.

Everything is in scaled coordinates. A rival is another observation; few of them are needed at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuneloss.core.box import Box
from tuneloss.core.solver.linear import highs, largest
from tuneloss.core.solver.program import Scaling, lengths
from tuneloss.core.tolerances import CAP, MIXTURE_MARGIN, ROUNDING, ROWS_HELD, SELECTS_SCALED
from tuneloss.errors import SolverError
from tuneloss.types import Array

Rows = NDArray[np.intp]

# How proposals are searched for. None of these decides whether an answer is right.
ROUGH_TOLERANCE = 1e-3  # of PIQP, for `_deepest_mixture`
ENDLESS_REWARD = 1e-6  # for an unbounded weight: above the error of solvers, below what separates guesses
ENDLESS_BOUND = 1e6  # scaled; replaces an infinite upper bound where the weight has a reward
FIRST_RIVALS = 24  # rivals to begin with: the nearest of those that were part of a mixture
NEW_RIVALS = 16  # rivals added at a time: those that the proposed weights prefer most to the guess
PROBES = 16  # weight vectors in the box, with few high entries: a rival that always beats a guess beats it under all


@dataclass(frozen=True, eq=False)
class Mixture:
    """Indices of observations (r,) and their positive parts (r,)."""

    rows: Rows
    parts: Array


class Reach:
    """Decides which observations are reachable, for one set of features (m, k) and a box."""

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
        self._useful = np.zeros(len(features), dtype=bool)  # whether an observation was part of any mixture

    def allows(self, guess: int) -> bool | None:
        """Return whether some weights in the box select the guess (Theorem 2); None if that could not be confirmed."""
        if self._is_beaten_by_one(guess) or self._is_beaten_by_a_mixture(guess):
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
        """Return the least cap (see `form`) within which the guess is reachable."""
        k = len(self._lower)
        differences, _ = self._differences(guess, np.arange(len(self._features)))
        per_cap = self._scales.highest(self._lower, np.full(k, np.inf), cap=1.0)
        within = np.column_stack([np.eye(k), -per_cap])
        rows = np.vstack([np.pad(-differences, ((0, 0), (0, 1))), within])
        return float(self._linprog(np.append(np.zeros(k), 1.0), rows, self._upper, (0.0, np.inf))[0][-1])

    def _nearest(self, guess: int) -> Rows:
        """Return the rivals nearest to the guess among those that were part of a mixture; if none was, among all."""
        for rivals in (np.flatnonzero(self._useful), np.arange(len(self._features))):
            distance = lengths(self._features[rivals] - self._features[guess])
            order = np.argsort(distance)
            nearest: Rows = rivals[order[distance[order] > 0][:FIRST_RIVALS]]
            if nearest.size:
                break
        return nearest

    def _differences(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """Return features_row - features_guess at unit norm (r, k), and their norms (1 where it is 0)."""
        differences = self._features[rows] - self._features[guess]
        sizes = lengths(differences)
        sizes = np.where(sizes > 0, sizes, 1.0)
        return differences / sizes[:, None], sizes

    def _preferred(self, guess: int, rows: Rows, weights: Array) -> Rows:
        """Return the rivals, other than `rows`, that these weights prefer most to the guess."""
        losses = self._features @ weights
        guess_loss = losses[guess]
        losses[rows] = np.inf
        losses[(self._raw == self._raw[guess]).all(axis=1)] = np.inf  # the guess is no rival of itself
        if len(losses) > NEW_RIVALS:
            lowest = np.argpartition(losses, NEW_RIVALS)[:NEW_RIVALS]
        else:
            lowest = np.arange(len(losses))
        return np.asarray(lowest[losses[lowest] < guess_loss])

    def _selects(self, weights: Array, guess: int) -> bool:
        """Return whether no observation has a lower loss than the guess."""
        differences, _ = self._differences(guess, np.arange(len(self._features)))
        return bool((differences @ weights).min() >= -SELECTS_SCALED * np.abs(weights).max())

    def _is_beaten_by_one(self, guess: int) -> bool:
        """Return whether a single observation has a lower loss than the guess under all weights in the box."""
        rivals = np.flatnonzero((self._losses < self._losses[guess]).all(axis=1))
        differences = (self._raw[rivals] - self._raw[guess]) / self._scales.unit
        return bool(self._are_below_0(differences, 4 * ROUNDING * np.abs(differences)).any())

    def _is_beaten_by_a_mixture(self, guess: int) -> bool:
        """Return whether a mixture that ruled out another guess rules out this one too."""
        better = np.flatnonzero((self._mixture_losses < self._losses[guess]).all(axis=1))
        lowest_first = better[np.argsort(self._mixture_losses[better].sum(axis=1))]
        return any(self._confirms(guess, self._mixtures[i]) for i in lowest_first)

    def _confirms(self, guess: int, mixture: Mixture, *, remember: bool = False) -> bool:
        """Return whether the mixture has a lower loss than the guess under all weights in the box.

        Differences to the guess are taken before they are scaled and added. So each has a relative error of a few
        roundings, and the sum over r rows has an error of at most r + 4 roundings of the sum of sizes.
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

    # Proposers take a guess and r rows. They return weights (k,) that prefer the guess to the rows as far as possible,
    # and a mixture (r,) of the rows, not normalised, that may rule the guess out.

    def _deepest_mixture(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """Maximise v subject to mixture @ features_rows + v * spread <= features_guess in every term, for weights >= 0.

        This program ignores the bounds, but it is small, and its mixture is as far below the guess as possible in every
        term. So the mixture often rules out other guesses too.
        """
        differences = self._features[rows] - self._features[guess]
        r, spread = len(rows), np.abs(differences).max(axis=0)
        size = spread.max() or 1.0
        x, multipliers = largest(
            rows=np.column_stack([differences.T, spread]) / size,
            total=np.append(np.ones(r), 0.0)[None],
            lower=np.append(np.zeros(r), -np.inf),
            upper=np.append(np.full(r, np.inf), 2.0),
            tolerance=ROUGH_TOLERANCE,
        )
        return multipliers, np.maximum(x[:r], 0.0)

    def _margin(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """Maximise v <= 1 subject to (features_row - features_guess) . weights >= v and weights in the box, by PIQP.

        The multipliers of the rows are the mixture. In a term without an upper bound, the mixture may equal the guess.
        Equality up to rounding, times an infinite weight, confirms nothing. So the mixture is computed again with a
        small reward for such weights; it is then below the guess by that reward in these terms.
        """
        differences, sizes = self._differences(guess, rows)
        margin = np.column_stack([-differences, np.ones(len(rows))])
        lower, upper = np.append(self._lower, -np.inf), np.append(self._upper, 1.0)
        x, multipliers = largest(margin, self._total, lower, upper)
        if self._endless.any():
            rewards = np.append(ENDLESS_REWARD * self._endless, 1.0)
            _, multipliers = largest(margin, self._total, lower, np.minimum(upper, ENDLESS_BOUND), rewards=rewards)
        return x[:-1], multipliers / sizes

    def _exact_margin(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """Do what `_margin` does, by HiGHS."""
        differences, sizes = self._differences(guess, rows)
        margin = np.column_stack([-differences, np.ones(len(rows))])
        last = np.append(np.zeros(len(self._lower)), 1.0)
        x, multipliers = self._linprog(-last, margin, self._upper, (-np.inf, 1.0))
        if self._endless.any():
            rewards = np.append(ENDLESS_REWARD * self._endless, 1.0)
            _, multipliers = self._linprog(-rewards, margin, np.minimum(self._upper, ENDLESS_BOUND), (-np.inf, 1.0))
        return x[:-1], multipliers / sizes

    def _linprog(self, objective: Array, rows: Array, upper: Array, last: tuple[float, float]) -> tuple[Array, Array]:
        """Minimise objective @ (w, v) with rows @ (w, v) <= 0, w in the box and v in `last`; return multipliers too."""
        result = highs(objective, rows, self._total, np.append(self._lower, last[0]), np.append(upper, last[1]))
        if result.x is None:
            raise SolverError(f"An LP of {rows.shape[0]} rows and {rows.shape[1]} columns failed: {result.message}")
        return result.x, np.maximum(-result.ineqlin.marginals, 0.0)


def always_below_0(vectors: Array, doubt: Array, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Return for each vector (r, k) whether vector . weights < 0 under all lower <= weights <= upper.

    Each vector is known up to `doubt` (r, k). So each coordinate lies in an interval, and its largest product with a
    weight is at an end of that interval and an end of the weight's range.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        corners = [(vectors + sign * doubt) * bound for sign in (-1, 1) for bound in (lower, upper)]
        largest_products = np.max(np.where(np.isnan(corners), 0.0, corners), axis=0)  # 0 * infinity is 0 here
        return np.asarray(largest_products.sum(axis=1) < -MIXTURE_MARGIN * np.abs(largest_products).sum(axis=1))


def can_hold(rows: Array, box: Box, scales: Scaling) -> bool:
    """Return whether some weights in the box have rows . weights <= 0.

    The linear program maximises v <= 1 subject to rows . weights <= -v. PIQP proposes weights, and a mixture of rows
    that may be above 0 under all weights in the box. If neither is confirmed, HiGHS decides.
    """
    scaled = rows / scales.unit
    length = np.linalg.norm(scaled, axis=1)
    scaled = scaled[length > 0] / length[length > 0, None]
    if not len(scaled):
        return True
    k = len(box)
    lower, upper = (np.zeros(k), np.ones(k)) if box.is_simplex else map(scales.weights, (box.lower, box.upper))
    upper = np.minimum(upper, scales.highest(lower, upper, CAP))  # as in the program to come
    total = np.append(np.ones(k), 0.0)[None] if box.is_simplex else None
    margin = np.column_stack([scaled, np.ones(len(scaled))])
    ends = np.append(lower, -np.inf), np.append(upper, 1.0)
    x, multipliers = largest(margin, total, *ends)
    weights, mixture = np.clip(x[:-1], lower, upper), multipliers @ scaled
    if (weights.any() or not box.is_simplex) and _all_below(scaled, weights):  # on a simplex, up to a factor
        return True
    doubt = (len(scaled) + 4) * ROUNDING * (multipliers @ np.abs(scaled))
    if box.is_simplex and (mixture > doubt).all():
        return False
    if not box.is_simplex and always_below_0(-mixture[None], doubt[None], lower, upper)[0]:
        return False
    result = highs(np.append(np.zeros(k), -1.0), margin, total, *ends)
    return result.x is not None and _all_below(scaled, np.clip(result.x[:-1], lower, upper))


def _all_below(rows: Array, weights: Array) -> bool:
    """Return whether rows . weights <= 0, up to ROWS_HELD."""
    return bool((rows @ weights).max() <= ROWS_HELD * float(np.abs(weights).max()))
