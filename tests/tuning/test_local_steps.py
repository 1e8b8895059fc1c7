"""Steps from the best run: they depend on the runs alone, do not depend on units, and lead downhill."""

import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.far_starts.problems import FAMILIES
from tuneloss import Box, LossTuner, Observation
from tuneloss.tuning import local_steps
from tuneloss.tuning.coordinates import Coordinates
from tuneloss.tuning.ledger import Ledger
from tuneloss.tuning.local_steps import FIRST_RADIUS, FIRST_SIZE, LARGEST_RADIUS, LEAST_RADIUS, LEAST_SIZE, LocalSteps
from tuneloss.tuning.model_step import NEW
from tuneloss.tuning.run import Run

BOX = Box.from_dict({"a": (1e-4, 1e4), "b": (0.0, 1.0), "fit": 1.0})
NO_FAILURES = np.zeros((0, 3))


def model(error: float, slope_a: float, slope_b: float) -> Observation:
    """A model whose error falls with weight a if `slope_a` is negative, and likewise for b."""
    jacobian = np.array([[-slope_a, 0.0, 0.0], [0.0, -slope_b, 0.0], [0.0, 0.0, 1.0]])
    return Observation.from_gradients(error, [1.0, 1.0, 1.0], np.ones(3), jacobian)


def runs(*told: tuple[float, float, Observation]) -> list[Run]:
    return [Run(i, {"a": a, "b": b, "fit": 1.0}, observation) for i, (a, b, observation) in enumerate(told)]


def steps_after(*told: tuple[float, float, Observation]) -> LocalSteps:
    steps = LocalSteps(BOX)
    steps.follow(runs(*told))
    return steps


def test_the_first_step_goes_against_the_slopes_by_a_part_of_each_range():
    """Weight a has a range of 8 decades, so its logarithm moves by 0.3 of that."""
    a, b, fit = steps_after((1.0, 0.1, model(5.0, -1.0, 1.0))).by_signs()
    assert np.log10(a) == pytest.approx(8 * FIRST_SIZE)
    assert b < 0.1
    assert fit == 1.0


def test_a_step_doubles_while_it_gains_and_the_slope_goes_on():
    first = model(5.0, -1.0, 0.0)
    won = steps_after((1.0, 0.1, first), (10.0, 0.1, model(4.0, -1.0, 0.0)))
    turned = steps_after((1.0, 0.1, first), (10.0, 0.1, model(4.0, 1.0, 0.0)))
    lost = steps_after((1.0, 0.1, first), (10.0, 0.1, model(6.0, -1.0, 0.0)))
    assert np.log10(won.by_signs()[0]) == pytest.approx(min(1 + 2 * 8 * FIRST_SIZE, 4))
    assert np.log10(turned.by_signs()[0]) == pytest.approx(0.5)  # half of the way back from 10
    assert np.log10(lost.by_signs()[0]) == pytest.approx(0.5)  # half of the way from 1 to 10


def test_noise_may_hide_a_gain_so_a_step_goes_on_after_a_run_that_is_nearly_as_good():
    """If its slope points onward. The next step begins at the best run, and ends beyond the other one."""
    first = model(5.0, -1.0, 0.0)
    nearly = steps_after((1.0, 0.1, first), (10.0, 0.1, model(5.4, -1.0, 0.0)))
    turned = steps_after((1.0, 0.1, first), (10.0, 0.1, model(5.4, 1.0, 0.0)))
    negative = steps_after((1.0, 0.1, model(-5.0, -1.0, 0.0)), (10.0, 0.1, model(-4.6, -1.0, 0.0)))
    for steps in (nearly, negative):
        assert np.log10(steps.by_signs()[0]) == pytest.approx(min(2 * 8 * FIRST_SIZE, 4))
    assert np.log10(turned.by_signs()[0]) == pytest.approx(0.5)  # half of the way from 1 to 10


