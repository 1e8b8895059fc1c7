"""The two forms of the cost: one cone of (mu, scale, t), cut by two planes.

Write weights = mu / t. Then lower * t <= mu <= upper * t, the argmin rows mu . (features_i - features_argmin) >= 0
and the cost z' P z with z = (mu, scale) are all homogeneous, and

    paper        t = 1      minimise cost(weights, scale)
    calibrated   scale = 1  minimise cost(weights, scale) / scale^2: the scale of the weights is then 1 / t

Everything here is in scaled coordinates (primes), in which P has unit diagonal and rows have unit norm: unscaled,
every solver can return a confident wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.solver.qp import Problem, Solution
from tuneloss.types import Array, Objective

CAP = 1e3  # in scaled units: without an upper bound, a term's part of the loss is at most this often the pinned one's
FINITE = 1e3  # a finite upper bound may be this many times higher
SNAP = 1e-10  # in scaled units, relative to the largest weight: this near to a bound, or to 0, is there


@dataclass(frozen=True)
class Scaling:
    """Units: mu' = mu * unit, unit (k,); scale' = scale * error; t' = t * t.

    pinned: the size of the largest pinned term (else of the largest lower bound) at t' = 1: what caps are multiples of.
    """

    unit: Array
    error: float
    t: float
    pinned: float = 1.0

    def cost(self, cost: Array) -> Array:
        """P with unit diagonal."""
        units = np.append(self.unit, self.error)
        return np.asarray(cost / units[:, None] / units)

    def weights(self, weights: Array) -> Array:
        """Weights, or bounds on them, at t' = 1."""
        return weights * self.unit / self.t

    def cap_units(self, lower: Array) -> Array:
        """(k,) what the cap of each weight is a multiple of: the pinned term, or its own lower bound if that is more.

        lower: scaled lower bounds.
        """
        return np.asarray(np.maximum(self.pinned, np.abs(lower)))

    def highest(self, lower: Array, upper: Array, cap: float) -> Array:
        """(k,) what stands for a higher upper bound: `cap` of `form`. All in scaled units."""
        return np.asarray(cap * np.where(np.isinf(upper), 1.0, FINITE) * self.cap_units(lower))


def scaling(cost: Array, features: Array, box: Box) -> Scaling:
    """Units in which P has unit diagonal, and the largest of the terms that the box forces to count is 1 at t' = 1."""
    size = np.sqrt(np.diagonal(cost))
    seen = np.abs(features).max(axis=0)  # a term that costs nothing still has its argmin rows
    unit = np.where(size[:-1] > 0, size[:-1], seen)
    typical = float(np.exp(np.log(unit[unit > 0]).mean())) if unit.any() else 1.0
    unit = np.where(unit > 0, unit, typical)
    if box.is_simplex:
        return Scaling(unit, float(size[-1]) or 1.0, float(np.exp(np.log(unit).mean())))
    nearest = np.maximum(np.maximum(box.lower, -box.upper), 0.0) * unit  # > 0 where 0 is outside
    t = float(nearest.max())
    pinned = float(nearest[box.pinned].max(initial=0.0)) or t
    return Scaling(unit, float(size[-1]) or 1.0, t, pinned / t)


