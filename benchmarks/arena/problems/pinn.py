"""Physics-informed nets: the residual of a differential equation, its conditions, and noisy data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from benchmarks.arena.problem import Instance, Problem, log_uniform

UPPER = 1000.0
ROWS = 32  # points of each kind in a batch
STEPS = 40  # training steps between two measurements
DIFFUSION = 0.3
Function = Callable[[Tensor], Tensor]
Residual = Callable[[Any, Tensor], Tensor]
Points = tuple[Tensor, Tensor]


class PointBatches:
    """Batches (collocation points, then points and values of each condition), all drawn at random.

    Parameters
    ----------
    conditions : sequence of (points, values)
        The points of each condition, from which rows are drawn.
    dimensions : int
        Of the domain, which is a unit cube.
    length : int
        Batches per epoch.
    """

    def __init__(self, conditions: Sequence[Points], dimensions: int, length: int, seed: int) -> None:
        self.conditions, self.dimensions, self.length = conditions, dimensions, length
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(self.length):
            columns = [torch.rand(ROWS, self.dimensions, generator=self.generator)]
            for points, values in self.conditions:
                rows = torch.randint(len(points), (ROWS,), generator=self.generator)
                columns += [points[rows], values[rows]]
            yield tuple(columns)


def gradient(u: Tensor, x: Tensor) -> Tensor:
    """Differentiate u (N, 1) by each row's x (N, D), so that it can be differentiated again."""
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return du


def poisson(model: Any, x: Tensor) -> Tensor:
    """Compute the second derivative -u''."""
    return -gradient(gradient(model(x), x), x)


def heat(model: Any, x: Tensor) -> Tensor:
    """Compute u_t - DIFFUSION * u_xx at points (x, t)."""
    du = gradient(model(x), x)
    return du[:, 1:] - DIFFUSION * gradient(du[:, :1], x)[:, :1]


def helmholtz(model: Any, x: Tensor) -> Tensor:
    """Compute u_xx + u_yy + u at points (x, y)."""
    u = model(x)
    du = gradient(u, x)
    return gradient(du[:, :1], x)[:, :1] + gradient(du[:, 1:], x)[:, 1:] + u


def instance(
    solution: Function,
    residual: Residual,
    source: Function,
    conditions: dict[str, Tensor],
    seed: int,
    *,
    n_data: int,
    noise: float,
    epochs: int = 40,
) -> Instance:
    """Make an instance on the unit cube.

    Parameters
    ----------
    solution : callable
        The exact solution, from points (N, D) to values (N, 1).
    residual, source : callable
        The equation is ``residual(model, points) = source(points)``.
    conditions : dict of str to tensor
        Points at which the solution is known exactly, by the name of the term.
    n_data, noise : int, float
        How many noisy data points are for training, and their noise.
    """
    generator = torch.Generator().manual_seed(seed)
    dimensions = next(iter(conditions.values())).shape[1]

    def sensors(n: int, deviation: float) -> Points:
        points = torch.rand(n, dimensions, generator=generator)
        return points, solution(points) + deviation * torch.randn(n, 1, generator=generator)

    known = [(points, solution(points)) for points in conditions.values()]
    names = [*conditions, "data"]

    def all_terms(model: Any, batch: Sequence[Tensor]) -> dict[str, Tensor]:
        x = batch[0].clone().requires_grad_()
        values = {"equation": mse_loss(residual(model, x), source(batch[0]))}
        for j, name in enumerate(names):
            values[name] = mse_loss(model(batch[1 + 2 * j]), batch[2 + 2 * j])
        return values

    def error(model: Any, batch: Points) -> Tensor:
        return mse_loss(model(batch[0]), batch[1])

    torch.manual_seed(seed)
    layers = [nn.Linear(dimensions, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)]
    ones = dict.fromkeys(["equation", *names], 1.0)
    return Instance(
        model=nn.Sequential(*layers),
        terms=[all_terms],
        box={"equation": 1.0} | dict.fromkeys(names, (0.0, UPPER)),
        error=error,
        train=PointBatches([*known, sensors(n_data, noise)], dimensions, STEPS, seed),
        validation=[sensors(50, 0.01)],
        test=[sensors(2000, 0.0)],
        epochs=epochs,
        plain=ones,
        named={"equal": ones, "expert": dict.fromkeys(conditions, 100.0) | {"equation": 1.0, "data": 1.0}},
        random=lambda rng: log_uniform(rng, names, dict.fromkeys(names, UPPER), decades=4.0),
        learning_rate=3e-3,
        rivals=("uncertainty", "loss ratios", "UPGrad"),
    )


