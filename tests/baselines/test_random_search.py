"""Random search: log-uniform over decades, reproducible, and with the tuner's ask, tell and best."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from tuneloss import Box, Observation
from tuneloss.baselines.random_search import RandomSearch

BOX = Box.from_dict({"l2": (0.1, 100.0), "dropout": (0.0, 1.0), "logloss": 1.0})


@pytest.fixture(scope="module")
def draws():
    search = RandomSearch(BOX, seed=3)
    return [search.ask() for _ in range(3000)]


def observed(error):
    return Observation(error, [1.0, 1.0, 1.0])


def test_a_range_of_decades_is_drawn_log_uniformly(draws):
    """log10 of l2 is uniform on [-1, 2], by a Kolmogorov-Smirnov test."""
    assert kstest([math.log10(w["l2"]) for w in draws], "uniform", args=(-1, 3)).pvalue > 1e-4


def test_a_range_that_holds_zero_is_drawn_uniformly(draws):
    """dropout is uniform on [0, 1]."""
    assert kstest([w["dropout"] for w in draws], "uniform").pvalue > 1e-4


def test_a_pinned_weight_stays(draws):
    """logloss is 1 in every draw."""
    assert {w["logloss"] for w in draws} == {1.0}


def test_draws_are_a_function_of_the_seed():
    """Equal seeds ask for equal weights, others for others."""
    first, again, other = (RandomSearch(BOX, seed=s).ask() for s in (0, 0, 1))
    assert first == again != other


def test_what_is_told_does_not_change_what_is_asked():
    """Random search does not learn: that is what makes it a baseline."""
    told, untold = RandomSearch(BOX, seed=0), RandomSearch(BOX, seed=0)
    told.tell(told.ask(), observed(1.0))
    untold.ask()
    assert told.ask() == untold.ask()


def test_best_is_the_run_of_least_error():
    """Failed runs are kept in the history but are never the best."""
    search = RandomSearch(BOX)
    search.tell(search.ask(), observed(2.0))
    wanted = search.ask()
    search.tell(wanted, observed(1.0))
    search.tell(search.ask(), failed="diverged")
    assert search.best.weights == pytest.approx(wanted)
    assert len(search.history) == 3
    assert search.history[2].failed == "diverged"


def test_there_is_no_best_before_a_run_has_ended():
    """As with the tuner, `best` is None until then, failed runs or not."""
    search = RandomSearch(BOX)
    assert search.best is None
    search.tell(search.ask(), failed="diverged")
    assert search.best is None


@pytest.mark.parametrize("told", [{}, {"observation": observed(1.0), "failed": "diverged"}])
def test_a_run_ends_well_or_fails(told):
    """`tell` takes an observation or a reason, never both or neither."""
    search = RandomSearch(BOX)
    with pytest.raises(ValueError, match="`tell` needs an observation or"):
        search.tell(search.ask(), **told)


def test_weights_outside_the_box_are_refused():
    """Results are kept only for weights that belong to the search."""
    with pytest.raises(ValueError, match="Weights must lie in"):
        RandomSearch(BOX).tell({"l2": 1000.0, "dropout": 0.0, "logloss": 1.0}, observed(1.0))


def test_seeded_generators_are_not_shared():
    """Two searches with one seed do not disturb each other, nor numpy's global state."""
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    RandomSearch(BOX, seed=0).ask()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