@dataclass(frozen=True)
class Form:
    """LearnLoss's program for one guess, in one form: x = (mu', t') if calibrated, (mu', scale') in the paper's."""

    problem: Problem
    objective: Objective
    box: Box
    scales: Scaling
    argmin: Array  # rows on mu'
    capped: Array  # (k,) the bound on scaled weights that stands for a higher one; infinite where the box's own holds

    def weights(self, solution: Solution) -> tuple[Array, float]:
        """The weights (k,), exactly inside the box, and the scale of a solution; not finite where there are none."""
        box, scales, calibrated = self.box, self.scales, self.objective == "calibrated"
        mu = solution.x[:-1] / scales.unit
        t = _ray_length(mu, box) if calibrated else 1.0 / scales.t
        error = 1.0 if calibrated else max(float(solution.x[-1]), 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            weights = np.clip(mu / np.float64(t), box.lower, box.upper)
            near = SNAP * np.abs(weights * scales.unit).max() / scales.unit
            weights = np.where((np.abs(weights) <= near) & (box.lower <= 0) & (box.upper >= 0), 0.0, weights)
            weights = np.where(weights - box.lower <= near, box.lower, weights)
            weights = np.where(box.upper - weights <= near, box.upper, weights)
            if box.is_simplex:
                weights = weights / weights.sum()
            return weights, float(error / (np.float64(t) * scales.error))

    def at(self, solution: Solution, weights: Array, scale: float) -> Solution:
        """The solution moved to where the returned weights and scale lie."""
        calibrated = self.objective == "calibrated"
        t = 1.0 / (scale * self.scales.error) if calibrated else 1.0 / self.scales.t
        last = t * self.scales.t if calibrated else scale * t * self.scales.error
        return replace(solution, x=np.append(weights * t * self.scales.unit, last))


def form(objective: Objective, cost: Array, rows: Array, box: Box, scales: Scaling, cap: float) -> Form:
    """The program of LearnLoss for one guess of the argmin.

    cost: (k + 1, k + 1), P with unit diagonal.
    rows: (m, k), features of the guess less those of each observation.
    cap: what holds for an infinite upper bound, as a multiple of the pinned term (of its own lower bound, if that is
        more) in scaled units; finite bounds are cut at FINITE times that. So t' = 0 only if mu' = 0.
    """
    k = len(box)
    rows = rows / scales.unit
    argmin = _normalised(rows[rows.any(axis=1)])  # Theorem 2: no observation has a lower loss than the guess
    equal, below, capped = _box_rows(box, scales, cap)
    on_mu = np.pad(argmin, ((0, 0), (0, 1)))
    if objective == "calibrated":  # the cut at scale' = 1
        H, c = np.zeros((k + 1, k + 1)), np.append(cost[:k, k], 0.0)
        H[:k, :k] = cost[:k, :k]
        equal = equal[: 0 if box.is_simplex else None]  # on a simplex mu alone decides: t is the sum of mu
        G = np.vstack([below, on_mu])
        problem = Problem(H, c, equal, np.zeros(len(equal)), G, np.zeros(len(G)))
    else:  # the cut at t' = 1
        A, G = (np.pad(part[:, :k], ((0, 0), (0, 1))) for part in (equal, below))
        positive = -np.eye(k + 1)[k:]
        h = np.concatenate([-below[:, k], np.zeros(len(argmin) + 1)])
        problem = Problem(cost, np.zeros(k + 1), A, -equal[:, k], np.vstack([G, on_mu, positive]), h)
    return Form(problem, objective, box, scales, argmin, capped)


def _box_rows(box: Box, scales: Scaling, cap: float) -> tuple[Array, Array, Array]:
    """The box as rows on (mu', t'): equal @ x = 0 (p, k + 1), below @ x <= 0 (q, k + 1); and `Form.capped`."""
    k = len(box)
    unit, free = np.eye(k + 1), ~box.pinned
    if box.is_simplex:
        total = np.append(scales.t / scales.unit, -1.0)
        return _normalised(total[None]), -unit, np.full(k, np.inf)
    lower, upper = scales.weights(box.lower), scales.weights(box.upper)
    highest = scales.highest(lower, upper, cap)
    at_lower, at_upper = unit[:k].copy(), unit[:k].copy()
    at_lower[:, k] = -lower
    at_upper[:, k] = -np.minimum(upper, highest)
    below = np.vstack([-at_lower[free], at_upper[free], -unit[k:]])
    return _normalised(at_lower[~free]), _normalised(below), np.where(upper > highest, highest, np.inf)


def _ray_length(mu: Array, box: Box) -> float:
    """t with mu / t in the box: a pinned weight says it; else the largest t, so the smallest weights on the ray."""
    if box.is_simplex:
        return float(np.maximum(mu, 0.0).sum())
    bound = np.where(box.lower > 0, box.lower, np.minimum(box.upper, 0.0))  # != 0 where 0 is outside
    used = (bound != 0) & box.pinned
    used = used if used.any() else bound != 0
    return float((mu[used] / bound[used]).min())


def lengths(rows: Array) -> Array:
    """The norms (m,) of rows (m, k), also of those whose squares are no numbers."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * np.linalg.norm(rows / unit[:, None], axis=1))


def _normalised(rows: Array) -> Array:
    return rows / lengths(rows)[:, None]
