"""The demo: a fair, reproducible comparison."""

import numpy as np
import pytest

from tuneloss.paper.demo import METHODS, Demo, method_records, run_cells
from tuneloss.paper.experiment import run_units
from tuneloss.paper.terms import appendix_box

SHORT = {"runs": 3, "epochs": 2}


def run_demo(jobs=1, **options):
    records = run_units(Demo(**SHORT, **options).units(), jobs=jobs)
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.fixture(scope="module")
def records():
    return run_demo(repeats=2, seed=1)


def test_every_method_has_every_run_of_every_repeat(records):
    """Methods get the same number of runs: 2 methods, 2 repeats, 3 runs."""
    found = [(r["tuner"], r["repeat"], r["run"]) for r in records]
    assert sorted(found) == sorted((m, i, j) for m in METHODS for i in (0, 1) for j in (0, 1, 2))


def test_methods_begin_with_the_same_run_and_then_differ(records):
    """In each repeat the first run is common: same weights, same data, same noise, so same numbers."""
    for repeat in (0, 1):
        (first, *ours), (second, *theirs) = (method_records(records, method)[repeat] for method in METHODS)
        assert {**first, "tuner": ""} == {**second, "tuner": ""}
        assert all(mine["weights"] != other["weights"] for mine, other in zip(ours, theirs, strict=True))


def test_repeats_are_independent(records):
    """Each repeat has its own first weights and its own split."""
    first, second = (method_records(records, "tuneloss")[repeat][0] for repeat in (0, 1))
    assert first["weights"] != second["weights"]
    assert first["test_loss"] != second["test_loss"]


def test_all_weights_lie_in_the_box(records):
    """Both methods search the feasible set of appendix B."""
    box = appendix_box()
    for record in records:
        values = np.array([record["weights"][name] for name in box.names])
        assert ((box.lower <= values) & (values <= box.upper)).all()


def test_the_result_is_a_function_of_the_seed_and_not_of_jobs(records):
    """Two workers give the very same records as one; another seed gives others."""
    assert run_demo(repeats=2, seed=1, jobs=2) == records
    assert run_demo(repeats=2, seed=2) != records


def test_a_failed_run_says_why():
    """Its row has the reason in place of numbers."""
    weights = {"l1": 2.0, "l2": 2.0, "uniform": 0.0, "dropout": 0.5, "logloss": 1.0}
    row = run_cells({"run": 1, "weights": weights, "failed": "diverged"})
    assert row == ["2", "2", "2", "0", "0.5", "failed: diverged", "", ""]


@pytest.mark.parametrize("option", [{"runs": 0}, {"repeats": 0}, {"epochs": 0}, {"seed": -1}])
def test_impossible_numbers_are_refused(option):
    """Each message names the option and what was found."""
    ((name, number),) = option.items()
    with pytest.raises(ValueError, match=f"`{name}` must be at least .* found {number}"):
        Demo(**option)
