"""TuneReg (Streeter, "Learning Optimal Linear Regularizers", 2019): linear programs instead of a quadratic one.

It uses values only, no gradients: for each model i, the validation error V_i, the training loss T_i and the values q_i
of the regularizers. It looks for the tightest upper bound a V_i <= T_i + w . q_i whose argmin is the model of least
V_i.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from tuneloss.baselines.search import Search
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.tuning.sampling import sample_box
from tuneloss.types import Array

LEAST_SCALE = 0.01  # lower bound of the scale a, as in the public code of TuneReg


def learn_reg(error: Array, loss: Array, features: Array, lower: Array, upper: Array) -> tuple[Array, float]:
    """Learn the weights of the regularizers (algorithm LearnLinReg).

    Let s = sum V / sum T and f_i = s T_i + w . q_i. For each guess j of the best model, in order of V_j::

        minimise    sum_i D_i
        subject to  f_i = a V_i + D_i,  D_i >= 0,  a >= 0.01,  s * lower <= w <= s * upper,  f_j <= f_i

    The first guess that is feasible wins.

    Parameters
    ----------
    error, loss : (m,) array
        V and T.
    features : (m, k) array
        The q_i.
    lower, upper : (k,) array
        Bounds of the weights.

    Returns
    -------
    weights : (k,) array
        w / s.
    scale : float
        a / s.

    Raises
    ------
    SolverError
        If no guess is feasible.

    Examples
    --------
    >>> w, a = learn_reg(np.array([1.0]), np.array([0.0]), np.array([[1.0]]), np.zeros(1), np.full(1, np.inf))
    >>> round(float(w[0] / a), 6)
    1.0
    """
    m, k = features.shape
    s = float(error.sum() / loss.sum()) if loss.sum() > 0 else 1.0
    bounds = [*zip(s * lower, s * upper, strict=True), (LEAST_SCALE, None)]
    objective = np.append(features.sum(axis=0), -error.sum())
    above = np.column_stack([-features, error])  # a V_i - w . q_i <= s T_i
    for j in np.argsort(error, kind="stable"):
        best = np.column_stack([features[j] - features, np.zeros(m)])
        rows, limits = np.vstack([above, best]), np.concatenate([s * loss, s * (loss - loss[j])])
        solution = linprog(objective, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
        if solution.success:
            return solution.x[:k] / s, float(solution.x[k]) / s
    raise SolverError("no guess of the best model was feasible in TuneReg's linear programs")


class TuneReg(Search):
    """Start with k + 1 random points for k free weights, then use the answer of `learn_reg`.

    An answer that was tried before is replaced by a random point.

    Parameters
    ----------
    box : Box
        The allowed weights. It must pin one weight, that of the training loss. The others belong to regularizers.
    seed : int, default 0
        Seed of all random numbers.
    start : mapping of str to float, optional
        Weights to try first.
    """

    def propose(self) -> Array:
        """Return the next point."""
        pinned = np.flatnonzero(self.box.pinned)
        if len(pinned) != 1 or self.box.lower[pinned[0]] <= 0:
            raise InvalidInput(f"TuneReg needs a box that pins one weight, above 0; found {self.box}.")
        free, pin = ~self.box.pinned, int(pinned[0])
        values = np.array([run.observation.features for run in self.history if run.observation is not None])
        if len(self.history) < free.sum() + 1 or not len(values):
            return sample_box(self.box, self.rng)
        loss = self.box.lower[pin] * values[:, pin]
        point = self.box.lower.copy()
        point[free] = learn_reg(self.errors(), loss, values[:, free], self.box.lower[free], self.box.upper[free])[0]
        return self.new(np.clip(point, self.box.lower, self.box.upper))
