"""The table of fits: counting them, and a short run of each method."""

import numpy as np
import pytest

from benchmarks.far_starts.hypergradients import METHODS, cells, errors_by_fit, fits_needed
from benchmarks.far_starts.problems import Ridge


def test_fits_are_counted_from_one_and_a_problem_that_is_not_solved_needs_one_more_than_all():
    excess = np.array([[0.5, 0.04, 0.0], [0.01, 0.01, 0.01], [0.5, 0.4, 0.3]])
    assert fits_needed(excess, 0.05).tolist() == [2, 1, 4]
    assert fits_needed(excess, 0.0).tolist() == [3, 4, 4]
    assert cells(excess, 0.05) == ["2 (1 to >3)", "67%"]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_begins_with_the_same_fit(method):
    errors = errors_by_fit(method, Ridge(0), 0, fits=5)
    problem = Ridge(0)
    assert errors[0] == pytest.approx(problem.observe(problem.start).error)
    assert len(set(errors)) > 2  # a Gaussian process may ask twice for a corner
