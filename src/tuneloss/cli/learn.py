"""`tuneloss learn`: the next weights from a file of observations, for training in any language."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneloss import Box, LossTuner, Observation
from tuneloss.cli.console import put
from tuneloss.cli.guards import stoppable
from tuneloss.errors import InvalidInput, TuneLossError


class Form(StrEnum):
    both = "both"
    calibrated = "calibrated"
    paper = "paper"


def learn(
    observations: Annotated[Path, typer.Argument(help="JSON lines, one trained model each; - reads standard input.")],
    box: Annotated[Path, typer.Option(help="TOML: which weights are allowed.")],
    objective: Annotated[Form, typer.Option(help="Form of the cost; both: what led to the best so far.")] = Form.both,
    epsilon: Annotated[
        str, typer.Option(help='"balanced", "paper", "inf" (gradients only), or a number.')
    ] = "balanced",
    seed: Annotated[int, typer.Option(min=0, help="For points that are tried where learning repeats itself.")] = 0,
) -> None:
    """Print the weights to train with next, as JSON.

    A line of OBSERVATIONS is {"error": 0.31, "features": {"l2": 7.5, "logloss": 0.2}, "gram": [[...], ...],
    "weights": {"l2": 0.1, "logloss": 1}}: the validation error, the values of the terms, the inner products of all
    gradients, that of the error last (leave it out if you have no gradients; with it, the terms must be in the order of
    BOX), and the weights that the model was trained with (leave them out if it was not trained with this
    loss). {"weights": {...}, "failed": "diverged"} is a run that failed. An empty file gives the weights to begin with.

    BOX has a line for each weight: `l2 = [0.01, 100]` is a range, `logloss = 1.0` pins, `[0, inf]` has no upper end; or
    one line `simplex = ["flip", "crop"]` for weights with sum 1.

    Exit code 0: the weights are on standard output. 1: the input is wrong, and standard error says how.
    """
    with stoppable():
        tuner = LossTuner(read_box(box), seed=seed, objective=objective.value, epsilon=as_epsilon(epsilon))
        for number, record in read_lines(observations):
            try:
                tell(tuner, record)
            except TuneLossError as reason:
                raise InvalidInput(f"Line {number} of {observations}: {reason}") from reason
        weights = tuner.ask()
        found = tuner.learned
        best = tuner.best
        answer: dict[str, Any] = {"weights": weights, "n_runs": tuner.n_runs, "best": None, "learned": None}
        if best is not None and best.observation is not None:
            answer["best"] = {"error": best.observation.error, "weights": best.weights}
        if found is not None:
            answer["learned"] = {
                "weights": found.as_dict(),
                "scale": found.scale,
                "objective": found.objective,
                "note": found.note,
            }
        put([json.dumps(answer, allow_nan=False) + "\n"])


def tell(tuner: LossTuner, record: dict[str, Any]) -> None:
    """Tell the tuner what a line says."""
    weights = record.get("weights")
    if "failed" in record:
        tuner.tell(weights, failed=str(record["failed"]))
        return
    features = record.get("features")
    if isinstance(features, dict):
        if record.get("gram") is None and set(features) == set(tuner.box.names):
            features = {name: features[name] for name in tuner.box.names}  # many languages sort the keys they write
        record = record | {"features": list(features.values()), "names": list(features)}
    tuner.tell(weights, Observation.from_dict(record))


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and record of each line that is not blank."""
    try:
        with sys.stdin if str(path) == "-" else path.open(encoding="utf-8") as lines:
            for number, marked in enumerate(lines, start=1):
                line = marked.removeprefix("\ufeff")  # the mark of UTF-8 that some programs begin a file with
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as reason:
                    raise InvalidInput(f"Line {number} of {path} must be JSON; found that {reason}.") from None
                if not isinstance(record, dict):
                    found = type(record).__name__
                    raise InvalidInput(f'Line {number} of {path} must be {{"error": ..., ...}}; found a {found}.')
                yield number, record
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"`{path}` must be a text file of observations; found that {reason}.") from None


def read_box(path: Path) -> Box:
    """The box that a TOML file describes."""
    try:
        bounds = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"`--box` must be a TOML file; found that {reason}.") from None
    except (ValueError, RecursionError) as reason:  # also of a number of thousands of digits
        raise InvalidInput(f"`--box` must be a TOML file; {path}: {reason}.") from None
    if set(bounds) == {"simplex"}:
        return Box.simplex(bounds["simplex"])
    if not bounds:
        raise InvalidInput(f"`--box` must name the weights, e.g. `l2 = [0.01, 100]`; found none in {path}.")
    return Box.from_dict(bounds)


def as_epsilon(text: str) -> Any:
    """The name, or the number that the text is."""
    if text in ("balanced", "paper"):
        return text
    try:
        return math.inf if text == "inf" else float(text)
    except ValueError:
        raise InvalidInput(f'`--epsilon` must be "balanced", "paper", "inf" or a number; found {text!r}.') from None
