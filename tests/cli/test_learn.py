"""`tuneloss learn` proposes what `LossTuner` proposes, if each line says how its weights were proposed."""

import json
import math
from dataclasses import replace

from typer.testing import CliRunner

from tests.tuning.test_extension import train
from tuneloss import Box, LossTuner
from tuneloss.cli import app


def test_learn_proposes_what_the_tuner_proposes(tmp_path):
    """Over so many runs, with noise in their errors, that a way to propose rests before the last one."""
    box, lines = tmp_path / "box.toml", tmp_path / "runs.jsonl"
    box.write_text("l2 = [0.1, 100.0]\nl1 = [0.0, 1.0]\nfit = 1.0\n")
    tuner, told = LossTuner(Box.from_dict({"l2": (0.1, 100.0), "l1": (0.0, 1.0), "fit": 1.0})), []
    for number in range(28):
        proposal = tuner.propose()
        weights = tuner.box.as_dict(proposal.point)
        origin = {"weights": weights, "form": proposal.form, "way": proposal.way}
        if number in (0, 9, 27):
            lines.write_text("\n".join(map(json.dumps, told)))
            answer = json.loads(CliRunner().invoke(app, ["learn", str(lines), "--box", str(box)]).output)
            assert {name: answer[name] for name in origin} == origin
        seen = train(weights)
        seen = replace(seen, error=seen.error * (1 + 0.3 * math.sin(1e3 * sum(weights.values()))))
        tuner.tell(weights, seen)
        line = {name: value for name, value in seen.to_dict().items() if value is not None}
        told.append(line | {"features": dict(zip(tuner.box.names, line["features"], strict=True))} | origin)
