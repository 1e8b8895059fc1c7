"""Which observations can be the argmin: is there any loss in the box that selects this one?

Observation g is reachable if some weights in the box give no other observation a lower loss. It is not reachable if
some mixture of the others has a lower loss than g under *all* weights in the box. Both proofs, the weights and the
mixture, are checked here by plain arithmetic, so fast solvers may propose them; a slow one is asked
only if neither holds. A mixture that rules out one guess is tried on every later one.

All is in scaled coordinates; rivals are other observations, of which few are needed at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, linprog

from tuneloss.core.box import Box
from tuneloss.core.checks import Array
from tuneloss.core.forms import Scaling
from tuneloss.core.qp import piqp_solver
from tuneloss.errors import SolverError

Rows = NDArray[np.intp]
TOLERANCE = 1e-9  # of the size of what is summed
ROUGH, FINE = 1e-3, 1e-8  # tolerances of the solvers that propose
FIRST_ROWS = 24  # rivals to start with: the nearest of those that were part of any mixture so far
PROBES = 16  # weights in the box, some high and most low: a rival that always beats a guess beats it under each
NEW_ROWS = 16  # rivals added at a time: those that the proposed weights prefer most to the guess


class Reach:
    """Answers `allows(guess)` for one set of features (m, k) and a box, and learns from each answer."""

    def __init__(self, features: Array, box: Box, scales: Scaling) -> None:
        k = len(box)
        self._features = features / scales.unit
        self._lower, self._upper = scales.weights(box.lower), scales.weights(box.upper)
        self._total: Array | None = None
        if box.is_simplex:  # as a cone, cut where the scaled weights have sum 1
            self._lower, self._upper = np.zeros(k), np.ones(k)
            self._total = np.append(np.ones(k), 0.0)[None]
        span = np.minimum(self._upper, self._lower + 10 * np.maximum(1.0, np.abs(self._lower))) - self._lower
        self._probes = self._lower + span * (np.random.default_rng(0).random((PROBES, k)) < 1 / 8)
        self._losses = self._features @ self._probes.T
        self._mixtures, self._mixture_losses = np.zeros((0, k)), np.zeros((0, PROBES))
        self._useful = np.zeros(len(features), dtype=bool)  # was it part of any mixture so far?

    def allows(self, guess: int) -> bool:
        """Whether some weights in the box select the guess (Theorem 2)."""
        for rivals, losses in ((self._mixtures, self._mixture_losses), (self._features, self._losses)):
            better = np.flatnonzero((losses < self._losses[guess]).all(axis=1))
            best_first = better[np.argsort(losses[better].sum(axis=1))]
            for some in (best_first[:NEW_ROWS], best_first[NEW_ROWS:]):
                if some.size and self._beaten(rivals[some], guess):
                    return False
        rows = self._nearest(guess)
        if not rows.size:  # all have the same features
            return True
        proposers = (self._deepest_mixture, self._margin, self._exact_margin)
        for propose in proposers if (self._lower >= 0).all() else proposers[1:]:
            while True:
                weights, mixture = propose(guess, rows)
                if mixture.any() and self._rules_out(guess, rows, mixture / mixture.sum()):
                    return False
                new = self._preferred(guess, rows, weights)
                if not new.size:
                    break
                rows = np.append(rows, new)
            inside = np.clip(weights, self._lower, self._upper)
            if self._selects(inside, guess, TOLERANCE):
                return True
        return self._selects(inside, guess, 100 * TOLERANCE)  # at the edge of reach: as far as numbers tell

    def least_cap(self, guess: int) -> float:
        """The least bound on scaled weights, as multiples of max(1, |lower|), within which the guess is reachable."""
        k = len(self._lower)
        differences, _ = self._differences(guess, np.arange(len(self._features)))
        within = np.column_stack([np.eye(k), -np.maximum(1.0, np.abs(self._lower))])
        rows = np.vstack([np.pad(-differences, ((0, 0), (0, 1))), within])
        return float(self._linprog(np.append(np.zeros(k), 1.0), rows, (0.0, np.inf))[0][-1])

    def _nearest(self, guess: int) -> Rows:
        """The rivals nearest to the guess, of those in any mixture so far; of all, if there is none of these."""
        for rivals in (np.flatnonzero(self._useful), np.arange(len(self._features))):
            distance = np.linalg.norm(self._features[rivals] - self._features[guess], axis=1)
            order = np.argsort(distance)
            found: Rows = rivals[order[distance[order] > 0][:FIRST_ROWS]]
            if found.size:
                break
        return found

    def _differences(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """features_row - features_guess with unit norm (r, k), and their norms before (1 where it is 0)."""
        differences = self._features[rows] - self._features[guess]
        sizes = np.linalg.norm(differences, axis=1)
        sizes = np.where(sizes > 0, sizes, 1.0)
        return differences / sizes[:, None], sizes

    def _preferred(self, guess: int, rows: Rows, weights: Array) -> Rows:
        """The rivals beyond `rows` that these weights prefer most to the guess."""
        losses = self._features @ weights
        losses[rows] = np.inf
        lowest = np.argpartition(losses, NEW_ROWS)[:NEW_ROWS] if len(losses) > NEW_ROWS else np.arange(len(losses))
        return np.asarray(lowest[losses[lowest] < self._features[guess] @ weights])

    def _selects(self, weights: Array, guess: int, tolerance: float) -> bool:
        """Whether no observation has a lower loss than the guess."""
        differences, _ = self._differences(guess, np.arange(len(self._features)))
        return bool((differences @ weights).min() >= -tolerance * np.linalg.norm(weights))

    def _rules_out(self, guess: int, rows: Rows, mixture: Array) -> bool:
        """Whether the mixture of rows (r,) has a lower loss than the guess under all weights; if so, remember it."""
        mixed = mixture[None] @ self._features[rows]
        if not self._beaten(mixed, guess):
            return False
        self._mixtures = np.vstack([self._mixtures, mixed])
        self._mixture_losses = np.vstack([self._mixture_losses, mixed @ self._probes.T])
        self._useful[rows[mixture > 1e-3 * mixture.max()]] = True
        return True

    def _beaten(self, rivals: Array, guess: int) -> bool:
        """Whether one of the rivals (r, k) has a lower loss than the guess under all weights in the box."""
        difference = rivals - self._features[guess]
        rounding = 1e-14 * (np.abs(rivals) + np.abs(self._features[guess]))
        if self._total is not None:
            return bool(((difference + rounding).max(axis=1, initial=-np.inf) < 0).any())
        bounds = np.where(difference > rounding, self._upper, self._lower)
        highest = difference * bounds
        unsure = TOLERANCE * np.abs(highest) + rounding * np.abs(bounds)
        return bool((highest.sum(axis=1) < -unsure.sum(axis=1)).any())

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
        """Maximise v <= 1 subject to (features_row - features_guess) . weights >= v, weights in the box."""
        differences, sizes = self._differences(guess, rows)
        found = largest(
            rows=np.column_stack([-differences, np.ones(len(rows))]),
            total=self._total,
            lower=np.append(self._lower, -np.inf),
            upper=np.append(self._upper, 1.0),
        )
        return found[0][:-1], found[1] / sizes

    def _exact_margin(self, guess: int, rows: Rows) -> tuple[Array, Array]:
        """The same by HiGHS."""
        differences, sizes = self._differences(guess, rows)
        margin = np.column_stack([-differences, np.ones(len(rows))])
        x, y = self._linprog(np.append(np.zeros(len(self._lower)), -1.0), margin, (-np.inf, 1.0))
        return x[:-1], y / sizes

    def _linprog(self, objective: Array, rows: Array, last: tuple[float, float]) -> tuple[Array, Array]:
        """Minimise objective @ (w, v) subject to rows @ (w, v) <= 0, w in the box, v in `last`; and multipliers."""
        lower, upper = np.append(self._lower, last[0]), np.append(self._upper, last[1])
        found = highs(objective, rows, self._total, lower, upper)
        if found.x is None:
            raise SolverError(f"An LP of {rows.shape[0]} rows and {rows.shape[1]} columns failed: {found.message}")
        return found.x, np.maximum(-found.ineqlin.marginals, 0.0)


def highs(objective: Array, rows: Array, total: Array | None, lower: Array, upper: Array) -> OptimizeResult:
    """Minimise objective @ x subject to rows @ x <= 0, total @ x = 1, lower <= x <= upper; x is None if it failed."""
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
    rows: Array, total: Array | None, lower: Array, upper: Array, tolerance: float = FINE
) -> tuple[Array, Array]:
    """Maximise the last coordinate subject to rows @ x <= 0, total @ x = 1, lower <= x <= upper, by PIQP.

    Returns x and the multipliers of the rows: fast proposals, to be checked.
    """
    n = rows.shape[1]
    solver = piqp_solver(tolerance, iterations=50)
    solver.setup(
        np.zeros((n, n), order="F"),
        np.append(np.zeros(n - 1), -1.0),
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
