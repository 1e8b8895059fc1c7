"""The demo: a fair, reproducible comparison."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from tuneloss.paper.datasets import digits
from tuneloss.paper.demo import METHODS, evaluate, run_demo

SHORT = {"n_runs": 3, "epochs": 2}


@pytest.fixture(scope="module")
def comparison():
    return run_demo(n_repeats=2, seed=1, **SHORT)


def test_every_method_has_every_run_of_every_repeat(comparison):
    """Methods get the same number of runs: 2 methods, 2 repeats, 3 runs."""
    found = [(r.method, r.repeat, r.run) for r in comparison.runs]
    assert sorted(found) == sorted((m, i, j) for m in METHODS for i in (1, 2) for j in (1, 2, 3))


def test_methods_begin_with_the_same_run(comparison):
    """In each repeat the first run is common: same weights, same data, same noise, so same numbers."""
    for repeat in (1, 2):
        first, second = (comparison.of(method, repeat)[0] for method in METHODS)
        assert first.weights == pytest.approx(second.weights)
        assert first.test_loss == pytest.approx(second.test_loss)


def test_repeats_are_independent(comparison):
    """Each repeat has its own first weights and its own split."""
    first, second = (comparison.of(METHODS[0], repeat)[0] for repeat in (1, 2))
    assert first.weights != second.weights
    assert first.test_loss != second.test_loss


def test_all_weights_lie_in_the_box(comparison):
    """Both methods search the feasible set of appendix B."""
    box = comparison.box
    for record in comparison.runs:
        values = np.array([record.weights[name] for name in box.names])
        assert ((box.lower <= values) & (values <= box.upper)).all()


def test_the_result_is_a_function_of_the_seed_and_not_of_jobs(comparison):
    """Two workers give the very same records as one; another seed gives others."""
    assert run_demo(n_repeats=2, seed=1, jobs=2, **SHORT).runs == comparison.runs
    assert run_demo(n_repeats=2, seed=2, **SHORT).runs != comparison.runs


def test_every_run_is_announced_once():
    """The callback sees each record, so a progress bar ends full."""
    seen = []
    comparison = run_demo(on_run=seen.append, **SHORT)
    assert sorted(seen, key=str) == sorted(comparison.runs, key=str)


def test_losses_are_means_and_error_is_a_rate():
    """Against scikit-learn's log_loss, and a model that always says class 0."""
    split = digits(0)
    params = np.zeros(split.params_shape)
    params[-1, 0] = 1.0
    record = evaluate(params, split, "A", 1, 1, {})
    p = np.tile(np.exp(params[-1]) / np.exp(params[-1]).sum(), (len(split.test_y), 1))
    assert record.test_loss == pytest.approx(log_loss(split.test_y, p, labels=range(10)))
    assert record.test_error == pytest.approx((split.test_y != 0).mean())


@pytest.mark.parametrize("option", [{"n_runs": 0}, {"n_repeats": 0}, {"jobs": 0}, {"seed": -1}])
def test_impossible_numbers_are_refused(option):
    """Each message names the option and what was found."""
    ((name, number),) = option.items()
    with pytest.raises(ValueError, match=f"`{name}` must be at least .* found {number}"):
        run_demo(**option)