def test_in_an_error_with_noise_steps_leave_a_plateau():
    """Ridge from far too large weights, where 5% of noise hides gains: mostly within 50% of the best after 12 runs."""
    left = 0
    for seed in range(8):
        problem, rng, errors = FAMILIES["ridge"](6), np.random.default_rng(seed), []
        tuner = LossTuner(problem.box, start=problem.start, seed=seed)
        for _ in range(12):
            weights = tuner.ask()
            seen = problem.observe(weights)
            errors.append(seen.error)
            tuner.tell(weights, replace(seen, error=seen.error * (1 + 0.05 * rng.standard_normal())))
        left += min(errors) < 1.5 * problem.least_error()
    assert left >= 6


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("numbers", [[0, 1, 1, 0, 1], [0, 0, 1, 1, 1]])
def test_checkpoints_of_a_run_count_as_one_run(at_once, numbers):
    """Its best model stands for it, in whatever order and however they are told, also of runs side by side."""
    first, best = (1.0, 0.1, model(5.0, -1.0, 0.0)), (10.0, 0.1, model(4.0, -1.0, 0.0))
    worse_first, worse = (1.0, 0.1, model(6.0, 1.0, 0.0)), (10.0, 0.1, model(4.5, 1.0, 1.0))
    models = {0: iter([worse_first, first]), 1: iter([worse, best, worse])}
    told = [replace(run, run=n) for n, run in zip(numbers, runs(*(next(models[n]) for n in numbers)), strict=True)]
    told.insert(2, Run(None, None, model(7.0, 1.0, 1.0)))  # of the initial set
    alone, steps = steps_after(first, best), LocalSteps(BOX)
    for n in [6] if at_once else range(1, 7):
        steps.follow(told[:n])
    assert steps.by_signs().tolist() == alone.by_signs().tolist()
    assert steps.goes_on == alone.goes_on
    np.testing.assert_array_equal(
        *(s.by_model([], NO_FAILURES, False, np.random.default_rng(0)) for s in (steps, alone))
    )


def test_a_learned_step_that_goes_on_is_at_least_doubled():
    """One that turns back is left as it is."""
    steps = steps_after((1.0, 0.1, model(5.0, -1.0, 0.0)), (10.0, 0.1, model(4.0, -1.0, 0.0)))
    assert steps.beyond(np.array([20.0, 0.1, 1.0]))[0] == pytest.approx(10 * 2**4)  # the last move was longer
    assert steps.beyond(np.array([200.0, 0.1, 1.0]))[0] == pytest.approx(10 * 20**2)
    assert steps.beyond(np.array([1000.0, 0.1, 1.0]))[0] == pytest.approx(1e4)  # the upper bound
    assert steps.beyond(np.array([5.0, 0.1, 1.0])).tolist() == [5.0, 0.1, 1.0]


def test_it_goes_on_where_the_error_still_falls_on_the_same_way():
    """Not after the first run, not if the slope turned, and not at a bound."""
    first = model(5.0, -1.0, 0.0)
    assert not steps_after((1.0, 0.1, first)).goes_on
    assert steps_after((1.0, 0.1, first), (10.0, 0.1, model(4.0, -1.0, 0.0))).goes_on
    assert not steps_after((1.0, 0.1, first), (10.0, 0.1, model(4.0, 1.0, 0.0))).goes_on
    assert not steps_after((1.0, 0.1, first), (1e4, 0.1, model(4.0, -1.0, 0.0))).goes_on


@pytest.mark.parametrize(("slope_b", "goes_on"), [(-99.0, False), (-32.0, True), (-0.5, True)])
def test_it_goes_on_within_an_angle(slope_b, goes_on):
    """The last gain moved weight a alone; the cosine of that way and the way downhill is 0.1, 0.3 and 1."""
    box = Box.from_dict({"a": (1e-4, 1e4), "b": (1e-4, 1e4), "fit": 1.0})
    steps = LocalSteps(box)
    told = runs((1.0, 1.0, model(5.0, -1.0, 0.0)), (10.0, 1.0, model(4.0, -0.001, 0.001 * slope_b)))
    steps.follow(told)
    assert steps.goes_on is goes_on


def test_it_does_not_go_on_at_the_lower_bound():
    """The slope is positive: less would be better, but there is no less."""
    assert not steps_after((1.0, 0.1, model(5.0, 1.0, 0.0)), (1e-4, 0.1, model(4.0, 1.0, 0.0))).goes_on


