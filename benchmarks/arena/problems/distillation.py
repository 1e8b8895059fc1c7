"""A student with few labels learns from a good and from a poor teacher, which label other examples for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.arena.problem import Instance, Problem, features, log_loss, log_uniform, mlp

UPPER = 10.0
WRONG = 0.5  # the share of wrong labels that the poor teacher learned from
TEACHERS = ["good teacher", "poor teacher"]
ROWS = 20  # examples with a label, and examples with teachers' probabilities, in a batch
STEPS = 60  # training steps between two measurements


class Lessons:
    """Batches of inputs and labels, and of as many other inputs with the probabilities of each teacher."""

    def __init__(self, labelled: Sequence[Tensor], taught: Sequence[Tensor], seed: int) -> None:
        self.labelled, self.taught = labelled, taught
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(STEPS):
            rows, others = (
                torch.randint(len(columns[0]), (ROWS,), generator=self.generator)
                for columns in (self.labelled, self.taught)
            )
            yield *(column[rows] for column in self.labelled), *(column[others] for column in self.taught)


def hard(model: Any, batch: tuple[Tensor, ...]) -> Tensor:
    """Compute the log loss on labels."""
    return cross_entropy(model(batch[0]), batch[1])


def soft(model: Any, batch: tuple[Tensor, ...], *, teacher: int) -> Tensor:
    """Compute the log loss on a teacher's probabilities."""
    return cross_entropy(model(batch[2]), batch[3 + teacher])


def teach(x: Tensor, y: Tensor, n_classes: int, steps: int = 100) -> nn.Module:
    """Train a softmax regression by Adam on all examples at once, from 0."""
    model = nn.Linear(x.shape[1], n_classes)
    for param in model.parameters():
        nn.init.zeros_(param)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


@lru_cache(maxsize=2)
def draw_parts(data: str, seed: int, sizes: tuple[int, int, int]) -> tuple[tuple[Tensor, ...], ...]:
    """Draw labelled examples, inputs with the probabilities of both teachers, and examples for validation and test.

    Parameters
    ----------
    sizes : tuple of int
        How many examples have a label for the student, are labelled by the teachers, and have taught the teachers.
    """
    rng = np.random.default_rng(seed)
    if data == "digits":
        x, y = load_digits(return_X_y=True)
        rows = np.split(rng.permutation(len(y)), [sum(sizes), sum(sizes) + 200])
        x = (x - x.mean()) / x.std()
        train, validation, test = ((torch.tensor(x[r], dtype=torch.float32), torch.tensor(y[r])) for r in rows)
    else:
        file = features(data, 128)
        train, validation, test = file.of(0, rng, sum(sizes)), file.of(1, rng, 500), file.of(2, rng)
    (x, others, x_teacher), (y, _, right) = (column.split(list(sizes)) for column in train)
    n_classes = int(test[1].max()) + 1
    random = torch.from_numpy(rng.integers(n_classes, size=len(right)))
    labels = torch.where(torch.from_numpy(rng.random(len(right)) < WRONG), random, right)
    teachers = [teach(x_teacher, right, n_classes), teach(x_teacher, labels, n_classes)]
    with torch.no_grad():
        probabilities = [model(others).softmax(dim=1) for model in teachers]
    return (x, y), (others, *probabilities), validation, test


def draw(seed: int, *, data: str, sizes: tuple[int, int, int], rate: float = 1e-3) -> Instance:
    """Draw a data set; the teachers have learned from other examples than the student."""
    labelled, taught, validation, test = draw_parts(data, seed, sizes)
    return Instance(
        model=mlp(labelled[0].shape[1], 64, taught[1].shape[1], seed),
        terms={"hard": hard} | {name: partial(soft, teacher=j) for j, name in enumerate(TEACHERS)},
        box={"hard": 1.0} | dict.fromkeys(TEACHERS, (0.0, UPPER)),
        error=log_loss,
        train=Lessons(labelled, taught, seed),
        validation=[validation],
        test=[test],
        epochs=30,
        plain={"hard": 1.0},
        named={
            "equal": dict.fromkeys(["hard", *TEACHERS], 1.0),
            "good teacher only": {"hard": 1.0, "good teacher": 1.0},
        },
        random=lambda rng: log_uniform(rng, TEACHERS, dict.fromkeys(TEACHERS, UPPER)),
        learning_rate=rate,
        rivals=("uncertainty", "loss ratios"),
    )


PROBLEMS = [
    Problem("distillation, digits", "distillation", "choose", partial(draw, data="digits", sizes=(60, 300, 500))),
    Problem(
        "distillation, caltech101", "distillation", "report",
        partial(draw, data="caltech101", sizes=(300, 1000, 1700)), needs_features=True,
    ),
]  # fmt: skip
