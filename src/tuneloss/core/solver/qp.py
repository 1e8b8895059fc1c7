"""Convex quadratic programs as data, solved and verified.

No answer is trusted because a solver said so. A `Solution` is judged by how far it is from satisfying the
Karush-Kuhn-Tucker (KKT) conditions. It is polished on its active set, and a second solver is asked if it is not good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import clarabel
import numpy as np
import piqp
from scipy.linalg import lu_factor, lu_solve

from tuneloss.core.tolerances import KKT_ACCEPTED, KKT_GOOD, KKT_TIE_RULE, RANK
from tuneloss.types import Array


@dataclass(frozen=True)
class Problem:
    """The program: minimise x'Hx / 2 + c'x subject to A x = b and G x <= h, with H (n, n) positive semidefinite."""

    H: Array
    c: Array
    A: Array
    b: Array
    G: Array
    h: Array


@dataclass(frozen=True)
class Solution:
    """A point x (n,) with multipliers y of A x = b and z >= 0 of G x <= h."""

    x: Array
    y: Array
    z: Array
    solver: str

    def residual(self, problem: Problem) -> float:
        """Return the largest violation of the KKT conditions, relative to the size of what is compared.

        The conditions are stationarity, H x + c + A'y + G'z = 0; feasibility, A x = b, G x <= h and z >= 0; and
        complementary slackness, z_i (h - G x)_i = 0.
        """
        p, x, y, z = problem, self.x, self.y, self.z
        if not all(np.isfinite(v).all() for v in (x, y, z)):
            return np.inf
        parts = (p.H @ x, p.c, p.A.T @ y, p.G.T @ z)
        force = max(1.0, *(_largest(part) for part in parts))
        size = max(1.0, _largest(x))
        slack = p.h - p.G @ x
        return max(
            _largest(parts[0] + parts[1] + parts[2] + parts[3]) / force,
            _largest(p.A @ x - p.b) / size,
            _largest(np.minimum(slack, 0.0)) / size,
            _largest(np.minimum(z, 0.0)) / force,
            _largest(z * slack) / (force * size),
        )


def solve(problem: Problem, *, quick: bool = False) -> Solution:
    """Solve a program by PIQP, then by PIQP with its own scaling, then by Clarabel, until a solution is good.

    Each solution is polished. The best one is returned, however bad; the caller checks its residual. With `quick`, only
    PIQP is tried, for at most 60 iterations; it usually needs 10 to 20.
    """
    best = _polish(problem, _piqp(problem, iterations=60 if quick else 250))
    for attempt in () if quick else (partial(_piqp, precondition=10), _clarabel):
        if best.residual(problem) <= KKT_GOOD:
            break
        best = min(best, _polish(problem, attempt(problem)), key=lambda solution: solution.residual(problem))
    return best


def smallest(problem: Problem, solution: Solution, counted: int) -> Solution:
    """Apply the tie rule: of all solutions, return the one whose first `counted` coordinates have the least norm.

    The solutions are x + N y with G (x + N y) <= h, where N spans the directions that change neither H x nor A x nor
    any row with a positive multiplier. The multipliers stay the same.
    """
    held = problem.G[solution.z > 1e-7 * max(1.0, _largest(solution.z))]
    seen = problem.H + problem.A.T @ problem.A + held.T @ held
    least = RANK * max(1.0, float(np.trace(seen)))
    if eigenvalues_exceed(seen, least):
        return solution
    values, vectors = np.linalg.eigh(seen)
    free = vectors[:, values <= least]
    if not free.size or _largest(free[:counted]) < 1e-8:
        return solution
    rows = problem.G @ free
    length = np.linalg.norm(rows, axis=1)
    kept = length > 1e-9
    slack = np.maximum(problem.h - problem.G @ solution.x, 0.0)
    none = np.zeros((0, free.shape[1]))
    tie = Problem(
        H=free[:counted].T @ free[:counted],
        c=free[:counted].T @ solution.x[:counted],
        A=none,
        b=none[:, 0],
        G=rows[kept] / length[kept, None],
        h=slack[kept] / length[kept],
    )
    step = solve(tie)
    moved = replace(solution, x=solution.x + free @ step.x)
    met = step.residual(tie) <= KKT_TIE_RULE and moved.residual(problem) <= KKT_ACCEPTED
    return moved if met else tie_rule_not_met(solution)


def tie_rule_not_met(solution: Solution) -> Solution:
    """Mark a solution as one of several optimal ones, chosen by no rule."""
    return replace(solution, solver=f"{solution.solver}, tie rule not met")


def piqp_solver(tolerance: float, iterations: int, precondition: int = 0) -> piqp.DenseSolver:
    """Return PIQP with absolute tolerances and, by default, without its own scaling."""
    solver = piqp.DenseSolver()
    settings = solver.settings
    settings.eps_abs = settings.eps_duality_gap_abs = tolerance
    settings.eps_rel = settings.eps_duality_gap_rel = 0.0
    settings.max_iter = iterations
    settings.preconditioner_iter = precondition
    return solver


def _piqp(p: Problem, *, tolerance: float = 1e-11, iterations: int = 250, precondition: int = 0) -> Solution:
    solver = piqp_solver(tolerance, iterations, precondition)
    solver.setup(np.asfortranarray(p.H), p.c, np.asfortranarray(p.A), p.b, np.asfortranarray(p.G), None, p.h)
    solver.solve()
    result = solver.result
    return Solution(result.x.copy(), result.y.copy(), result.z_u.copy(), "PIQP")


def _clarabel(p: Problem) -> Solution:
    from scipy import sparse  # rarely needed, and slow to import

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-11
    cones = [clarabel.ZeroConeT(p.b.size), clarabel.NonnegativeConeT(p.h.size)]
    rows, right = sparse.csc_matrix(np.vstack([p.A, p.G])), np.concatenate([p.b, p.h])
    result = clarabel.DefaultSolver(sparse.triu(p.H, format="csc"), p.c, rows, right, cones, settings).solve()
    x, z = np.array(result.x), np.array(result.z)
    return Solution(x, z[: p.b.size], z[p.b.size :], "Clarabel")


def _polish(p: Problem, solution: Solution) -> Solution:
    """Improve a solution by Newton steps on the equations of its active set."""
    before = solution.residual(p)
    if not 1e-13 < before < 1e-2:
        return solution
    active = solution.z > p.h - p.G @ solution.x
    rows = np.vstack([p.A, p.G[active]])
    n, q = p.c.size, rows.shape[0]
    if q > 2 * n:  # more rows than can bind at once, unless some repeat: this is far from a solution
        return solution
    kkt = np.block([[p.H, rows.T], [rows, np.zeros((q, q))]])
    damped = kkt + 1e-9 * np.diag(np.r_[np.ones(n), -np.ones(q)])
    right = np.concatenate([-p.c, p.b, p.h[active]])
    point = np.concatenate([solution.x, solution.y, solution.z[active]])
    factors = lu_factor(damped)
    for _ in range(3):
        point = point + lu_solve(factors, right - kkt @ point)
    z = np.zeros_like(solution.z)
    z[active] = point[n + p.b.size :]
    polished = replace(solution, x=point[:n], y=point[n : n + p.b.size], z=z)
    return polished if polished.residual(p) < before else solution


def eigenvalues_exceed(matrix: Array, least: float) -> bool:
    """Return whether all eigenvalues exceed `least`; this is far faster than computing them."""
    try:
        np.linalg.cholesky(matrix - least * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