def test_the_length_of_a_step_has_a_lower_limit_and_belongs_to_its_weight():
    """After tiny moves without a gain, the step is the least one. A weight that did not move keeps its step."""
    first = model(5.0, -1.0, -1.0)
    told = [(1.0, 0.1, first), *((1.0 + 1e-6 / 2**i, 0.1, model(6.0, -1.0, 0.0)) for i in range(3))]
    assert np.log(steps_after(*told).by_signs()[0]) == pytest.approx(LEAST_SIZE)
    moved = steps_after((1.0, 0.1, first), (10.0, 0.1, model(6.0, -1.0, -1.0)))
    assert moved.by_signs()[1] == steps_after((1.0, 0.1, first)).by_signs()[1]


def reach(*told: tuple[float, float, Observation]) -> float:
    """How far from the best run the steps by the model can go: half the width of the region, by many draws."""
    steps, best = steps_after(*told), min(told, key=lambda run: run[2].error)[0]
    points = [steps.by_model([], NO_FAILURES, False, np.random.default_rng(seed))[0] for seed in range(12)]
    return float(np.abs(np.log(np.array(points) / best)).max())


def test_the_region_grows_with_long_gains_and_shrinks_without_gains():
    """Also for negative errors; a gain of a thousandth of the error is none."""
    first, box = model(5.0, -1.0, 0.0), Box.from_dict({"a": (1e-9, 1e9), "b": (0.0, 1.0), "fit": 1.0})

    def radius(*told: tuple[float, float, Observation]) -> float:
        steps = LocalSteps(box)
        steps.follow(runs(*told))
        return steps._radius

    assert radius((1.0, 0.1, first), (1e3, 0.1, model(4.0, -1.0, 0.0))) == LARGEST_RADIUS
    assert radius((1.0, 0.1, first), (2.0, 0.1, model(4.0, -1.0, 0.0))) == FIRST_RADIUS
    assert radius((1.0, 0.1, first), (1e3, 0.1, model(4.9999, -1.0, 0.0))) < FIRST_RADIUS
    assert radius((1.0, 0.1, model(-5.0, -1.0, 0.0)), (1e3, 0.1, model(-5.001, -1.0, 0.0))) < FIRST_RADIUS
    assert radius((1.0, 0.1, first), *[(1e3, 0.1, model(6.0, -1.0, 0.0))] * 20) == LEAST_RADIUS


def test_steps_by_the_model_stay_in_the_region():
    told = [(1.0, 0.1, model(5.0, -1.0, 0.0)), *[(30.0, 0.2, model(6.0, -1.0, 0.0))] * 12]
    assert 0 < reach(*told) <= LEAST_RADIUS + 1e-9


def test_points_that_are_pending_keep_the_model_away():
    """Workers that ask at once get points that differ in a coordinate."""
    steps = steps_after(*((10.0**i, 0.1, model(5.0 + (i - 1.2) ** 2, -1.0, 0.0)) for i in range(-2, 4)))
    pending: list[np.ndarray] = []
    for _ in range(4):
        pending.append(steps.by_model(pending, NO_FAILURES, False, np.random.default_rng(0)))
    at = Coordinates(BOX).of(np.array(pending))
    assert all(np.abs(a - b).max() > NEW for a, b in itertools.combinations(at, 2))


def test_anywhere_is_beyond_the_region():
    told = [(1.0, 0.1, model(5.0, -1.0, 0.0)), *[(30.0, 0.2, model(6.0, -1.0, 0.0))] * 12]
    steps = steps_after(*told)
    far = [np.log(steps.by_model([], NO_FAILURES, True, np.random.default_rng(seed))[0]) for seed in range(4)]
    assert np.abs(far).max() > 2 * LEAST_RADIUS


def test_without_an_upper_bound_a_step_by_the_model_goes_no_farther_than_the_sampled_range():
    """Or than a weight that was tried; near the best run, by the radius of the region. So weights do not run away."""
    box = Box.from_dict({"a": (0.0, None), "fit": 1.0})
    for largest in (1.0, 1e6):
        steps, gram = LocalSteps(box), np.eye(3)
        told = [
            Run(i, {"a": a, "fit": 1.0}, Observation(9.0 - i, [1.0, 1.0], gram)) for i, a in enumerate((0.5, largest))
        ]
        steps.follow(told)
        far = [steps.by_model([], np.zeros((0, 2)), True, np.random.default_rng(seed))[0] for seed in range(6)]
        near = [steps.by_model([], np.zeros((0, 2)), False, np.random.default_rng(seed))[0] for seed in range(6)]
        assert max(far) <= max(1e3, largest) * (1 + 1e-9)
        assert max(near) <= largest * np.exp(LARGEST_RADIUS) * (1 + 1e-9)


