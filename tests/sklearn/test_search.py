"""The search: a path that goes where the error falls, a choice that does not trust luck, and its observations."""

import numpy as np
import pytest

from tests.sklearn.problems import NO_WEIGHTS, make_problem
from tuneloss.sklearn.fold_fits import Fold, FoldFits, SearchOptions, best_of, clearly_better
from tuneloss.sklearn.search import choose, fit_l2_path, is_l2_only, make_box, only_l2, search, vertex
from tuneloss.sklearn.softmax import make_data

TERMS = ("l1", "l2", "uniform", "dropout")


def each(function, jobs):
    return [function(*job) for job in jobs]


def folds(n: int = 120, k: int = 2, seed: int = 0) -> list[Fold]:
    data = make_problem(n=n, seed=seed)
    found = []
    for f in range(k):
        held = np.arange(n) % k == f
        part = make_data(data.x[~held], data.y[~held], data.sample_weight[~held], 3)
        found.append(Fold(part, data.x[held], data.targets()[held]))
    return found


def fake_run(weights, error: float) -> FoldFits:
    class Nothing:
        params = np.zeros((1, 1))

    return FoldFits(weights, (Nothing(),), np.array([error]), np.ones(1))


@pytest.mark.parametrize("best", [1e-3, 0.05, 1.0, 300.0])
def test_the_path_finds_the_least_error_wherever_it_is(best):
    """Of an error that is a parabola in the logarithm of the weight the last fit is at the least point."""
    tried = []

    def run(weights, starts):
        tried.append(weights["l2"])
        return fake_run(weights, 1 + np.log(weights["l2"] / best) ** 2)

    runs = fit_l2_path(run, folds(), max_runs=15)
    assert tried[-1] == pytest.approx(best, rel=1e-6)
    assert best_of(runs).weights["l2"] == pytest.approx(best, rel=1e-6)
    assert len(tried) == len(runs) <= 9


def test_the_vertex_of_a_parabola():
    assert vertex([4.0, 1.0, 4.0]) == 0
    assert vertex([(-1 - 0.3) ** 2, 0.3**2, (1 - 0.3) ** 2]) == pytest.approx(0.3)
    assert vertex([1.0, 1.0, 1.0]) == 0


def test_a_search_ends_below_its_path_and_says_what_it_learned_and_where():
    found = search(folds(), SearchOptions(TERMS, 15, 1e-5, 1000), each)
    runs = found.runs
    plain = [run for run in runs if is_l2_only(run.weights)]
    assert best_of(runs).error <= best_of(plain).error
    assert len(plain) < len(runs) <= 15
    for run in runs[len(plain) :]:
        found.box.as_array(run.weights)
    assert runs[-1].weights == found.learned.as_dict()


def test_runs_are_in_the_order_in_which_they_were_made():
    """Of paths that go on to weaker fits, and of paths that turn to stronger ones, as where labels are mostly noise."""
    ways = set()
    for noise in (0.1, 1.0):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(80, 10))
        y = (x[:, 0] + noise * rng.logistic(size=80) > 0).astype(int)
        fold = Fold(make_data(x[::2], y[::2], np.ones(40), 2), x[1::2], np.eye(2)[y[1::2]])
        made = []
        runs = search(
            [fold], SearchOptions(TERMS, 15, 1e-5, 1000, lambda run, _, made=made: made.append(run)), each
        ).runs
        assert [run.weights for run in runs] == [run.weights for run in made]
        ways.add(made[2].weights["l2"] > made[0].weights["l2"])
    assert ways == {True, False}


def test_learned_fits_go_on_as_long_as_each_is_clearly_better():
    """Over problems with inputs that mostly do not matter, where L1 and dropout help."""
    lengths = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(300, 40))
        y = (x[:, 0] + x[:, 1] + rng.logistic(size=300) / 2 > 0).astype(int)
        held = np.arange(300) % 2 == 0
        data = make_data(x[~held], y[~held], np.ones(150), 2)
        fold = Fold(data, x[held], np.eye(2)[y[held]])
        runs = search([fold], SearchOptions(TERMS, 15, 1e-5, 1000), each).runs
        learned = [i for i, run in enumerate(runs) if not is_l2_only(run.weights)]
        assert learned == list(range(learned[0], len(runs)))
        better = [clearly_better(runs[i], best_of(runs[:i])) for i in learned]
        assert all(better[:-1])
        assert not better[-1] or len(runs) == 15
        lengths.add(len(learned))
    assert max(lengths) > 1  # some went on


def test_luck_is_not_enough():
    """Fewer errors by a little on a few examples: L2 alone; by as much on each of them: the other."""
    rng = np.random.default_rng(0)
    noise, base = rng.normal(size=50), rng.random(50) + 5
    plain = FoldFits(only_l2(1.0), (), base, np.ones(50))
    weights = only_l2(1.0) | {"l1": 1.0}
    lucky = FoldFits(weights, (), base - 0.05 + noise, np.ones(50))
    lucky = FoldFits(weights, (), lucky.losses - lucky.losses.mean() + base.mean() - 0.05, np.ones(50))
    better = FoldFits(weights, (), base - 0.05, np.ones(50))
    assert choose([plain, lucky]) is plain
    assert choose([plain, better]) is better


def test_a_choice_counts_weights_as_repeats():
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 4, size=40)
    for shift in (0.0, 0.1, 0.2, 0.4):
        plain, other = rng.random(40), rng.random(40) - shift
        once, twice = (
            [FoldFits(w, (), losses.repeat(n), own) for w, losses in ((only_l2(1.0), plain), (NO_WEIGHTS, other))]
            for n, own in ((1, weight.astype(float)), (weight, np.ones(weight.sum())))
        )
        assert once.index(choose(once)) == twice.index(choose(twice))


def test_no_term_may_be_much_more_than_l2_is():
    features = np.array([10.0, 4.0, 100.0, 2.0, 50.0])
    box = make_box(TERMS, 0.5, features)
    np.testing.assert_allclose((box.upper * features)[[0, 1, 3]], 4 * 0.5 * 4.0)
    assert make_box(("l2",), 0.5, features).upper.tolist() == [0.0, 2.0, 0.0, 0.0, 1.0]
