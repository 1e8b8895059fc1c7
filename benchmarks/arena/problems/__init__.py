"""The problems of the arena, one file per kind."""

from benchmarks.arena.problem import Problem
from benchmarks.arena.problems import (
    augmentations,
    distillation,
    hinges,
    imbalance,
    mixtures,
    pinn,
    regression,
    regularizers,
    sources,
    tasks,
)

FILES = (regularizers, hinges, augmentations, sources, mixtures, tasks, distillation, imbalance, regression, pinn)
PROBLEMS: tuple[Problem, ...] = tuple(problem for file in FILES for problem in file.PROBLEMS)
