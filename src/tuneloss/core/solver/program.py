"""The program of LearnLoss for one guess of the argmin, in both forms of the cost.

Write weights = mu / t. Then the box, lower * t <= mu <= upper * t, the argmin rows, mu . (features_i - features_argmin)
>= 0, and the cost z' P z with z = (mu, scale) are all homogeneous: they describe one cone of (mu, scale, t). The two
forms of the cost are two planes that cut it:

    paper        t = 1      minimises cost(weights, scale)
    calibrated   scale = 1  minimises cost(weights, scale) / scale^2; the scale of the weights is then 1 / t

A least scale is one more row: a lower bound on scale in the first plane, an upper bound on t in the second.

All programs are in scaled coordinates, marked by a prime: P has unit diagonal and rows have unit norm. Without scaling,
every solver may report success and return a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tuneloss.core.box import Box
from tuneloss.core.solver.qp import Problem, Solution, eigenvalues_exceed
from tuneloss.core.tolerances import FINITE_CAP, SNAP
from tuneloss.types import Array, Objective


@dataclass(frozen=True)
class Scaling:
    """The scaled coordinates: mu' = mu * unit, scale' = scale * error_unit, t' = t * t_unit.

    Parameters
    ----------
    unit : (k,) array
        The unit of each term.
    error_unit, t_unit : float
        The units of the error and of t.
    pinned : float
        The size of the largest pinned term (or, without one, of the largest lower bound) at t' = 1. Caps are multiples
        of it.
    """

    unit: Array
    error_unit: float
    t_unit: float
    pinned: float = 1.0

    def cost(self, cost: Array) -> Array:
        """Return P with unit diagonal, and without the negative eigenvalues that rounding may have left."""
        units = np.append(self.unit, self.error_unit)
        scaled = np.asarray(cost / units[:, None] / units)
        if eigenvalues_exceed(scaled, -1e-13 * len(scaled)):
            return scaled
        values, vectors = np.linalg.eigh(scaled)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)

    def weights(self, weights: Array) -> Array:
        """Return weights, or bounds on them, in scaled coordinates at t' = 1."""
        return weights * self.unit / self.t_unit

    def highest(self, lower: Array, upper: Array, cap: float) -> Array:
        """Return the highest upper bound (k,) that `cap` allows, in scaled units: see `form`."""
        units = np.maximum(self.pinned, np.abs(lower))  # a cap is a multiple of these
        return np.asarray(cap * np.where(np.isinf(upper), 1.0, FINITE_CAP) * units)


def scaling(cost: Array, features: Array, box: Box) -> Scaling:
    """Choose units so that P has unit diagonal, and the largest term that the box forces to count is 1 at t' = 1."""
    size = np.sqrt(np.diagonal(cost))
    largest = np.abs(features).max(axis=0)  # a term that costs nothing still has its argmin rows
    unit = np.where(size[:-1] > 0, size[:-1], largest)
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
    """The program of LearnLoss for one guess of the argmin, in one form of the cost.

    Parameters
    ----------
    problem : Problem
        Over x = (mu', t') in the calibrated form, over x = (mu', scale') in the paper's.
    objective, box, scales, min_scale
        The arguments of `form` that it was built from.
    argmin : (m, k) array
        The argmin rows, on mu'.
    capped : (k,) array
        The cap that replaces a higher bound of the box, in scaled units; infinity where the box's own bound holds.
    """

    problem: Problem
    objective: Objective
    box: Box
    scales: Scaling
    min_scale: float
    argmin: Array
    capped: Array

    def weights(self, solution: Solution) -> tuple[Array, float]:
        """Return the weights (k,) of a solution, exactly inside the box, and its scale; not finite if it has none."""
        box, scales, is_calibrated = self.box, self.scales, self.objective == "calibrated"
        mu = solution.x[:-1] / scales.unit
        least = self.min_scale * scales.error_unit  # scale' at t = 1
        if is_calibrated:
            t, scaled_scale = min(_ray_length(mu, box), 1.0 / least if least > 0 else np.inf), 1.0
        else:
            t = 1.0 / scales.t_unit
            scaled_scale = max(float(solution.x[-1]), least * t)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            weights = np.clip(mu / np.float64(t), box.lower, box.upper)
            near = SNAP * np.abs(weights * scales.unit).max() / scales.unit
            weights = np.where((np.abs(weights) <= near) & (box.lower <= 0) & (box.upper >= 0), 0.0, weights)
            weights = np.where(weights - box.lower <= near, box.lower, weights)
            weights = np.where(box.upper - weights <= near, box.upper, weights)
            if box.is_simplex:
                weights = weights / weights.sum()
            return weights, float(scaled_scale / (np.float64(t) * scales.error_unit))

    def at(self, solution: Solution, weights: Array, scale: float) -> Solution:
        """Return the solution with x moved to these weights and this scale."""
        is_calibrated = self.objective == "calibrated"
        t = 1.0 / (scale * self.scales.error_unit) if is_calibrated else 1.0 / self.scales.t_unit
        last = t * self.scales.t_unit if is_calibrated else scale * t * self.scales.error_unit
        return replace(solution, x=np.append(weights * t * self.scales.unit, last))


