"""LearnLoss on folds: costs add, and argmin rows hold within each fold."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.core.test_learn import observed, pinned_box, random_models
from tests.properties import assert_selects
from tuneloss import Box, Observation, learn_loss
from tuneloss.core.learn import learn_loss_on_folds
from tuneloss.core.solver.program import scaling
from tuneloss.core.solver.reachability import can_hold
from tuneloss.errors import InvalidInput
from tuneloss.ranking import best_index


def folds_of(seed: int, n_folds: int = 3, m: int = 4, k: int = 3, n: int = 10) -> list[list[Observation]]:
    return [observed(random_models(m=m, k=k, n=n, seed=1000 * seed + f)) for f in range(n_folds)]


@pytest.mark.parametrize("objective", ["calibrated", "paper"])
@pytest.mark.parametrize("seed", range(5))
def test_one_fold_is_learn_loss(seed, objective):
    (fold,) = folds_of(seed, n_folds=1)
    plain = learn_loss(fold, pinned_box(3), objective=objective)
    found = learn_loss_on_folds([fold], pinned_box(3), objective=objective)
    np.testing.assert_allclose(found.weights, plain.weights, rtol=1e-6)
    assert found.argmin == plain.argmin


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_runs_within_a_fold_does_not_matter(seed):
    folds = folds_of(seed)
    turned = [fold[::-1] for fold in folds]
    found, again = (learn_loss_on_folds(some, pinned_box(3)) for some in (folds, turned))
    np.testing.assert_allclose(found.weights, again.weights, rtol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_each_fold_selects_the_best_that_the_choices_before_allow(seed):
    """By linprog on the plain box, over all choices of one observation a fold."""
    folds, box = folds_of(seed), pinned_box(3)
    features = [np.array([o.features for o in fold]) for fold in folds]
    found = learn_loss_on_folds(folds, box)

    def possible(choice) -> bool:
        rows = np.vstack([own[i] - own for own, i in zip(features, choice, strict=False)])
        bounds = np.column_stack([box.lower, box.upper])
        return linprog(np.zeros(3), A_ub=rows, b_ub=np.zeros(len(rows)), bounds=bounds).status == 0

    errors = [[o.error for o in fold] for fold in folds]
    best = min(
        (choice for choice in itertools.product(range(4), repeat=3) if possible(choice)),
        key=lambda choice: [errors[f][i] for f, i in enumerate(choice)],
    )
    assert found.argmin == best[0]
    for own, i in zip(features, best, strict=True):
        losses = own @ found.weights
        assert losses[i] <= losses.min() * (1 + 1e-9)  # it may be a tie


def test_if_the_best_of_all_folds_cannot_be_selected_together_the_argmin_is_still_that_of_the_first_fold():
    """Checked where the choice in the first fold differs from that in the last."""
    box, n_differ = pinned_box(2), 0
    for seed in range(40):
        folds = folds_of(seed, n_folds=2, m=5, k=2)
        learned = learn_loss_on_folds(folds, box)
        assert_selects(learned.weights, folds[0], learned.argmin)
        last = np.array([o.features for o in folds[1]]) @ learned.weights
        together = [learned.argmin, int(np.argmin(last))]
        n_differ += together != [best_index(fold) for fold in folds] and together[0] != together[1]
    assert n_differ >= 3


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("simplex", [False, True])
def test_rows_can_hold_where_a_plain_lp_says_so(simplex, ties):
    """In units that span decades. Ties: rows that are 0 at weights of the box, so that they hold, but only just."""
    rng, found = np.random.default_rng(0), []
    names = ["a", "b", "c"]
    box = Box.simplex(names) if simplex else Box([-1.0, 0.0, 1.0], [5.0, 2.0, 1.0], names)
    for _ in range(200):
        rows = rng.normal(size=(rng.integers(1, 8), 3)) * 10 ** rng.uniform(-2, 2, size=3)
        rows[rng.random(rows.shape) < 0.2] = 0.0
        scales = scaling(np.diag(10 ** rng.uniform(-2, 2, size=4)), rows, box)
        if ties:
            weights = rng.dirichlet(np.ones(3)) if simplex else np.append(rng.uniform(0, 2, size=2), 1.0)
            rows -= np.outer(rows @ weights / (weights @ weights), weights)
            assert can_hold(rows, box, scales)
            continue
        total = {"A_eq": np.ones((1, 3)), "b_eq": [1.0]} if simplex else {}
        bounds = np.column_stack([box.lower, box.upper])
        plain = linprog(np.zeros(3), A_ub=rows, b_ub=np.zeros(len(rows)), bounds=bounds, **total).status == 0
        assert can_hold(rows, box, scales) == plain
        found.append(plain)
    assert ties or 0.2 < np.mean(found) < 0.8  # both answers came up


def test_ties_in_units_of_many_decades_hold():
    """Needs HiGHS at a tolerance of its own now and then."""
    box = Box([-1.0] * 4 + [1.0], [5.0] * 4 + [1.0])
    for seed in range(150):
        rng = np.random.default_rng(seed)
        weights = np.append(rng.uniform(0, 2, size=4), 1.0)
        rows = rng.normal(size=(5, 5)) * 10 ** rng.uniform(-4, 4, size=5)
        rows[:, -1] -= rows @ weights
        assert can_hold(rows, box, scaling(np.diag(10 ** rng.uniform(-2, 2, size=6)), rows, box))


def test_costs_add():
    """Without argmin rows in the way, two equal folds give what one gives, and a fold that counts 0 gives nothing."""
    (fold,) = folds_of(1, n_folds=1)
    other = folds_of(2, n_folds=1, m=1)[0]
    once, twice = (learn_loss_on_folds([fold] * n, pinned_box(3)) for n in (1, 2))
    np.testing.assert_allclose(once.weights, twice.weights, rtol=1e-6)
    assert twice.cost == pytest.approx(2 * once.cost)
    mixed = learn_loss_on_folds([fold[:1], other], pinned_box(3))
    flat = learn_loss([fold[0], other[0]], pinned_box(3), constrained=False)
    np.testing.assert_allclose(mixed.weights, flat.weights, rtol=1e-5)


def test_a_simplex_has_folds_too():
    rng = np.random.default_rng(0)
    folds = [[Observation(rng.random(), rng.random(3)) for _ in range(4)] for _ in range(2)]
    learned = learn_loss_on_folds(folds, Box.simplex(["a", "b", "c"]))
    assert learned.weights.sum() == pytest.approx(1)


def test_folds_must_be_lists_of_observations():
    with pytest.raises(InvalidInput, match="a list of observations for each fold, at least one"):
        learn_loss_on_folds([], pinned_box(3))
    with pytest.raises(InvalidInput, match="a list of observations for each fold, at least one"):
        learn_loss_on_folds(folds_of(0)[0], pinned_box(3))
    with pytest.raises(InvalidInput, match="needs at least one observation"):
        learn_loss_on_folds([[]], pinned_box(3))
