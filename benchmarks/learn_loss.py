"""Speed of learn_loss, as ratios measured side by side in one run on one thread.

python benchmarks/learn_loss.py            everything; the paper's way alone takes minutes
python benchmarks/learn_loss.py --quick    smaller sizes, to see that it works
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"  # before NumPy is imported

import argparse
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import cvxpy as cp
import numpy as np

from tuneloss import Box, Observation, learn_loss
from tuneloss.core.cost import cost_matrix, epsilon_value
from tuneloss.core.solver import program as forms
from tuneloss.core.solver import qp
from tuneloss.core.tolerances import CAP

Model = tuple[float, np.ndarray, np.ndarray, np.ndarray]  # error, features, gradient, jacobian


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call, after one to warm up."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def box_of(k: int) -> Box:
    return Box([0.01] * (k - 1) + [1.0], [10.0] * (k - 1) + [1.0])


def models(m: int, k: int, n: int, seed: int = 0) -> list[Model]:
    """Models near the minimum of a sum of k quadratic terms; error is nearly a weighted sum of the terms.

    Terms are means over n params: the paper's way needs all numbers near 1, or it calls the program infeasible.
    """
    rng = np.random.default_rng(seed)
    centers, true = rng.normal(size=(n, k)), rng.uniform(0.1, 2.0, size=k)
    found = []
    for _ in range(m):
        params = 0.3 * rng.normal(size=n)
        jacobian = 2 * (params[:, None] - centers) / n
        features = ((params[:, None] - centers) ** 2).mean(axis=0)
        gradient = jacobian @ true + np.sqrt(k) / n * rng.normal(size=n)
        found.append((float(features @ true) * (1 + 0.05 * rng.normal()), features, gradient, jacobian))
    return found


def observed(raw: list[Model]) -> list[Observation]:
    return [Observation.from_gradients(*model) for model in raw]


def with_unreachable(m: int, k: int, n: int, kind: str, seed: int = 0) -> list[Observation]:
    """m observations, half of them reachable; the other half has lower error and cannot be selected.

    "mixtures": each is a mixture of 5 reachable models plus 0.1%, so it needs a certificate of its own.
    "trajectories": 25 such mixtures, each with 20 checkpoints that scatter by 0.01% around it.
    None is dominated by any single other model.
    """
    rng = np.random.default_rng(seed + 1)
    half = m // 2
    raw = models(m - half, k, n, seed)
    lowest = min(error for error, _, _, _ in raw)
    parts = [rng.choice(len(raw), size=5, replace=False) for _ in range(half if kind == "mixtures" else 25)]
    shares = rng.dirichlet(np.ones(5), size=len(parts))
    bad = []
    for i in range(half):
        j = i % len(parts)
        mixed = [sum(s * raw[r][part] for s, r in zip(shares[j], parts[j], strict=True)) for part in (1, 2, 3)]
        features = mixed[0] * (1.001 + (1e-4 * rng.normal(size=k) if kind == "trajectories" else 0.0))
        bad.append(Observation.from_gradients(lowest * (0.5 + 0.4 * i / half), features, mixed[1], mixed[2]))
    return bad + observed(raw)


def papers_way(raw: list[Model], box: Box, epsilon: float, argmin: int) -> np.ndarray:
    """The calibrated form by CVXPY on the raw Jacobians."""
    mu, t, root = cp.Variable(len(box)), cp.Variable(nonneg=True), np.sqrt(epsilon)
    cost = 0
    for error, features, gradient, jacobian in raw:
        cost += cp.square(features @ mu - error) + cp.sum_squares(root * (jacobian @ mu - gradient))
    rows = [features @ mu >= raw[argmin][1] @ mu for _, features, _, _ in raw]
    limits = [mu >= box.lower * t, mu <= box.upper * t]
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    cp.Problem(cp.Minimize(cost), rows + limits).solve(solver=cp.CLARABEL, **tight)
    return mu.value / t.value


def against_the_papers_way(m: int, k: int, n: int) -> None:
    raw, box = models(m, k, n), box_of(k)
    ready = observed(raw)
    learned = learn_loss(ready, box)
    ours = median_seconds(lambda: learn_loss(ready, box), 20)
    both = median_seconds(lambda: learn_loss(observed(raw), box), 5)
    start = time.perf_counter()
    weights = papers_way(raw, box, learned.epsilon, learned.argmin)
    theirs = time.perf_counter() - start
    difference = float(np.abs(weights - learned.weights).max())
    print(f"Against the paper's way, CVXPY on the raw Jacobians (m={m}, k={k}, n={n}):")
    print(f"  CVXPY                        {theirs:10.2f} s")
    print(f"  learn_loss, observations     {ours:10.5f} s   {theirs / ours:8.0f} times faster   (goal 1000)")
    print(f"  from_gradients + learn_loss  {both:10.5f} s   {theirs / both:8.0f} times faster   (goal 50)")
    print(f"  largest difference of a weight, where the pinned one is 1: {difference:.1e}   (goal 1e-6)\n")


def against_clarabel(m: int, k: int) -> None:
    ready, box = observed(models(m, k, n=150)), box_of(k)
    learned = learn_loss(ready, box)
    features, counts = np.array([o.features for o in ready]), np.ones(m)
    cost = cost_matrix(ready, epsilon_value("balanced", ready, counts), counts)
    scales = forms.scaling(cost, features, box)
    rows = features[learned.argmin] - features
    program = forms.form("calibrated", scales.cost(cost), rows, box, scales, CAP)
    clarabel = median_seconds(lambda: qp._clarabel(program.problem), 3)
    whole = median_seconds(lambda: learn_loss(ready, box), 9)
    solve = median_seconds(lambda: qp.solve(program.problem), 9)
    difference = float(np.abs(program.weights(qp._clarabel(program.problem))[0] - learned.weights).max())
    print(f"Against Clarabel on the same scaled QP (m={m}, k={k}):")
    print(f"  Clarabel                     {clarabel:10.4f} s")
    print(f"  our solve, verified          {solve:10.4f} s   {clarabel / solve:8.1f} times faster   (goal 10)")
    print(f"  all of learn_loss            {whole:10.4f} s   {clarabel / whole:8.1f} times faster")
    print(f"  largest difference of a weight, where the pinned one is 1: {difference:.1e}\n")


def unreachable_guesses(m: int, k: int) -> None:
    box = box_of(k)
    first = observed(models(m, k, n=150))
    plain = median_seconds(lambda: learn_loss(first, box), 9)
    print(f"First {m // 2} guesses unreachable, none merely dominated (m={m}, k={k}):")
    print(f"  first guess reachable        {plain:10.4f} s")
    for kind in ("mixtures", "trajectories"):
        hard = with_unreachable(m, k, n=150, kind=kind)
        learned = learn_loss(hard, box)
        assert learned.argmin >= m // 2, "a guess that was meant to be unreachable was reached"
        assert not _any_dominated(np.array([o.features for o in hard]), m // 2)
        seconds = median_seconds(lambda hard=hard: learn_loss(hard, box), 3)
        print(f"  {kind:<28} {seconds:10.4f} s   {seconds / plain:8.1f} times the cost   (goal: at most 50)")
    print()


def _any_dominated(features: np.ndarray, first: int) -> bool:
    return any((features <= row).all(axis=1).sum() > 1 for row in features[:first])


def growth(sizes_m: list[int], sizes_k: list[int]) -> None:
    print("Milliseconds of learn_loss on ready observations:")
    print("     m \\ k" + "".join(f"{k:>9}" for k in sizes_k))
    table = np.zeros((len(sizes_m), len(sizes_k)))
    for j, k in enumerate(sizes_k):
        pool = observed(models(max(sizes_m), k, n=k + 20))
        for i, m in enumerate(sizes_m):
            table[i, j] = 1e3 * median_seconds(lambda m=m, k=k, pool=pool: learn_loss(pool[:m], box_of(k)), 5)
    for m, row in zip(sizes_m, table, strict=True):
        print(f"{m:>10}" + "".join(f"{value:>9.1f}" for value in row))
    in_m = np.log(table[-1] / table[-2]) / np.log(sizes_m[-1] / sizes_m[-2])
    in_k = np.log(table[:, -1] / table[:, -2]) / np.log(sizes_k[-1] / sizes_k[-2])
    m_from, m_to, k_from, k_to = sizes_m[-2], sizes_m[-1], sizes_k[-2], sizes_k[-1]
    print(f"  At the large end time grows like m^{in_m.min():.1f} to m^{in_m.max():.1f} (from m={m_from} to {m_to}),")
    print(f"  and like k^{in_k.min():.1f} to k^{in_k.max():.1f} (from k={k_from} to {k_to}).\n")


def memory(m: int, k: int, n: int) -> None:
    """What is allocated, beside what the caller holds."""
    raw = models(1, k, n)[0]
    tracemalloc.start()
    Observation.from_gradients(*raw)
    one = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ready = observed(models(m, k, n=k + 20))
    tracemalloc.start()
    learn_loss(ready, box_of(k))
    all_of_it = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"Memory (Python's and NumPy's; a Jacobian of n={n}, k={k} is {8 * n * k / 1e6:.1f} MB):")
    print(f"  from_gradients               {one / 1e6:10.2f} MB at most")
    print(f"  learn_loss, m={m:<14} {all_of_it / 1e6:10.2f} MB at most; it never sees n\n")


def imports(repeats: int) -> None:
    """The least of several times each, taken in turns: a fresh process is easily disturbed."""
    programs = ("pass", "import scipy.optimize", "import tuneloss")
    seconds = np.full((repeats, 3), np.inf)
    for i in range(repeats):
        for j, program in enumerate(programs):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            seconds[i, j] = time.perf_counter() - start
    bare, scipy, ours = seconds.min(axis=0)
    print("Import, in a fresh process:")
    print(f"  python                       {bare:10.3f} s")
    print(f"  import scipy.optimize        {scipy:10.3f} s")
    print(f"  import tuneloss              {ours:10.3f} s   {ours / scipy:8.2f} times   (goal: at most 1.5)\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    quick = parser.parse_args().quick
    imports(3 if quick else 15)
    unreachable_guesses(*((100, 21) if quick else (1000, 101)))
    against_clarabel(*((100, 21) if quick else (1000, 101)))
    growth(*(([10, 100], [5, 21]) if quick else ([10, 100, 1000], [5, 21, 101, 301])))
    memory(*((10, 21, 4096) if quick else (100, 101, 65536)))
    against_the_papers_way(*((3, 21, 512) if quick else (5, 101, 16384)))


if __name__ == "__main__":
    main()