def form(
    objective: Objective, cost: Array, rows: Array, box: Box, scales: Scaling, cap: float, min_scale: float = 0.0
) -> Form:
    """Build the program of LearnLoss for one guess of the argmin.

    Parameters
    ----------
    objective : {"calibrated", "paper"}
        The form of the cost.
    cost : (k + 1, k + 1) array
        P with unit diagonal.
    rows : (m, k) array
        The features of the guess minus those of each observation.
    box : Box
        The weights that are allowed.
    scales : Scaling
        The scaled coordinates.
    cap : float
        Replaces an infinite upper bound. It is a multiple of the pinned term, or of the weight's own lower bound if
        that is larger, in scaled units. Finite bounds are cut at `FINITE_CAP` times that. So t' = 0 only if mu' = 0.
    min_scale : float, default 0
        The least scale, in the caller's units.
    """
    k = len(box)
    rows = rows / scales.unit
    argmin = _normalised(rows[rows.any(axis=1)])  # Theorem 2: no observation has a lower loss than the guess
    equal, below, capped = _box_rows(box, scales, cap)
    on_mu = np.pad(argmin, ((0, 0), (0, 1)))
    if objective == "calibrated":  # the cut at scale' = 1
        H, c = np.zeros((k + 1, k + 1)), np.append(cost[:k, k], 0.0)
        H[:k, :k] = cost[:k, :k]
        t = np.append(np.zeros(k), 1.0)  # a row whose product with x is t'
        if box.is_simplex:  # mu alone decides: t is the sum of mu
            equal, t = equal[:0], np.append(scales.t_unit / scales.unit, 0.0)
        G, h = np.vstack([below, on_mu]), np.zeros(len(below) + len(on_mu))
        if min_scale > 0:
            length = lengths(t[None])
            G = np.vstack([G, t / length])
            h = np.append(h, scales.t_unit / (min_scale * scales.error_unit) / length)
        problem = Problem(H, c, equal, np.zeros(len(equal)), G, h)
    else:  # the cut at t' = 1
        A, G = (np.pad(part[:, :k], ((0, 0), (0, 1))) for part in (equal, below))
        positive = -np.eye(k + 1)[k:]
        least = min_scale * scales.error_unit / scales.t_unit
        h = np.concatenate([-below[:, k], np.zeros(len(argmin)), [-least]])
        problem = Problem(cost, np.zeros(k + 1), A, -equal[:, k], np.vstack([G, on_mu, positive]), h)
    return Form(problem, objective, box, scales, min_scale, argmin, capped)


def _box_rows(box: Box, scales: Scaling, cap: float) -> tuple[Array, Array, Array]:
    """Return the box as rows on x = (mu', t'), with equal @ x = 0 and below @ x <= 0; and `Form.capped`."""
    k = len(box)
    unit, free = np.eye(k + 1), ~box.pinned
    if box.is_simplex:
        total = np.append(scales.t_unit / scales.unit, -1.0)
        return _normalised(total[None]), -unit, np.full(k, np.inf)
    lower, upper = scales.weights(box.lower), scales.weights(box.upper)
    highest = scales.highest(lower, upper, cap)
    at_lower, at_upper = unit[:k].copy(), unit[:k].copy()
    at_lower[:, k] = -lower
    at_upper[:, k] = -np.minimum(upper, highest)
    below = np.vstack([-at_lower[free], at_upper[free], -unit[k:]])
    return _normalised(at_lower[~free]), _normalised(below), np.where(upper > highest, highest, np.inf)


def _ray_length(mu: Array, box: Box) -> float:
    """Return t such that mu / t is in the box.

    A pinned weight determines t. Without one it is the largest such t, which gives the smallest weights on the ray.
    """
    if box.is_simplex:
        return float(np.maximum(mu, 0.0).sum())
    bound = np.where(box.lower > 0, box.lower, np.minimum(box.upper, 0.0))  # != 0 where 0 is outside
    used = (bound != 0) & box.pinned
    used = used if used.any() else bound != 0
    return float((mu[used] / bound[used]).min())


def lengths(rows: Array) -> Array:
    """Return the norms (m,) of rows (m, k), also where squares overflow."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * np.linalg.norm(rows / unit[:, None], axis=1))


def _normalised(rows: Array) -> Array:
    return rows / lengths(rows)[:, None]
