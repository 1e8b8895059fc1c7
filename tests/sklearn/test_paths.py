"""Paths of one penalty: they find the least error, and start where the penalty begins to matter."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sklearn.problems import make_problem
from tests.sklearn.test_search import each, fake_run, folds, sparse_signal
from tuneloss.sklearn.fitting import fit
from tuneloss.sklearn.fold_fits import SearchOptions, best_of, fit_folds
from tuneloss.sklearn.paths import (
    Path,
    first_l2,
    fit_l1_path,
    fit_path,
    is_plain,
    max_l1,
    only_l1,
    only_l2,
    probe_l1,
    vertex,
)


@pytest.mark.parametrize("name", ["l1", "l2"])
@pytest.mark.parametrize("best", [1e-3, 0.05, 1.0, 300.0])
def test_the_path_finds_the_least_error_wherever_it_is(name, best):
    """If the error is a parabola in the logarithm of the weight, the last fit is at its least point."""
    tried = []

    def run(weights, starts):
        tried.append(weights[name])
        return fake_run(weights, 1 + np.log(weights[name] / best) ** 2)

    parts = folds()
    path = Path(name, first_l2(parts[0].data), 6.0, 1e-4)
    runs = fit_path(run, parts, path, [part.data.zeros() for part in parts], max_runs=14)
    assert best_of(runs).weights[name] == pytest.approx(best, rel=0.1)  # a smaller shift is not worth a fit
    assert all(is_plain(run.weights) for run in runs)
    assert len(tried) == len(runs) <= 9


def test_a_path_to_stronger_weights_ends_where_predictions_are_constant():
    """Labels that do not depend on the inputs."""
    parts = folds()
    rng = np.random.default_rng(0)
    for part in parts:
        rng.shuffle(part.data.y)
    options = SearchOptions(("l2",), 15, 1e-5, 1000)

    def fit_weights(weights, starts):
        return fit_folds(parts, weights, starts, options=options, parallel=each)

    path = Path("l2", 100.0, 6.0, 1e-4)
    runs = fit_path(fit_weights, parts, path, [part.data.zeros() for part in parts], max_runs=14)
    assert len(runs) < 9


def test_the_vertex_of_a_parabola():
    assert vertex([4.0, 1.0, 4.0]) == 0
    assert vertex([(-1 - 0.3) ** 2, 0.3**2, (1 - 0.3) ** 2]) == pytest.approx(0.3)
    assert vertex([1.0, 1.0, 1.0]) == 0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_largest_l1_weight_is_the_least_that_leaves_no_coefficient(n_classes, intercept):
    data = make_problem(n_classes, intercept=intercept)
    for factor, is_zero in ((1.01, True), (0.95, False)):
        fitted = fit(data, only_l1(factor * max_l1(data)), data.zeros(), tol=1e-8, max_iter=5000)
        assert (fitted.params[:, :-1] == 0).all() == is_zero


def test_l1_is_fitted_on_all_folds_unless_it_is_clearly_worse():
    options = SearchOptions(("l1", "l2"), 10, 1e-5, 1000)
    lengths = []
    for matter in (2, 60):
        parts = sparse_signal(0, matter)
        starts = [part.data.zeros() for part in parts]
        l2 = [fit_folds(parts, only_l2(w), starts, options=options, parallel=each) for w in np.geomspace(1, 30, 4)]
        lengths.append(len(fit_l1_path(parts, best_of(l2), options, each)))
    assert lengths[0] >= 3
    assert lengths[1] == 0


@pytest.mark.parametrize(("standard_errors", "is_dropped"), [(-2.0, False), (0.9, False), (1.1, True)])
def test_l1_is_dropped_if_it_is_more_than_a_standard_error_worse_on_the_first_fold(standard_errors, is_dropped):
    options = SearchOptions(("l1", "l2"), 10, 1e-5, 1000)
    parts = sparse_signal(0, 2)
    first, starts = max_l1(parts[0].data) / 3, [part.data.zeros() for part in parts]
    l2 = fit_folds(parts, only_l2(10.0), starts, options=options, parallel=each)
    l1 = probe_l1(parts[0], l2, first, options).losses
    spread = np.tile([0.01, -0.01], len(l1) // 2)
    lead = spread - standard_errors * spread.std() / np.sqrt(len(l1))
    rival = replace(l2, losses=np.append(l1 + lead, l2.losses[len(l1) :]))
    assert (probe_l1(parts[0], rival, first, options) is None) == is_dropped
