"""`tuneloss learn`: compute the next weights from a file of observations, for training in any language."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneloss import Box, LossTuner, Observation
from tuneloss.cli.console import put
from tuneloss.cli.guards import stoppable
from tuneloss.errors import InvalidInput, TuneLossError
from tuneloss.tuning.proposals import Choice
from tuneloss.types import Epsilon

NAMED_EPSILONS: dict[str, Epsilon] = {"balanced": "balanced", "paper": "paper", "inf": math.inf}
BYTE_ORDER_MARK = "\ufeff"  # some programs begin a UTF-8 file with it


class Form(StrEnum):
    """What proposes the weights; see `LossTuner`."""

    auto = "auto"
    calibrated = "calibrated"
    paper = "paper"


def learn(
    observations: Annotated[Path, typer.Argument(help="JSON lines, one per trained model; - reads standard input.")],
    box: Annotated[Path, typer.Option(help="TOML file with the range of each weight.")],
    objective: Annotated[
        Form, typer.Option(help="Form of the cost; auto lets both forms, and steps from the best model, take turns.")
    ] = Form.auto,
    epsilon: Annotated[
        str, typer.Option(help='How much gradients count: "balanced", "paper", "inf" (gradients only), or a number.')
    ] = "balanced",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the points that are tried when LearnLoss repeats itself.")
    ] = 0,
) -> None:
    """Print the weights to train with next, as JSON.

    Each line of OBSERVATIONS describes one model: {"error": 0.31, "features": {"l2": 7.5, "logloss": 0.2},
    "gram": [[...], ...], "weights": {"l2": 0.1, "logloss": 1}}:

    - `error` is the validation error, and `features` holds the values of the terms.

    - `gram` holds the inner products of the gradients of all terms, in the order of BOX, and of the error, which is
    last. Leave it out if you have no gradients. With it, `features` must be in the order of BOX, too.

    - `weights` holds the weights that the model was trained with. Leave it out if the model was not trained with this
    loss.

    - `form` and `way` are what this command printed beside those weights. They say how it proposed them.

    A line {"weights": {...}, "failed": "diverged"} describes a run that failed. For an empty file, the command prints
    the weights to begin with.

    BOX has one line per weight: `l2 = [0.01, 100]` is a range, `l1 = [0, inf]` is a range without an upper end, and
    `logloss = 1.0` is a fixed weight. For weights whose sum is 1, it has one line: `simplex = ["flip", "crop"]`.

    Exit code 0: the weights are on standard output. 1: the input breaks a rule, and standard error says which.
    """
    with stoppable():
        choice: Choice = objective.value
        tuner = LossTuner(read_box(box), seed=seed, objective=choice, epsilon=as_epsilon(epsilon))
        for number, record in read_records(observations):
            try:
                tell(tuner, record)
            except TuneLossError as reason:
                raise InvalidInput(f"Line {number} of {observations}: {reason}") from reason
        put([json.dumps(answer(tuner), allow_nan=False) + "\n"])


def answer(tuner: LossTuner) -> dict[str, Any]:
    """Return the next weights, the best run so far, and what was learned, as JSON types."""
    proposal, best, learned = tuner.propose(), tuner.best, tuner.learned
    content: dict[str, Any] = {"weights": tuner.box.as_dict(proposal.point), "form": proposal.form, "way": proposal.way}
    content |= {"n_runs": tuner.n_runs, "best": None, "learned": None}
    if best is not None and best.observation is not None:
        content["best"] = {"error": best.observation.error, "weights": best.weights}
    if learned is not None:
        content["learned"] = {
            "weights": learned.as_dict(),
            "scale": learned.scale,
            "objective": learned.objective,
            "note": learned.note,
        }
    return content


def tell(tuner: LossTuner, record: dict[str, Any]) -> None:
    """Tell the tuner the outcome that a line describes."""
    weights, features = record.get("weights"), record.get("features")
    origin: dict[str, Any] = {"form": record.get("form"), "way": str(record.get("way") or "")}
    if "failed" in record:
        tuner.tell(weights, failed=str(record["failed"]), **origin)
        return
    if isinstance(features, dict):
        if record.get("gram") is None and set(features) == set(tuner.box.names):
            features = {
                name: features[name] for name in tuner.box.names
            }  # many languages sort the keys that they write
        record = record | {"features": list(features.values()), "names": list(features)}
    tuner.tell(weights, Observation.from_dict(record), **origin)


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line that is not blank, counted from 1, and its record."""
    try:
        with sys.stdin if str(path) == "-" else path.open(encoding="utf-8") as lines:
            yield from _parse_lines(path, lines)
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"`{path}` must be a text file of observations; found that {reason}.") from None


def _parse_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the record of each line that is not blank."""
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix(BYTE_ORDER_MARK)
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as reason:
            raise InvalidInput(f"Line {number} of {path} must be JSON; found that {reason}.") from None
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise InvalidInput(f'Line {number} of {path} must be {{"error": ..., ...}}; found a {kind}.')
        yield number, record


def read_box(path: Path) -> Box:
    """Read the box that a TOML file describes."""
    try:
        bounds = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidInput(f"`--box` must be a TOML file; found that {reason}.") from None
    except (ValueError, RecursionError) as reason:  # ValueError: also for a number of thousands of digits
        raise InvalidInput(f"`--box` must be a TOML file; {path}: {reason}.") from None
    if set(bounds) == {"simplex"}:
        return Box.simplex(bounds["simplex"])
    if not bounds:
        raise InvalidInput(f"`--box` must name the weights, e.g. `l2 = [0.01, 100]`; found none in {path}.")
    return Box.from_dict(bounds)


def as_epsilon(text: str) -> Epsilon:
    """Return the value of `--epsilon`: a name that LearnLoss knows, or a number."""
    if text in NAMED_EPSILONS:
        return NAMED_EPSILONS[text]
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f'`--epsilon` must be "balanced", "paper", "inf" or a number; found {text!r}.') from None
