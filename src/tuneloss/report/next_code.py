"""Code that a reader of a report can type: a wider box, more runs, the weights to use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from tuneloss.report.runs_info import RunsInfo
from tuneloss.report.words import weight_text

MOST_LINES = 12  # weights that are written out; of more, only those that change
WIDER = 10.0  # factor by which a bound above 0 moves
MOST_LETTERS = 56  # of a line, so that a card shows it whole
MORE_RUNS = 5  # runs to add


def wider_box_code(info: RunsInfo, sides: Mapping[str, str]) -> str:
    """Return code that continues with wider bounds.

    Parameters
    ----------
    info : RunsInfo
        The runs.
    sides : mapping of str to {"lower", "upper"}
        The weights whose bound is to move, and which bound.
    """
    box = {name: (float(low), float(high)) for name, low, high in zip(*_bounds(info), strict=True)}
    changed = {name: _wider(box[name], side) for name, side in sides.items()}
    if len(box) <= MOST_LINES:
        lines = [f"    {_quoted(name)}: {_pair(changed.get(name, bounds))}," for name, bounds in box.items()]
        ranges = "\n".join(["ranges = {", *lines, "}"])
    else:
        lines = [f"ranges[{_quoted(name)}] = {_pair(bounds)}" for name, bounds in list(changed.items())[:MOST_LINES]]
        more = [f"# and {len(changed) - MOST_LINES} more"] if len(changed) > MOST_LINES else []
        ranges = "\n".join(["# in the ranges that you gave:", *lines, *more])
    if info.is_online:
        return f"{ranges}\nloss = LinearLoss(terms, box=ranges)"
    tuner = f"tuner = LossTuner(box, journal={_quoted(info.journal)}, extend=True)"
    return "\n".join([ranges, "box = Box.from_dict(ranges)", tuner, _run(info)])


def more_runs_code(info: RunsInfo) -> str:
    """Return code that adds a few runs to the journal."""
    return f"tuner = LossTuner(box, journal={_quoted(info.journal)})\n{_run(info)}"


def weights_code(info: RunsInfo) -> str:
    """Return the weights in use as code, with the digits that the page shows."""
    weights = info.used_weights
    is_long = len(weights) > MOST_LINES or bool(info.hinges)  # hinges mean something only together
    if is_long and info.header.final:
        reading = f"with open({_quoted(info.journal)}) as journal:\n    header = json.loads(journal.readline())"
        return "\n".join(["import json", "", reading, 'weights = header["body"]["final"]'])
    if is_long:
        return f"weights = LossTuner(box, journal={_quoted(info.journal)}).best.weights"
    pairs = [f"{_quoted(name)}: {weight_text(weight)}" for name, weight in weights.items()]
    line = f"weights = {{{', '.join(pairs)}}}"
    return line if len(line) <= MOST_LETTERS else "\n".join(["weights = {", *(f"    {pair}," for pair in pairs), "}"])


def compare_code(info: RunsInfo) -> str:
    """Return code that adds the score of the same run without tuning to the journal of an online run."""
    other = 'other = {"the same run without tuning": ...}'
    return f"{other}\ntuner.write_journal({_quoted(info.journal)}, compare=other)"


def _quoted(text: str) -> str:
    """Return text as a Python literal, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _run(info: RunsInfo) -> str:
    n = len({run.run for run in info.runs if run.run is not None})
    return f"tuner.run(train, n_runs={n + MORE_RUNS})"


def _bounds(info: RunsInfo) -> tuple[tuple[str, ...], list[float], list[float]]:
    return info.box.names, info.box.lower.tolist(), info.box.upper.tolist()


def _wider(bounds: tuple[float, float], side: str) -> tuple[float, float]:
    """Return bounds of which one has moved outwards."""
    low, high = bounds
    if side == "upper":
        return low, high * WIDER if high > 0 else high + abs(high - low)
    return (low / WIDER if low > 0 else low - abs(high - low)), high


def _pair(bounds: tuple[float, float]) -> str:
    low, high = (weight_text(bound) if math.isfinite(bound) else "None" for bound in bounds)
    return low if low == high else f"({low}, {high})"
