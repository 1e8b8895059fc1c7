"""How much of the package one call passes through: the files and functions that a reader who follows it must know.

python benchmarks/walks.py

Prints a Markdown table. It counts distinct files below `src/tuneloss`, and distinct functions and methods in them.
Lambdas and comprehensions belong to the function around them. The walks are those that a user takes most often.
Both commands run in this process and write to a temporary folder. They need no data beside scikit-learn's digits.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import tuneloss
from tuneloss import Box, LossTuner, Observation
from tuneloss.cli import app
from tuneloss.torch import L1, L2, ConvexPiecewiseLinear, Dropout, LinearLoss, OnlineTuner, UniformLabels
from tuneloss.tuning import OnlinePolicy

SOURCE = str(Path(tuneloss.__file__).parent)


def walk(call: Callable[[], object]) -> set[CodeType]:
    """Return the functions of the package that a call runs."""
    functions: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        has_name = not code.co_name.startswith("<")  # neither a lambda nor a comprehension
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # bodies of modules and classes are not
        if event == "call" and has_name and is_function and code.co_filename.startswith(SOURCE):
            functions.add(code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return functions


def log_loss(model: Any, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def make_tuner() -> OnlineTuner:
    """Build a tuner of an MLP with three data terms and three penalties, on made data; its knots are placed."""
    torch.manual_seed(0)
    data = [(torch.randn(16, 8), torch.randint(3, (16,))) for _ in range(24)]
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    terms: dict[str, Any] = {"logloss": log_loss, "uniform": UniformLabels(), "dropout": Dropout(0.5)}
    terms |= {"l1": L1(), "l2": L2(), "learned": ConvexPiecewiseLinear(knots=8)}
    loss = LinearLoss(terms, box={name: 1.0 if name == "logloss" else (1e-4, 1.0) for name in terms})
    loss.place_knots(model)
    return OnlineTuner(model, loss, log_loss, data[:16], data[16:], policy=OnlinePolicy(start="now"))


def train_a_batch(tuner: OnlineTuner) -> None:
    tuner.loss(tuner.model, tuner.train[0]).backward()


def ask_and_tell() -> None:
    """Tell one run, ask, and tell that run too; each with the gradients of two terms and the error."""
    tuner = LossTuner(Box.from_dict({"logloss": 1.0, "l2": (0.1, 10.0)}))
    rng = np.random.default_rng(0)
    for _ in range(2):
        jacobian, gradient = rng.normal(size=(5, 2)), rng.normal(size=5)
        observation = Observation.from_gradients(rng.uniform(), rng.uniform(size=2), gradient, jacobian)
        tuner.tell(tuner.ask(), observation)


def command(*arguments: str) -> None:
    result = CliRunner().invoke(app, arguments)
    if result.exit_code != 0:
        raise RuntimeError(f"tuneloss {' '.join(arguments)} failed: {result.output}") from result.exception


def fit(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    kinds = np.where(x[:, 0] + rng.normal(size=200) > 0, "a", "b")
    rows = [",".join([*map(str, row), kind]) for row, kind in zip(x.tolist(), kinds, strict=True)]
    (folder / "made.csv").write_text("\n".join(["x0,x1,x2,kind", *rows]))
    command("fit", str(folder / "made.csv"), "--target", "kind", "--out", str(folder / "fit"))


def table1(folder: Path) -> None:
    sizes = ["--repeats", "1", "--runs", "2", "--jobs", "1"]
    command("paper", "table1", "--quick", *sizes, "--results", str(folder))


def main() -> None:
    warnings.simplefilter("ignore")
    tuner = make_tuner()
    with tempfile.TemporaryDirectory() as name:
        walks: dict[str, Callable[[], object]] = {
            "`loss(model, batch).backward()`": lambda: train_a_batch(tuner),
            "`OnlineTuner.step()`": tuner.step,
            "`LossTuner.ask()` and `tell()`": ask_and_tell,
            "`tuneloss fit`": lambda: fit(Path(name)),
            "`tuneloss paper table1 --quick`": lambda: table1(Path(name)),
        }
        print("| walk | files | functions |\n|---|---|---|")
        for title, call in walks.items():
            functions = walk(call)
            print(f"| {title} | {len({code.co_filename for code in functions})} | {len(functions)} |")


if __name__ == "__main__":
    main()
