"""The arena: every problem can be run with every method that applies, and its scores are what they say."""

import math
import os
from dataclasses import replace

import pytest
import torch

from benchmarks.arena import score
from benchmarks.arena.__main__ import main, methods_of
from benchmarks.arena.methods import make_method
from benchmarks.arena.problem import Problem
from benchmarks.arena.problems import PROBLEMS
from benchmarks.arena.run import run, train

KINDS = {problem.kind for problem in PROBLEMS}


def shortened(problem: Problem) -> Problem:
    """The problem with one epoch of at most a few batches."""

    def draw(seed: int):
        instance = problem.draw(seed)
        return replace(instance, epochs=1, train=list(instance.train)[:4], measures_per_epoch=1)

    return replace(problem, draw=draw)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_method_runs_on_every_problem(problem):
    """One short run each; of the random runs only the first."""
    if problem.needs_features and not os.environ.get("TUNELOSS_DATA"):
        pytest.skip("TUNELOSS_DATA names no folder of features")
    methods = methods_of(problem, random_runs=1)
    assert {"plain", "online"} <= set(methods)
    for method in methods:
        record = run(shortened(problem), 0, method)
        assert math.isfinite(record["test"]), method
        assert record["measured"] == 1


def steps_of(method: str, epochs: int, batches: int) -> list[bool]:
    """Train on some batches; return for each step of the tuner that observed whether it learned weights."""
    problem = next(p for p in PROBLEMS if p.name == "regressions, synthetic")
    drawn = problem.draw(0)
    instance = replace(drawn, epochs=epochs, train=list(drawn.train)[:batches])
    optimizer = torch.optim.Adam(instance.model.parameters())
    online = make_method(method, instance, optimizer, 0)
    train(instance, optimizer, online)
    return [record.learned is not None for record in online.tuner.history]


def test_options_of_the_tuner_say_when_it_steps():
    """Once per period, three times, or once with weights that are held after half of the periods."""
    assert steps_of("online", epochs=5, batches=6) == [True] * 5
    assert steps_of("three steps per period", epochs=5, batches=6) == [True] * 15
    assert steps_of("hold after half", epochs=5, batches=6) == [True] * 3 + [False] * 2


def test_each_kind_has_problems_to_choose_on_and_others_to_report_on():
    assert len(PROBLEMS) >= 14
    assert len(KINDS) >= 7
    for kind in KINDS:
        assert {problem.half for problem in PROBLEMS if problem.kind == kind} == {"choose", "report"}
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)


def record(method: str, seed: int, test: float, validation: float = 1.0) -> dict:
    return {"problem": "p", "method": method, "seed": seed, "test": test, "validation": validation, "cpu_seconds": 2.0}


RECORDS = [
    *(record("plain", seed, 1.0) for seed in range(3)),
    *(record("online", seed, math.exp(-0.5)) for seed in range(3)),
    *(record("random 0", seed, 0.1, validation=0.9) for seed in range(3)),
    *(record("random 1", seed, math.exp(-0.25), validation=0.5) for seed in range(3)),
    *(record("UPGrad", seed, math.exp(0.1)) for seed in range(3)),
]


def test_the_best_random_run_is_chosen_by_validation_and_costs_the_time_of_all():
    groups = score.by_method(RECORDS)
    assert groups[score.RANDOM][0]["test"] == math.exp(-0.25)
    assert score.cost(groups[score.RANDOM], groups["plain"]) == 2.0


def test_changes_are_mean_log_ratios_and_gains_are_parts_of_the_largest():
    groups = score.by_method(RECORDS)
    assert score.change(groups["online"], groups["plain"]).mean == pytest.approx(-0.5)
    assert score.gained(groups, "online") == pytest.approx(1.0)
    assert score.gained(groups, score.RANDOM) == pytest.approx(0.5)
    assert score.gained(groups, "UPGrad") == pytest.approx(-0.2)
    assert score.best_rival(groups, "online") == "UPGrad"
    assert "worse than plain beyond the interval on 1" in score.summary(RECORDS, ["p"], ["UPGrad"])


def test_choices_are_compared_with_the_defaults_by_seed():
    """Over two problems that differ a lot, an option that is always 0.1 lower has no interval."""
    ours = [{**record("online", seed, 2.0 + seed), "problem": name} for name in "pq" for seed in range(3)]
    other = [{**r, "method": "window 1", "test": r["test"] * math.exp(-0.1)} for r in ours]
    plain = [{**r, "method": "plain", "test": 1.0} for r in ours]
    row = score.choices([*plain, *ours, *other], ["p", "q"], []).splitlines()[-1]
    assert row.split(" | ")[:2] == ["| window 1", "2"]
    assert row.endswith("| -10.0 ± 0.0 |")


def test_the_command_continues_and_draws(tmp_path, capsys):
    """A second call finds all runs, and gives the same tables."""
    options = [
        "--half",
        "report",
        "--only",
        "regressions, diabetes",
        "--seeds",
        "0",
        "1",
        "--random",
        "1",
        "--jobs",
        "1",
    ]
    options += [
        "--methods",
        "plain",
        "online",
        "--records",
        str(tmp_path / "a.jsonl"),
        "--image",
        str(tmp_path / "a.png"),
    ]
    first = main(options)
    assert "regressions, diabetes" in first
    assert (tmp_path / "a.png").stat().st_size > 0
    lines = (tmp_path / "a.jsonl").read_text()
    assert main(options) == first
    assert (tmp_path / "a.jsonl").read_text() == lines
