"""Runs of the search: their observations, and which of two is better."""

import numpy as np
import pytest

from tests.sklearn.test_search import TERMS, each, fake_run, folds
from tuneloss.sklearn.fold_fits import SearchOptions, best_of, observe_values
from tuneloss.sklearn.paths import only_l2
from tuneloss.sklearn.search import search


def test_the_first_of_equal_runs_is_the_best():
    runs = [fake_run(only_l2(l2), error) for l2, error in ((8.0, 2.0), (4.0, 1.0), (2.0, 1.0))]
    assert best_of(runs) is runs[1]


def test_observations_with_and_without_gradients_agree():
    """In values; and joined over folds, errors are means and gradients of all folds are one long gradient."""
    two = folds()
    runs = search(two, SearchOptions(TERMS, 15, 1e-5, 1000), each).runs
    seen = next(run for run in runs if run.observations[0].gram is not None and run.weights["dropout"] == 0)
    total = float(seen.sample_weight.sum())
    whole = seen.joined_observation()
    assert whole.error == pytest.approx(seen.error / total)
    scale = np.append(np.ones(5), 1 / total)
    grams = [o.gram * np.outer(scale, scale) for o in seen.observations]
    np.testing.assert_allclose(whole.gram, grams[0] + grams[1])
    for plain, full in zip(observe_values(two, seen).observations, seen.observations, strict=True):
        assert plain.error == pytest.approx(full.error)
        np.testing.assert_allclose(plain.features[[0, 1, 2, 4]], full.features[[0, 1, 2, 4]])
