"""Convex programs are judged by their KKT conditions, never by a golden number."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneloss.core.solver import qp
from tuneloss.core.solver.qp import Problem, Solution, smallest, solve
from tuneloss.core.tolerances import KKT_ACCEPTED


def random_problem(seed: int, n: int, rank: int, equalities: int, inequalities: int) -> Problem:
    """A feasible program with unit rows; H has the given rank and c lies in its range, so it is bounded."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, n))
    inside = rng.normal(size=n)
    A, G = (np.array(rng.normal(size=(rows, n))) for rows in (equalities, inequalities))
    A, G = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (A, G))
    slack = rng.choice([0.0, 0.1, 1.0], size=inequalities)  # some rows bind at the point that shows feasibility
    return Problem(root.T @ root / n, root.T @ rng.normal(size=rank), A, A @ inside, G, G @ inside + slack)


programs = st.builds(
    random_problem,
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 12),
    rank=st.integers(1, 12),
    equalities=st.integers(0, 1),
    inequalities=st.integers(0, 20),
)


@settings(max_examples=150, deadline=None)
@given(problem=programs)
def test_solutions_satisfy_kkt(problem):
    """Singular or not, with redundant rows or none."""
    assert solve(problem).residual(problem) <= 1e-8


@pytest.mark.parametrize("solver", [qp._piqp, qp._clarabel], ids=["PIQP", "Clarabel"])
def test_each_solver_alone_satisfies_kkt(solver):
    """The second solver speaks the same signs as the first."""
    for seed in range(20):
        problem = random_problem(seed, n=6, rank=6, equalities=1, inequalities=8)
        assert solver(problem).residual(problem) <= KKT_ACCEPTED


def test_the_residual_sees_each_kind_of_error():
    """Stationarity, both feasibilities, sign and slackness: each violation alone shows."""
    problem = random_problem(1, n=5, rank=5, equalities=1, inequalities=6)
    good = solve(problem)
    binding = int(np.argmax(good.z))
    free = int(np.argmax(problem.h - problem.G @ good.x))
    assert good.z[binding] > 1e-3
    shift, normal = np.zeros(5), problem.G[binding]
    shift[0] = 1e-3
    spoiled = {
        "stationarity": Solution(good.x, good.y + 1e-3, good.z, ""),
        "equality": Solution(good.x + shift, good.y, good.z, ""),
        "inequality": Solution(good.x + 1e-3 * normal, good.y, good.z, ""),
        "sign": Solution(good.x, good.y, good.z - 1e-3 * (np.arange(6) == free), ""),
        "not finite": Solution(good.x * np.nan, good.y, good.z, ""),
    }
    assert good.residual(problem) < 1e-9
    for name, solution in spoiled.items():
        assert solution.residual(problem) > 1e-5, name


def test_polish_sharpens_a_rough_solution():
    """On the right active set the equations are linear: a rough point becomes exact."""
    problem = random_problem(3, n=8, rank=8, equalities=1, inequalities=10)
    rough = qp._piqp(problem, tolerance=1e-4)
    assert rough.residual(problem) > 1e-9
    assert qp._polish(problem, rough).residual(problem) < 1e-12


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 10))
def test_ties_go_to_the_smallest_norm(seed, n):
    """The rule's solution is optimal, and CVXPY finds no smaller one among all optimal points."""
    problem = random_problem(seed, n=n, rank=n // 2, equalities=1, inequalities=n)
    plain = solve(problem)
    found = smallest(problem, plain, n)
    assert found.residual(problem) <= KKT_ACCEPTED
    values, vectors = np.linalg.eigh(problem.H)
    seen = vectors[:, values > 1e-9].T  # all optimal points agree in what the cost sees
    x = cp.Variable(n)
    same = [seen @ x == seen @ plain.x, problem.A @ x == problem.b, problem.G @ x <= problem.h]
    cp.Problem(cp.Minimize(cp.norm(x)), same).solve(solver=cp.CLARABEL)
    assert np.linalg.norm(found.x) <= np.linalg.norm(x.value) * (1 + 1e-5) + 1e-5


def test_an_infeasible_program_never_passes_for_solved():
    """x <= -1 and x >= 1 at once: whatever the solvers say, the residual is large."""
    one = np.ones((1, 1))
    problem = Problem(one, np.zeros(1), one[:0], one[:0, 0], np.vstack([one, -one]), -np.ones(2))
    assert solve(problem).residual(problem) > 0.1