def draw_poisson(seed: int) -> Instance:
    """Draw -u'' = f with a sum of two sine waves and a line as its solution."""
    a, b, slope = np.random.default_rng(seed).uniform(0.5, 1.0, size=3).tolist()

    def solution(x: Tensor) -> Tensor:
        return a * torch.sin(3 * math.pi * x) + b / 4 * torch.sin(7 * math.pi * x) + slope * x

    def source(x: Tensor) -> Tensor:
        slow, fast = (3 * math.pi) ** 2, (7 * math.pi) ** 2
        return slow * a * torch.sin(3 * math.pi * x) + fast * b / 4 * torch.sin(7 * math.pi * x)

    return instance(solution, poisson, source, {"boundary": torch.tensor([[0.0], [1.0]])}, seed, n_data=6, noise=0.1)


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros(len(x), 1)


def _edges() -> tuple[Tensor, Tensor]:
    """Return points (x, 0), and points (0, t) and (1, t)."""
    line = torch.linspace(0.0, 1.0, 100)
    initial = torch.stack([line, torch.zeros(100)], dim=1)
    sides = [torch.stack([torch.full((100,), x), line], dim=1) for x in (0.0, 1.0)]
    return initial, torch.cat(sides)


def draw_heat(seed: int) -> Instance:
    """Draw the heat equation u_t = DIFFUSION * u_xx with two decaying sine waves as its solution."""
    a, b = np.random.default_rng(seed).uniform(0.5, 1.0, size=2).tolist()

    def solution(x: Tensor) -> Tensor:
        waves = [(a, 1.0), (b, 3.0)]
        decays = [h * torch.exp(-DIFFUSION * (k * math.pi) ** 2 * x[:, 1:]) for h, k in waves]
        return sum(d * torch.sin(k * math.pi * x[:, :1]) for d, (_, k) in zip(decays, waves, strict=True))  # type: ignore[return-value]

    initial, sides = _edges()
    return instance(
        solution, heat, _zeros, {"initial": initial, "boundary": sides}, seed, n_data=15, noise=0.2, epochs=30
    )


def draw_helmholtz(seed: int) -> Instance:
    """Draw u_xx + u_yy + u = q with a product of two sine waves as its solution; all four sides are the boundary."""
    a, shift = np.random.default_rng(seed).uniform(0.5, 1.0, size=2).tolist()

    def solution(x: Tensor) -> Tensor:
        return a * torch.sin(math.pi * (x[:, :1] + shift)) * torch.sin(3 * math.pi * x[:, 1:])

    def source(x: Tensor) -> Tensor:
        return (1 - 10 * math.pi**2) * solution(x)

    initial, sides = _edges()
    boundary = torch.cat([sides, initial, initial + torch.tensor([0.0, 1.0])])
    return instance(solution, helmholtz, source, {"boundary": boundary}, seed, n_data=15, noise=0.2, epochs=30)


PROBLEMS = [
    Problem("PINN, Poisson", "pinn", "choose", draw_poisson),
    Problem("PINN, heat", "pinn", "report", draw_heat),
    Problem("PINN, Helmholtz", "pinn", "report", draw_helmholtz),
]
