"""Which observations can be the argmin: is there any loss in the box that selects this one?

Observation g is reachable if some weights in the box give no other observation a lower loss. It is not reachable if
some mixture of the others has a lower loss than g under *all* weights in the box. Both proofs, the weights and the
mixture, are checked here by plain arithmetic, so a fast and rough solver may propose them; the exact one is asked
only if neither holds. A mixture that rules out one guess is tried on every later one.
"""

from __future__ import annotations

import numpy as np
import piqp
from scipy.optimize import linprog

from tuneloss.core.box import Array, Box
from tuneloss.core.forms import Scaling
from tuneloss.errors import SolverError

TOLERANCE = 1e-9  # of the size of what is summed
ROUGH = 1e-2  # the fast solver's tolerance
FIRST_ROWS = 48  # rivals that the LP starts with: the nearest of those in any mixture so far
NEW_ROWS = 32  # rivals added to it at a time: those that its weights prefer to the guess


class Reach:
    """Answers `allows(guess)` for one set of features (m, k) and a box, and learns from each answer."""

    def __init__(self, features: Array, box: Box, scales: Scaling) -> None:
        self._features = features / scales.unit
        self._total: Array | None
        if box.is_simplex:  # as a cone, cut where the scaled weights have sum 1
            self._lower, self._upper = np.zeros(len(box)), np.ones(len(box))
            self._total = np.append(np.ones(len(box)), 0.0)[None]
        else:
            self._lower, self._upper = scales.weights(box.lower), scales.weights(box.upper)
            self._total = None
        self._mixtures = np.zeros((0, len(box)))
        self._rival = np.zeros(len(features), dtype=bool)  # is it part of any mixture so far?

    def allows(self, guess: int) -> bool:
        """Whether some weights in the box select the guess (Theorem 2)."""
        if self._beaten(self._mixtures, guess) or self._beaten(self._features, guess):
            return False
        differences = self._features - self._features[guess]
        sizes = np.linalg.norm(differences, axis=1)
        rivals = np.flatnonzero(self._rival & (sizes > 0))
        rows = rivals[np.argsort(sizes[rivals])[:FIRST_ROWS]]
        propose = self._rough_margin
        while True:
            weights, y = propose(differences[rows] / sizes[rows, None])
            mixture = y / sizes[rows]
            if mixture.any():
                mixed = (mixture / mixture.sum())[None] @ self._features[rows]
                if self._beaten(mixed, guess):
                    self._mixtures = np.vstack([self._mixtures, mixed])
                    self._rival[rows[mixture > 1e-3 * mixture.max()]] = True
                    return False
            wrong = -(differences @ weights) / (np.where(sizes > 0, sizes, 1.0) * np.linalg.norm(weights))
            if wrong.max() <= TOLERANCE:
                return True
            worst = np.argsort(-wrong)[:NEW_ROWS]
            new = np.setdiff1d(worst[wrong[worst] > TOLERANCE], rows)
            if not new.size and propose == self._exact_margin:
                return bool(wrong.max() <= 100 * TOLERANCE)  # at the edge of reach: as far as numbers tell
            propose = propose if new.size else self._exact_margin
            rows = np.append(rows, new)

    def least_cap(self, guess: int) -> float:
        """The least bound on scaled weights, as multiples of max(1, |lower|), within which the guess is reachable."""
        k = len(self._lower)
        differences = self._features - self._features[guess]
        sizes = np.linalg.norm(differences, axis=1)
        rows = differences[sizes > 0] / sizes[sizes > 0, None]
        within = np.column_stack([np.eye(k), -np.maximum(1.0, np.abs(self._lower))])
        objective = np.append(np.zeros(k), 1.0)
        found = self._linprog(objective, np.vstack([np.pad(-rows, ((0, 0), (0, 1))), within]), (0.0, np.inf))
        return float(found[0][-1])

    def _beaten(self, rivals: Array, guess: int) -> bool:
        """Whether one of the rivals (r, k) has a lower loss than the guess under all weights in the box."""
        difference = rivals - self._features[guess]
        rounding = 1e-14 * (np.abs(rivals) + np.abs(self._features[guess]))
        if self._total is not None:
            return bool(((difference + rounding).max(axis=1, initial=-np.inf) < 0).any())
        bounds = np.where(difference > 0, self._upper, self._lower)
        highest = difference * bounds
        unsure = TOLERANCE * np.abs(highest) + rounding * np.abs(bounds)
        return bool((highest.sum(axis=1) < -unsure.sum(axis=1)).any())

    # Both solve the same LP: maximise v <= 1 subject to rows @ weights >= v, weights in the box; and return the
    # weights (k,) and the multipliers (r,) of the rows.

    def _rough_margin(self, rows: Array) -> tuple[Array, Array]:
        k = rows.shape[1]
        solver = piqp.DenseSolver()
        settings = solver.settings
        settings.eps_abs = settings.eps_duality_gap_abs = ROUGH
        settings.eps_rel = settings.eps_duality_gap_rel = 0.0
        settings.max_iter = 50
        solver.setup(
            np.zeros((k + 1, k + 1), order="F"),
            np.append(np.zeros(k), -1.0),
            None if self._total is None else np.asfortranarray(self._total),
            None if self._total is None else np.ones(1),
            np.asfortranarray(np.column_stack([-rows, np.ones(len(rows))])),
            None,
            np.zeros(len(rows)),
            np.append(self._lower, -np.inf),
            np.append(self._upper, 1.0),
        )
        solver.solve()
        weights = np.clip(np.nan_to_num(solver.result.x[:-1]), self._lower, self._upper)
        return weights, np.maximum(np.nan_to_num(solver.result.z_u), 0.0)

    def _exact_margin(self, rows: Array) -> tuple[Array, Array]:
        margin = np.column_stack([-rows, np.ones(len(rows))])
        x, y = self._linprog(np.append(np.zeros(rows.shape[1]), -1.0), margin, (-np.inf, 1.0))
        return x[:-1], y

    def _linprog(self, objective: Array, rows: Array, last: tuple[float, float]) -> tuple[Array, Array]:
        """minimise objective @ (w, v) subject to rows @ (w, v) <= 0, w in the box, v in `last`."""
        found = linprog(
            objective,
            A_ub=rows,
            b_ub=np.zeros(len(rows)),
            A_eq=self._total,
            b_eq=None if self._total is None else np.ones(1),
            bounds=np.column_stack([np.append(self._lower, last[0]), np.append(self._upper, last[1])]),
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.x is None:
            raise SolverError(f"An LP of {rows.shape[0]} rows and {rows.shape[1]} columns failed: {found.message}")
        return found.x, np.maximum(-found.ineqlin.marginals, 0.0)