def test_the_model_keeps_away_from_failed_runs():
    """The error falls towards larger weights, where runs fail: with them, fewer proposals lie there."""
    steps = steps_after(*((10.0**i, 0.1, model(6.0 - i, -1.0, 0.0)) for i in range(-3, 2)))
    failed = np.array([[10.0**i, b, 1.0] for i in (2, 3) for b in (0.05, 0.3)])
    rngs = [np.random.default_rng(seed) for seed in range(10)]
    without = [steps.by_model([], NO_FAILURES, True, rng)[0] > 30 for rng in rngs]
    rngs = [np.random.default_rng(seed) for seed in range(10)]
    assert sum(steps.by_model([], failed, True, rng)[0] > 30 for rng in rngs) < sum(without)


def test_of_equal_metrics_the_best_run_is_that_of_the_ledger():
    """The lower error decides, then the later run: steps begin there."""
    told = runs((1.0, 0.1, model(5.0, -1.0, 0.0)), (10.0, 0.1, model(4.0, 1.0, 0.0)), (3.0, 0.1, model(4.5, 1.0, 0.0)))
    told = [Run(run.run, run.weights, replace(run.observation, metric=0.25)) for run in told]
    steps = LocalSteps(BOX)
    steps.follow(told)
    assert Ledger(BOX, told).best is told[1]
    assert steps.by_signs()[0] < 10.0  # from the second run, whose slope is positive
    assert steps.beyond(np.array([10.0, 0.1, 1.0])).tolist() == [10.0, 0.1, 1.0]


def test_an_extension_is_measured_from_the_last_gain():
    """The third run gained too, in another direction: the way that counts is from the second to the third."""
    gains = [(1.0, 0.1, model(5.0, -1.0, 0.0)), (10.0, 0.1, model(4.0, -1.0, 0.0)), (10.0, 0.4, model(3.0, 0.0, -1.0))]
    steps = steps_after(*gains)
    assert steps.beyond(np.array([20.0, 0.4, 1.0])).tolist() == [20.0, 0.4, 1.0]  # across the last way
    assert steps.beyond(np.array([10.0, 0.5, 1.0]))[1] > 0.5


def test_an_interrupt_at_any_line_changes_no_later_step():
    """Ctrl-C may come at each line of `follow`: the next call takes in the runs as if nothing had happened."""
    told = runs(
        (1.0, 0.1, model(5.0, -1.0, 1.0)), (30.0, 0.0, model(4.0, -1.0, -1.0)), (200.0, 0.3, model(6.0, 1.0, 1.0))
    )
    right = LocalSteps(BOX)
    right.follow(told)
    for line in itertools.count():
        steps, seen = LocalSteps(BOX), itertools.count()

        def interrupt(frame, event, argument, at=line, count=seen):
            if frame.f_code.co_filename == local_steps.__file__ and event == "line" and next(count) == at:
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            steps.follow(told)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        interrupted = next(seen) > line
        steps.follow(told)
        assert steps.by_signs().tolist() == right.by_signs().tolist()
        assert (steps._radius, len(steps._points)) == (right._radius, 3)
        if not interrupted:
            break
    assert line > 20


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e-150, 1e100, 1e150])
@pytest.mark.parametrize("bounds", [(1e-4, 1e12), (0.0, None), (1.0, 1.0 + 4e-16), (1e6, 1e6 + 1e-9)])
def test_extreme_numbers_give_steps_in_the_box_without_warnings(size, bounds):
    """Gradients near the limits of floats, features far from them, and ranges of a few roundings."""
    box = Box.from_dict({"a": bounds, "b": (1e-4, 1e12), "fit": 1.0})
    jacobian = size * np.array([[1.0, 1.0, 1e-5], [0.0, 0.0, 1e-5]])  # two equal terms, and one far smaller
    steps = LocalSteps(box)
    start = {"a": min(1e10, box.upper[0]), "b": 1e10, "fit": 1.0}
    for features in ([1.0, 1.0, 1.0], [1e-170, 1.0, 1e-170], [0.0, 0.0, 0.0]):
        steps.follow([])
        steps.follow([Run(0, start, Observation.from_gradients(2.0, features, [size, size], jacobian))])
        assert np.isfinite(steps.by_signs()).all()
        box.as_array(steps.by_signs())


