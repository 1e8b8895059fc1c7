"""What all baselines share: the ask and tell of `LossTuner`, a start, and the unit cube of a box."""

import math

import numpy as np
import pytest

from tuneloss import Box, Observation
from tuneloss.baselines import gp_ei_mcmc
from tuneloss.baselines.gp import slice_sample
from tuneloss.baselines.gp_ei_mcmc import GpEiMcmc
from tuneloss.baselines.optuna_search import OptunaSearch
from tuneloss.baselines.random_search import RandomSearch
from tuneloss.baselines.search import Cube
from tuneloss.baselines.tunereg import TuneReg
from tuneloss.errors import InvalidInput
from tuneloss.tuning.gaussian_process import Posterior, expected_improvement

BOX = Box.from_dict({"l2": (0.1, 100.0), "dropout": (0.0, 1.0), "logloss": 1.0})
MADE = {
    "random": RandomSearch,
    "tunereg": TuneReg,
    "gp-ei-mcmc": GpEiMcmc,
    "tpe": lambda box, **options: OptunaSearch(box, "tpe", **options),
    "gp": lambda box, **options: OptunaSearch(box, "gp", **options),
}


def observed(weights):
    """A bowl in log l2 and dropout; features that are positive and differ."""
    error = 1 + math.log10(weights["l2"]) ** 2 + (weights["dropout"] - 0.3) ** 2
    return Observation(error, [1 / weights["l2"], 1 - weights["dropout"] / 2, 1 + 0.1 * weights["l2"] ** 0.5])


def played(search, runs):
    asked = []
    for _ in range(runs):
        asked.append(search.ask())
        search.tell(asked[-1], observed(asked[-1]))
    return asked


@pytest.mark.parametrize("name", MADE)
def test_every_search_stays_in_the_box_repeats_with_its_seed_and_begins_with_its_start(name):
    start = {"l2": 3.0, "dropout": 0.25, "logloss": 1.0}
    first, again, other = (played(MADE[name](BOX, seed=seed, start=start), 6) for seed in (1, 1, 2))
    assert first == again != other
    assert first[0] == start
    assert all(BOX.as_array(weights) is not None for weights in first)
    assert len({tuple(weights.values()) for weights in first}) == 6


@pytest.mark.parametrize("name", MADE)
def test_a_failed_run_is_survived(name):
    """The next points are proposed from the others; all may fail."""
    search = MADE[name](BOX, seed=0)
    for i in range(8):
        weights = search.ask()
        if i % 2:
            search.tell(weights, failed="it diverged")
        else:
            search.tell(weights, observed(weights))
    assert search.best.failed is None
    hopeless = MADE[name](BOX, seed=0)
    for _ in range(6):
        hopeless.tell(hopeless.ask(), failed="it diverged")
    assert hopeless.best is None


@pytest.mark.parametrize("name", ["gp-ei-mcmc", "gp"])
def test_a_model_based_search_beats_random_search_on_a_bowl(name):
    found = min(observed(w).error for w in played(MADE[name](BOX, seed=0), 18))
    assert found < min(
        1.01, np.mean([min(observed(w).error for w in played(RandomSearch(BOX, seed=s), 18)) for s in range(9)])
    )


def test_gp_ei_mcmc_proposes_where_its_own_expected_improvement_is_greatest(monkeypatch):
    """By the ten processes that it sampled, a hundred sweeps after the start, no less than the best of 4000 points; and
    what it refines are among the best of them."""
    chains, starts, minimize = [], [], gp_ei_mcmc.minimize
    monkeypatch.setattr(gp_ei_mcmc, "minimize", lambda f, x, **o: starts.append(x) or minimize(f, x, **o))
    monkeypatch.setattr(gp_ei_mcmc, "slice_sample", lambda *args: chains.append(slice_sample(*args)) or chains[-1])
    search, cube = GpEiMcmc(BOX, seed=0), Cube(BOX)
    for weights in played(RandomSearch(BOX, seed=0), 6):
        search.tell(weights, observed(weights))
    proposal, refined = cube.to_cube(BOX.as_array(search.ask())[None]), np.array(starts)
    search.ask()
    assert [len(chain) for chain in chains] == [110, 30]
    x, errors = cube.to_cube(search.points()), search.errors()
    y = (errors - errors.mean()) / errors.std()
    posteriors = [Posterior.of(x, y, theta) for theta in chains[0][-10:]]
    many, at, own = (
        expected_improvement(posteriors, float(y.min()), points)
        for points in (np.random.default_rng(1).random((4000, 2)), refined, proposal)
    )
    assert own[0] >= 0.999 * many.max()
    assert at.min() >= np.quantile(many, 0.98)


def test_the_cube_is_logarithmic_where_a_range_spans_a_decade_and_back():
    cube = Cube(BOX)
    points = np.array([[0.1, 0.0, 1.0], [math.sqrt(10), 0.5, 1.0], [100.0, 1.0, 1.0]])
    np.testing.assert_allclose(cube.to_cube(points), [[0, 0], [0.5, 0.5], [1, 1]], atol=1e-12)
    np.testing.assert_allclose(cube.to_box(cube.to_cube(points)), points)


def test_an_unknown_sampler_of_optuna_is_refused():
    with pytest.raises(InvalidInput, match='`sampler` must be "tpe" or "gp"; found \'cma\''):
        OptunaSearch(BOX, "cma")


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_optuna_draws_at_random_for_as_many_runs_as_it_is_told(sampler):
    """Told other errors of the same points, it asks for the same weights until then, and soon for others."""
    for n_startup, same in ((3, 3), (None, 10)):
        one, other = (OptunaSearch(BOX, sampler, seed=0, n_startup=n_startup) for _ in range(2))
        agree = []
        for i in range(same + 4):
            weights = one.ask()
            agree.append(weights == other.ask())
            one.tell(weights, Observation(float(i), np.zeros(3)))
            other.tell(weights, Observation(-float(i), np.zeros(3)))
        assert all(agree[:same])
        assert not all(agree)
    with pytest.raises(InvalidInput, match="`n_startup` must"):
        OptunaSearch(BOX, sampler, n_startup=-1)


@pytest.mark.parametrize("box", [{"a": (1.0, 2.0), "b": (0.0, 1.0)}, {"a": 1.0, "b": 1.0, "c": (0.0, 1.0)}])
def test_tunereg_needs_one_pinned_weight(box):
    with pytest.raises(InvalidInput, match="TuneReg needs a box that pins one weight, above 0; found Box"):
        TuneReg(Box.from_dict(box)).ask()
