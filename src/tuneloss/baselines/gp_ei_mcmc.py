"""GP-EI-MCMC (Snoek, Larochelle and Adams, 2012): expected improvement, averaged over sampled Gaussian processes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import minimize
from scipy.stats import qmc

from tuneloss.baselines.gp import log_posterior, slice_sample
from tuneloss.baselines.search import Cube, Search
from tuneloss.core.box import Box
from tuneloss.tuning.gaussian_process import Posterior, expected_improvement
from tuneloss.tuning.sampling import sample_box
from tuneloss.types import Array

# Sweeps of the chain: discarded before the first proposal, discarded before each further one, used per proposal.
BURN_IN, AGAIN, KEPT = 100, 20, 10
# Points at which expected improvement is computed: anywhere, and near the best point. The best few are refined.
CANDIDATES, NEAR, REFINED = 1024, 64, 3


class GpEiMcmc(Search):
    """Start with two random points, then propose the point of greatest expected improvement.

    Errors are standardised for each proposal. The chain of hyperparameters continues from proposal to proposal.

    Parameters
    ----------
    box : Box
        The allowed weights.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first; they replace the first random point.
    """

    def __init__(self, box: Box, *, seed: int = 0, start: Mapping[str, float] | None = None) -> None:
        super().__init__(box, seed=seed, start=start)
        self.cube = Cube(box)
        self._theta: Array | None = None

    def propose(self) -> Array:
        """Return the next point."""
        errors = self.errors()
        if len(errors) < 2 or not errors.std() > 0:
            return sample_box(self.box, self.rng)
        x, y = self.cube.to_cube(self.points()), (errors - errors.mean()) / errors.std()
        posteriors = [Posterior.of(x, y, theta) for theta in self._sampled(x, y)]
        return self.new(self.cube.to_box(self._best_candidate(posteriors, x, y)))

    def _sampled(self, x: Array, y: Array) -> Array:
        """Return samples of the hyperparameters, (KEPT, d + 3)."""
        if self._theta is None:
            burn_in, start = BURN_IN, np.array([np.median(y), 0.0, -4.0, *np.full(x.shape[1], 0.5)])
        else:
            burn_in, start = AGAIN, self._theta.copy()
        start[0] = np.clip(start[0], y.min(), y.max())  # the range of y changes with each standardisation
        chain = slice_sample(log_posterior(x, y), start, burn_in + KEPT, self.rng)
        self._theta = chain[-1]
        return chain[-KEPT:]

    def _best_candidate(self, posteriors: list[Posterior], x: Array, y: Array) -> Array:
        best, d = float(y.min()), x.shape[1]
        spread = qmc.Sobol(d, seed=self.rng).random(CANDIDATES)
        near = np.clip(x[y.argmin()] + 0.05 * self.rng.standard_normal((NEAR, d)), 0, 1)
        candidates = np.vstack([spread, near])
        value = expected_improvement(posteriors, best, candidates)
        refined = []
        for start in candidates[np.argsort(-value)[:REFINED]]:
            solution = minimize(
                lambda point: -np.log(expected_improvement(posteriors, best, point[None])[0] + 1e-300),
                start,
                method="L-BFGS-B",
                bounds=[(0.0, 1.0)] * d,
                options={"maxiter": 20},
            )
            refined.append((float(solution.fun), solution.x))
        return np.asarray(min(refined, key=lambda pair: pair[0])[1])
