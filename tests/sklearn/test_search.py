"""The search: a path that goes where the error falls, a choice that does not trust luck, and its observations."""

import inspect

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tests.sklearn.problems import NO_WEIGHTS, make_problem
from tuneloss import Box
from tuneloss.sklearn.fold_fits import Fold, FoldFits, SearchOptions, best_of, clearly_better
from tuneloss.sklearn.paths import is_l2_only, is_plain, only_l1, only_l2
from tuneloss.sklearn.search import choose, extend, make_box, search
from tuneloss.sklearn.softmax import make_data

OLD = inspect.signature(LogisticRegression).parameters["penalty"].default == "l2"  # scikit-learn before 1.8
L1 = {"penalty": "l1"} if OLD else {"l1_ratio": 1}
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


def test_a_search_ends_below_its_path_and_says_what_it_learned_and_where():
    found = search(folds(), SearchOptions(TERMS, 15, 1e-5, 1000), each)
    runs = found.runs
    plain = [run for run in runs if is_plain(run.weights)]
    assert best_of(runs).error <= best_of(plain).error
    assert len(plain) < len(runs) <= 15
    for run in runs[len(plain) :]:
        found.box.as_array(run.weights)
    assert len(runs) > len(plain) + 1 or runs[-1].weights == found.learned.as_dict()


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
    """Over problems with inputs that mostly do not matter, where dropout helps."""
    lengths = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(300, 40))
        y = (x[:, 0] + x[:, 1] + rng.logistic(size=300) / 2 > 0).astype(int)
        held = np.arange(300) % 2 == 0
        data = make_data(x[~held], y[~held], np.ones(150), 2)
        fold = Fold(data, x[held], np.eye(2)[y[held]])
        runs = search([fold], SearchOptions(("l2", "uniform", "dropout"), 15, 1e-5, 1000), each).runs
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


def test_no_term_may_be_much_more_than_the_penalty_of_the_path_is():
    features = np.array([10.0, 4.0, 100.0, 2.0, 50.0])
    for weights, contribution in ((only_l2(0.5), 0.5 * 4.0), (only_l1(0.5), 0.5 * 10.0)):
        box = make_box(TERMS, weights, features)
        np.testing.assert_allclose((box.upper * features)[[0, 1, 3]], 4 * contribution)
        assert (box.lower <= [weights[name] for name in box.names]).all()
    assert make_box(("l2",), only_l2(0.5), features).upper.tolist() == [0.0, 2.0, 0.0, 0.0, 1.0]


def test_l1_alone_is_chosen_only_if_it_is_better_than_l2_by_half_a_standard_error():
    rng = np.random.default_rng(0)
    base, noise = rng.random(100) + 5, rng.normal(size=100)
    noise = (noise - noise.mean()) / noise.std()  # the standard error of a mean is 0.1
    plain = FoldFits(only_l2(1.0), (), base, np.ones(100))
    for gain, is_chosen in ((0.04, False), (0.06, True)):
        other = FoldFits(only_l1(1.0), (), base - gain + noise, np.ones(100))
        assert (choose([plain, other]) is other) is is_chosen


def sparse_signal(seed: int, matter: int, n: int = 300, d: int = 60, k: int = 3) -> list[Fold]:
    """Folds of examples of two classes, with so many inputs that matter."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = (x[:, :matter].sum(axis=1) / np.sqrt(matter) + 0.5 * rng.logistic(size=n) > 0).astype(int)
    return [
        Fold(make_data(x[i != f], y[i != f], np.ones((i != f).sum()), 2), x[i == f], np.eye(2)[y[i == f]])
        for i in [np.arange(n) % k]
        for f in range(k)
    ]


def l1_errors(parts: list[Fold], weights: np.ndarray) -> np.ndarray:
    """Validation errors of another solver, with L1 alone."""
    errors = np.zeros(len(weights))
    for part in parts:
        for j, l1 in enumerate(weights):
            model = LogisticRegression(C=1 / l1, solver="saga", tol=1e-5, max_iter=5000, **L1).fit(
                part.data.x, part.data.y
            )
            errors[j] -= (part.targets * model.predict_log_proba(part.x)).sum()
    return errors


@pytest.mark.parametrize("seed", range(3))
def test_where_few_inputs_matter_the_choice_is_as_good_as_the_best_of_a_fine_l1_path(seed):
    parts = sparse_signal(seed, matter=2)
    chosen = choose(search(parts, SearchOptions(("l1", "l2"), 15, 1e-5, 1000), each).runs)
    assert chosen.weights["l1"] > 0
    assert chosen.error < 1.01 * l1_errors(parts, np.geomspace(1, 40, 12)).min()


@pytest.mark.parametrize("seed", range(3))
def test_where_all_inputs_matter_the_choice_is_as_if_there_were_no_l1_path(seed, monkeypatch):
    parts = sparse_signal(seed, matter=60)
    options = SearchOptions(TERMS, 15, 1e-5, 1000)
    with_path = choose(search(parts, options, each).runs)
    monkeypatch.setattr("tuneloss.sklearn.search.fit_l1_path", lambda *_: [])
    assert with_path.weights == choose(search(parts, options, each).runs).weights


@pytest.mark.parametrize("max_runs", [3, 5, 8, 11])
def test_no_more_runs_are_made_than_allowed_and_all_are_told(max_runs):
    made = []
    options = SearchOptions(TERMS, max_runs, 1e-5, 1000, lambda run, _: made.append(run))
    runs = search(sparse_signal(0, matter=2), options, each).runs
    assert [run.weights for run in runs] == [run.weights for run in made]
    assert len(runs) <= max_runs


def test_a_search_is_deterministic():
    first, second = (search(sparse_signal(1, matter=2), SearchOptions(TERMS, 15, 1e-5, 1000), each) for _ in range(2))
    assert [run.weights for run in first.runs] == [run.weights for run in second.runs]
    np.testing.assert_array_equal(first.runs[-1].params, second.runs[-1].params)


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
@example([0.0, 1.0, 0.0, 2.2250738585072014e-308, 0.0, 0.0])  # a step that is too short to have a length
def test_a_step_is_extended_only_in_the_direction_of_the_last_one_and_within_the_box(numbers):
    box = Box.from_dict({"l1": (0.0, 1.0), "l2": (0.0, 2.0), "logloss": 1.0})
    before, here, target = (np.append(part, 1.0) for part in np.array(numbers).reshape(3, 2) * [1.0, 2.0])
    best, old = (fake_run(dict(zip(box.names, w, strict=True)), 1.0) for w in (here, before))
    weights = extend(target, best, old, box)
    box.as_array(dict(zip(box.names, weights, strict=True)))
    last, step = ((here - before) / [1, 2, 1], (target - here) / [1, 2, 1])
    if last @ step <= 0 or not np.linalg.norm(step):
        np.testing.assert_array_equal(weights, target)
    else:
        reach = (weights - here) / [1, 2, 1]
        inside = (weights > box.lower) & (weights < box.upper) & (np.abs(step) > 1e-9)
        assert ((reach[inside] / step[inside] > 2 - 1e-6) & (reach[inside] / step[inside] < 4 + 1e-6)).all()
