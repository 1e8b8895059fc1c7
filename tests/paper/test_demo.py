"""The demo: two fair, reproducible comparisons, with a gain that is real over seeds."""

import numpy as np
import pytest

from tests.paper.demo_records import demo_records
from tuneloss.paper.demo import BETWEEN, FREE, HALVES, INSIDE, Demo, Outcome, half_records, shown_steps
from tuneloss.paper.demo_runs import box_from_zero
from tuneloss.paper.experiment import run_units
from tuneloss.paper.terms import appendix_box

SHORT = {"runs": 3, "epochs": 4}


def untimed(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def run_demo(jobs=1, **options):
    return untimed(run_units(Demo(**SHORT, **options).units(), jobs=jobs))


@pytest.fixture(scope="module")
def records():
    return run_demo(repeats=2, seed=1)


def test_both_methods_of_a_half_have_every_step_of_every_repeat(records):
    """Between runs: 3 runs each. Inside one run: 4 epochs each. Both in 2 repeats."""
    found = sorted((r["tuner"], r["repeat"], r["run"]) for r in records)
    steps = {BETWEEN: 3, INSIDE: 4}
    assert found == sorted((m, i, j) for h in HALVES for m in h.names for i in (0, 1) for j in range(steps[h]))


def test_methods_begin_with_the_same_step_and_then_differ(records):
    """In each repeat the first run, or epoch, is common: same weights, same data, same noise, so same numbers."""
    for half in HALVES:
        for repeat in (0, 1):
            (first, *ours), (second, *theirs) = (method[repeat] for method in half_records(records, half).values())
            assert {**first, "tuner": ""} == {**second, "tuner": ""}
            assert all(mine["weights"] != other["weights"] for mine, other in zip(ours, theirs, strict=True))


def test_repeats_are_independent(records):
    """Each repeat has its own first weights and its own split."""
    first, second = (half_records(records, BETWEEN)["TuneLoss"][repeat][0] for repeat in (0, 1))
    assert first["weights"] != second["weights"]
    assert first["test_loss"] != second["test_loss"]


def test_all_weights_lie_in_the_box(records):
    """Between runs it is the box of appendix B; inside one run its lower bounds are 0."""
    for half, box in ((BETWEEN, appendix_box()), (INSIDE, box_from_zero())):
        for record in (r for r in records if r["tuner"] in half.names):
            values = np.array([record["weights"][name] for name in box.names])
            assert ((box.lower <= values) & (values <= box.upper)).all()


def test_the_plain_run_has_log_loss_alone(records):
    for epochs in half_records(records, INSIDE)["plain"].values():
        assert all(epoch["weights"] == {**dict.fromkeys(FREE, 0.0), "logloss": 1.0} for epoch in epochs)


def test_the_result_is_a_function_of_the_seed_and_not_of_jobs(records):
    """Two workers give the very same records as one; another seed gives others."""
    assert run_demo(repeats=2, seed=1, jobs=2) == records
    assert run_demo(repeats=2, seed=2) != records


def test_what_is_watched_is_the_first_repeat(records):
    """The rows that are printed while it trains are those of the table."""
    for half in HALVES:
        ours, other = (method[0] for method in half_records(records, half).values())
        watched = list(Demo(**SHORT, repeats=2, seed=1).watch(half))
        assert untimed(pair[0] for pair in watched) == ours
        assert untimed(pair[1] for pair in watched) == other


@pytest.mark.parametrize("seed", [1000, 1001])
def test_the_gain_is_real(seed):
    """Over 20 repeats of each seed, both halves are ahead, and the interval of the difference excludes 0."""
    demo = Demo(seed=seed)
    records = run_units(demo.units(), jobs=1)
    for half in HALVES:
        outcome = Outcome.of(records, half)
        assert outcome.told_apart() == "lower", (half.title, outcome)
        assert outcome.difference["test_error"].mean < 0.005, (half.title, outcome)


def test_the_test_value_is_that_of_the_best_validation_loss_even_if_it_is_worse():
    """Validation of the first repeat is 0.9, 0.5, 0.7; test is 1.0, 1.2, 0.1: the second model counts."""
    outcome = Outcome.of(demo_records(), BETWEEN)
    assert outcome.ours["test_loss"].mean == pytest.approx(1.7)
    assert outcome.difference["test_loss"].mean == pytest.approx(-0.25)
    assert outcome.difference["test_loss"].half == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (0.25, "has 13% lower test log loss than random search after as many: 1.700 against 1.950"),
        (-0.25, "has 17% higher test log loss than random search after as many: 1.700 against 1.450"),
        (0.0, "cannot be told apart from random search after as many by test log loss: 1.700 against 1.700"),
    ],
)
def test_the_verdict_claims_no_more_than_the_interval_allows(gap, said):
    """Better, worse, or not to be told apart: by the paired interval."""
    assert said in Demo(runs=3, repeats=2).verdict(demo_records(gap=gap))[0]


def test_the_headline_claims_no_more_either():
    """13% of 1.95, and nothing where the two are equal."""
    demo = Demo(runs=3, repeats=2)
    assert demo.headline(demo_records()) == (
        "Test log loss is 13% lower than that of random search, and 13% lower than that of a plain run."
    )
    assert "not to be told apart from that of random search" in demo.headline(demo_records(gap=0.0))


def test_the_verdict_on_one_repeat_does_not_claim_a_winner():
    """One repeat cannot be told from luck, and both sentences say so."""
    verdict = Demo(runs=3, repeats=1).verdict(demo_records(repeats=1))
    assert len(verdict) == 2
    assert all("one repeat cannot tell this from luck" in sentence for sentence in verdict)


def test_the_verdict_says_how_many_runs_random_search_is_worth():
    """Random search ends 5 higher than we do, and we begin with 1.5: one run is enough."""
    assert "It needs 1 run to get as low" in Demo(runs=3, repeats=2).verdict(demo_records(gap=5.0))[0]


def test_the_verdict_on_failed_runs_says_so():
    failed = [{**r, "validation_loss": None, "test_loss": None, "failed": "diverged"} for r in demo_records()]
    assert all("because runs failed" in sentence for sentence in Demo(runs=3, repeats=2).verdict(failed))


def test_all_runs_but_few_epochs_get_a_row():
    assert shown_steps(30, BETWEEN) == list(range(1, 31))
    assert shown_steps(30, INSIDE) == [1, 2, 5, 10, 20, 30]


@pytest.mark.parametrize("option", [{"runs": 0}, {"repeats": 0}, {"epochs": 0}, {"seed": -1}])
def test_impossible_numbers_are_refused(option):
    """Each message names the option and what was found."""
    ((name, number),) = option.items()
    with pytest.raises(ValueError, match=f"`{name}` must be at least .* found {number}"):
        Demo(**option)
