"""Linear programs: fast proposals by PIQP, exact answers by HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneloss.core.solver.qp import piqp_solver
from tuneloss.types import Array

PROPOSAL_TOLERANCE = 1e-8  # absolute, of PIQP; what it proposes is checked by arithmetic


def highs(objective: Array, rows: Array, total: Array | None, lower: Array, upper: Array) -> Any:
    """Minimise objective @ x subject to rows @ x <= 0, total @ x = 1 and lower <= x <= upper.

    Returns SciPy's OptimizeResult, whose `x` is None if it failed. SciPy's solver is imported here, since it is rarely
    needed and slow to import.
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
    tolerance: float = PROPOSAL_TOLERANCE,
    rewards: Array | None = None,
) -> tuple[Array, Array]:
    """Maximise rewards @ x subject to rows @ x <= 0, total @ x = 1 and lower <= x <= upper, by PIQP.

    Without rewards, the last coordinate is maximised. Returns x and the multipliers of the rows. These are proposals,
    which the caller must check. If PIQP failed, they are zeros.
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
        return np.zeros(n), np.zeros(len(rows))  # proposes nothing, so that the next solver is asked
    return x, np.maximum(multipliers, 0.0)