def test_steps_depend_on_the_runs_alone():
    """One by one, all together, and with failed runs and models without weights between them."""
    told = [(1.0, 0.1, model(5.0, -1.0, 1.0)), (30.0, 0.0, model(4.0, -1.0, -1.0)), (200.0, 0.3, model(6.0, 1.0, 1.0))]
    one_by_one = LocalSteps(BOX)
    for n in range(1, 4):
        one_by_one.follow(runs(*told)[:n])
    others = runs(*told)
    others.insert(1, Run(1, {"a": 2.0, "b": 0.2, "fit": 1.0}, None, "diverged"))
    others.insert(2, Run(None, None, model(1.0, 1.0, 1.0)))
    with_others = LocalSteps(BOX)
    with_others.follow(others)
    for steps in (one_by_one, with_others):
        assert steps.by_signs().tolist() == steps_after(*told).by_signs().tolist()
        rng = np.random.default_rng
        assert (
            steps.by_model([], NO_FAILURES, False, rng(0)).tolist()
            == steps_after(*told).by_model([], NO_FAILURES, False, rng(0)).tolist()
        )
    one_by_one.follow(others[:1])  # fewer runs than before: another history
    assert one_by_one.by_signs().tolist() == steps_after(told[0]).by_signs().tolist()


@pytest.mark.parametrize("unit", [1e-3, 1e4])
def test_the_unit_of_a_term_does_not_matter(unit):
    """A term that is multiplied by a number has bounds and weights divided by it; so has the next step."""
    problem = FAMILIES["ridge"](4)
    factors = np.array([unit, 1.0, 1.0])
    box = Box(problem.box.lower / factors, problem.box.upper / factors, problem.box.names)
    plain, other = LocalSteps(problem.box), LocalSteps(box)
    told, told_other = [], []
    weights = problem.box.as_array(problem.start)
    for run in range(4):
        named = problem.box.as_dict(weights)
        seen = problem.observe(named)
        gram_units = np.append(factors, 1.0)
        scaled = Observation(
            seen.error, seen.features * factors, seen.gram * np.outer(gram_units, gram_units), names=box.names
        )
        told.append(Run(run, named, seen))
        told_other.append(Run(run, box.as_dict(weights / factors), scaled))
        plain.follow(told)
        other.follow(told_other)
        np.testing.assert_allclose(other.by_signs() * factors, plain.by_signs(), rtol=1e-8)
        weights = plain.by_signs()


def test_an_endless_weight_can_start_at_zero():
    """Its first step is into the range that it is sampled from, and it may leave that range at the upper end."""
    box = Box.from_dict({"a": (0.0, None), "fit": 1.0})
    steps = LocalSteps(box)
    down = Observation.from_gradients(2.0, [1.0, 1.0], np.ones(2), np.array([[1.0, 0.0], [0.0, 1.0]]))
    steps.follow([Run(0, {"a": 0.0, "fit": 1.0}, down)])
    assert steps.by_signs()[0] > 0
    steps.follow(
        [
            Run(0, {"a": 0.0, "fit": 1.0}, down),
            Run(1, {"a": 5e3, "fit": 1.0}, Observation(1.0, down.features, down.gram)),
        ]
    )
    assert steps.by_signs()[0] > 5e3
    assert np.isfinite(steps.by_model([], NO_FAILURES, False, np.random.default_rng(0))).all()


@pytest.mark.parametrize("bounds", [(0.01, 100.0), (0.0, 5.0), (-1.0, 2.0), (0.5, 0.6)])
def test_coordinates_are_a_round_trip(bounds):
    """Within the box; its ends are the ends of the coordinates."""
    box = Box.from_dict({"a": bounds, "fit": 1.0})
    x = Coordinates(box)
    for a in np.linspace(*bounds, 7):
        point = np.array([a, 1.0])
        np.testing.assert_allclose(x.to_weights(x.of(point)), point, rtol=1e-12, atol=1e-12)
    assert x.to_weights(x.low - 1).tolist() == box.lower.tolist()
    np.testing.assert_allclose(x.to_weights(x.high + 1), box.upper, rtol=1e-12)
    step = 1e-6
    slope = (x.to_weights(x.of(point) - step)[0] - point[0]) / -step
    assert x.derivative(point, np.ones(2))[0] == pytest.approx(slope, rel=1e-4)
