"""Theorems 3 and 4, invariances and limit cases of learn_loss."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import assert_selects, assert_verified, features_of, gradients_cost, margin
from tests.strategies import instances
from tuneloss import Box, Observation, learn_loss
from tuneloss.core.cost import cost_matrix
from tuneloss.core.learn import Learner
from tuneloss.core.solver import answer, qp
from tuneloss.core.solver.answer import LearnProblem
from tuneloss.core.solver.program import Scaling, form, scaling
from tuneloss.core.solver.qp import Solution
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.ranking import best_first

OBJECTIVES = ["calibrated", "paper"]
Model = tuple[float, np.ndarray, np.ndarray, np.ndarray]  # error, features, gradient, jacobian


def random_models(m: int, k: int, n: int, seed: int) -> list[Model]:
    """Models whose error is nearly a weighted sum of k convex terms, so that the plain solve applies."""
    rng = np.random.default_rng(seed)
    centers, true = rng.normal(size=(k, n)), rng.uniform(0.5, 2.0, size=k)
    models = []
    for _ in range(m):
        params = rng.normal(size=n)
        jacobian = 2 * (params[:, None] - centers.T)
        features = (jacobian**2).sum(axis=0) / 4
        gradient = jacobian @ true + 0.3 * rng.normal(size=n)
        models.append((float(features @ true) * rng.uniform(0.9, 1.1), features, gradient, jacobian))
    return models


def observed(models: list[Model]) -> list[Observation]:
    return [Observation.from_gradients(*model) for model in models]


def pinned_box(k: int, upper: float = 10.0) -> Box:
    return Box([0.1] * (k - 1) + [1.0], [upper] * (k - 1) + [1.0])


@settings(max_examples=300, deadline=None)
@given(instance=instances(), objective=st.sampled_from(OBJECTIVES))
def test_returns_the_best_reachable_argmin(instance, objective):
    """Theorem 3: the weights select the argmin, and none in the box select an observation of lower error."""
    observations, box = instance
    learned = learn_loss(observations, box, objective=objective)
    assert_verified(learned, observations, box)
    assert margin(learned.argmin, observations, box) >= -1e-6
    order = best_first(observations)
    for better in order[: order.index(learned.argmin)]:
        assert margin(better, observations, box) < -1e-9


@settings(max_examples=60, deadline=None)
@given(instance=instances(max_models=5), epsilon=st.sampled_from(["paper", 0.0, 1.0, math.inf]))
def test_every_epsilon_gives_verified_weights(instance, epsilon):
    """Box, argmin and KKT hold for every epsilon rule where it applies."""
    observations, box = instance
    if observations[0].gram is None and epsilon in (1.0, math.inf):
        return
    assert_verified(learn_loss(observations, box, epsilon=epsilon), observations, box)


@settings(max_examples=150, deadline=None)
@given(instance=instances(), objective=st.sampled_from(OBJECTIVES), factor=st.sampled_from([0.1, 1.5, 30.0]))
def test_a_least_scale_holds_and_changes_nothing_where_the_scale_is_larger(instance, objective, factor):
    observations, box = instance
    free = learn_loss(observations, box, objective=objective)
    least = factor * free.scale
    learned = learn_loss(observations, box, objective=objective, min_scale=least)
    assert_verified(learned, observations, box)
    assert learned.argmin == free.argmin  # scales do not decide which model can be selected
    assert learned.scale >= least * (1 - 1e-9) or learned.note.startswith(answer.UNBOUNDED)
    if factor < 1:
        np.testing.assert_array_equal(learned.weights, free.weights)


@pytest.mark.parametrize("kind", ["pinned", "unpinned", "simplex"])
@pytest.mark.parametrize("factor", [1.5, 20.0])
def test_a_least_scale_above_the_free_one_is_least_squares_at_that_scale(kind, factor):
    """cvxpy: weights in the box that bring J w nearest to scale * g, where the scale is the least one."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        jacobian, gradient = rng.normal(size=(9, 4)), rng.normal(size=9)
        box = {
            "pinned": Box([0.0, 0.0, 0.0, 1.0], [5.0, 5.0, math.inf, 1.0]),
            "unpinned": Box([0.0, 0.0, 0.0, 0.5], [5.0, 5.0, 5.0, 2.0]),
            "simplex": Box.simplex(["a", "b", "c", "d"]),
        }[kind]
        model = Observation.from_gradients(1.0, np.ones(4), gradient, jacobian)
        free = learn_loss([model], box, epsilon=math.inf)
        if free.objective == "paper":  # nothing is positively related to error
            continue
        least = factor * free.scale
        w = cp.Variable(4)
        rules = [w >= box.lower, w <= np.minimum(box.upper, 1e6)] + ([cp.sum(w) == 1] if kind == "simplex" else [])
        cp.Problem(cp.Minimize(cp.sum_squares(jacobian @ w - least * gradient)), rules).solve(solver=cp.CLARABEL)
        learned = learn_loss([model], box, epsilon=math.inf, min_scale=least)
        assert learned.scale == pytest.approx(least, rel=1e-9)
        np.testing.assert_allclose(learned.weights, w.value, atol=1e-5 * max(1.0, np.abs(w.value).max()))


def test_a_least_scale_is_almost_always_reached():
    """200 programs in units over six decades, among them simplices."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(200):
        k = int(rng.integers(2, 7))
        unit = 10 ** rng.uniform(-3, 3, size=k)
        box = Box.simplex([f"t{j}" for j in range(k)]) if rng.random() < 0.5 else pinned_box(k)
        model = Observation.from_gradients(1.0, unit, rng.normal(size=8), rng.normal(size=(8, k)) * unit)
        least = 3 * learn_loss([model], box, epsilon=math.inf).scale
        missed += learn_loss([model], box, epsilon=math.inf, min_scale=least).scale < least * (1 - 1e-9)
    assert missed <= 2


def test_a_negative_least_scale_is_refused():
    with pytest.raises(InvalidInput, match="`min_scale` must not be negative; found -1"):
        learn_loss(observed(random_models(1, 2, 3, 0)), pinned_box(2), min_scale=-1.0)


FUZZED = [  # features, errors, lower, upper: instances that gave a wrong answer, or none
    (
        [
            [-0.9239702942786313, -0.14055066765230215],
            [-2.1609829546892927, 0.22403897634260997],
            [-0.4097193119895355, -1.4285633307020356],
            [0.03537103801109447, -0.3011619483269885],
            [1.7393677031033117, -0.06647142042936356],
        ],
        [1.094793449145189, 0.652072851451619, 1.5803486178608133, 2.0162171490887877, -0.16564701154242115],
        [0.05927291266148213, 1.0],
        [1430.8370114910042, 1.0],
    ),
    ([[-220000.0, 1.5], [220000.0, 0.0]], [0.4, 0.2], [0.7, 1.0], [800.0, 1.0]),
    (  # the pinned term is a millionth of another that must count
        [[19.26, 4.3e-3, 0.11, 1.7e-3, 2.4e-4], [130.7, 2.6e-3, 2.02, 1.8e-3, 1.3e-3]],
        [0.72, -1.32],
        [9.26517, 2.25, 0.0, 0.0, 1.0],
        [9.28173, 212.2, 204.4, 0.69, 1.0],
    ),
]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("features", "errors", "lower", "upper"), FUZZED)
def test_instances_found_by_fuzzing_are_solved_right(features, errors, lower, upper, objective):
    observations, box = [Observation(e, f) for e, f in zip(errors, features, strict=True)], Box(lower, upper)
    learned = learn_loss(observations, box, objective=objective)
    assert_verified(learned, observations, box)
    order = best_first(observations)
    for better in order[: order.index(learned.argmin)]:
        assert margin(better, observations, box) < -1e-9


@pytest.mark.parametrize("weight", [0.3, 1.4, 3.7, 1e-3])
@pytest.mark.parametrize("counted", [[0], [3], [0, 1]])  # models 0 and 1 are alike
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_an_offset_models_that_are_alike_teach_nothing_whatever_they_count(objective, counted, weight):
    """Their difference from their mean is 0 up to rounding, and rounding is no data: the answer is that of one model
    of weight 1, whose difference is 0 exactly."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6, 4))
    features[1] = features[0]
    observations = [Observation(e, f) for e, f in zip([0.3, 0.3, 1, 2, 3, 4], features, strict=True)]
    box = Box([0.1, 0.1, 0.1, 1.0], [50.0, 50.0, 50.0, 1.0])
    weights, one = np.zeros(6), np.zeros(6)
    weights[counted], one[counted[0]] = weight, 1.0
    learned = learn_loss(observations, box, sample_weight=weights, offset=True, objective=objective)
    assert_verified(learned, observations, box)
    exact = learn_loss(observations, box, sample_weight=one, offset=True, objective=objective)
    assert learned.argmin == exact.argmin
    np.testing.assert_allclose(learned.weights, exact.weights, rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("bound", [1e-98, 1e-20, 1.0, 1e20, 1e98])
@pytest.mark.parametrize("size", [1e-200, 1e-100, 1.0, 1e100, 1e150])
def test_sizes_at_the_ends_of_what_numbers_hold(objective, bound, size):
    """A verified answer without a warning (warnings are errors here)."""
    observations = [Observation(e, [size * e, size / e]) for e in (1.0, 2.0, 0.5)]
    for box in (Box([0.1 * bound, bound], [10 * bound, bound]), Box([0.1 * bound, 0.5 * bound], [math.inf, 5 * bound])):
        assert_verified(learn_loss(observations, box, objective=objective), observations, box)


def test_a_weight_that_must_not_be_below_zero_is_not_by_a_rounding_error():
    observations, box = [Observation(3.0, [0.0, 0.0]), Observation(1.0, [0.0, -1.0])], Box([1.0, -1.0], [1.0, 99.0])
    learned = learn_loss(observations, box, epsilon="paper")
    assert (learned.argmin, *learned.weights) == (1, 1.0, 0.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("k", [1, 3, 100])
def test_one_model_with_gradients_recovers_a_perfect_loss(k, objective):
    """Theorem 4 in its right form: rank k and a pinned weight determine the weights; units span twelve decades."""
    rng = np.random.default_rng(k)
    unit = 10 ** rng.uniform(-6, 6, size=k)
    true, scale = rng.uniform(0.1, 2.0, size=k) / unit, 3.0
    jacobian, features = rng.normal(size=(2 * k + 1, k)) * unit, rng.exponential(size=k) * unit
    model = Observation.from_gradients(features @ true / scale, features, jacobian @ true / scale, jacobian)
    box = Box(np.where(np.arange(k) == k - 1, true, 0), np.where(np.arange(k) == k - 1, true, np.inf))
    learned = learn_loss([model], box, objective=objective)
    np.testing.assert_allclose(learned.weights, true, rtol=1e-6)
    assert learned.scale == pytest.approx(scale, rel=1e-6)
    assert learned.note == ""


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("k", [1, 3, 20])
def test_k_models_without_gradients_recover_a_perfect_loss(k, objective):
    """Theorem 4 without gradients: k generic models and a pinned weight."""
    rng = np.random.default_rng(k)
    true, scale = rng.uniform(0.5, 2.0, size=k), 0.5
    features = rng.exponential(size=(k, k))
    box = Box(np.where(np.arange(k) == 0, true, 0), np.where(np.arange(k) == 0, true, 10))
    models = [Observation(f @ true / scale, f) for f in features]
    learned = learn_loss(models, box, objective=objective)
    np.testing.assert_allclose(learned.weights, true, rtol=1e-6)
    assert learned.scale == pytest.approx(scale, rel=1e-6)


def test_without_a_pin_only_the_ray_is_determined():
    """Theorem 4 as printed needs k + 1 independent vectors, but all are orthogonal to (weights, -scale)."""
    rng = np.random.default_rng(0)
    true, jacobian, features = np.array([1.0, 2.0, 4.0]), rng.normal(size=(9, 3)), rng.exponential(size=3)
    model = Observation.from_gradients(features @ true, features, jacobian @ true, jacobian)
    rows = np.vstack([np.append(features, features @ true), np.column_stack([jacobian, jacobian @ true])])
    assert np.linalg.matrix_rank(rows) == 3
    box = Box([0.25, 0.25, 0.25], [10.0, 10.0, 10.0])
    learned = learn_loss([model], box)
    np.testing.assert_allclose(learned.weights, true / 4, rtol=1e-6)  # the smallest weights on the ray
    assert learned.note == ""
    np.testing.assert_allclose(learn_loss([model], Box.simplex(["a", "b", "c"])).weights, true / true.sum(), rtol=1e-6)


def by_cvxpy(models: list[Model], box: Box, objective: str, epsilon: float, argmin: int) -> np.ndarray:
    """The paper's way: CVXPY on the raw Jacobians, in the printed form, or with mu = weights / scale, t = 1 / scale."""
    weights, other = cp.Variable(len(box)), cp.Variable(nonneg=True)  # other: scale, or t
    calibrated = objective == "calibrated"
    scale, t = (1.0, other) if calibrated else (other, 1.0)
    values, root = 0.0, math.sqrt(epsilon)
    for error, features, gradient, jacobian in models:
        values += cp.square(features @ weights - scale * error)
        values += cp.sum_squares(root * (jacobian @ weights - scale * gradient))
    rows = [features @ weights >= models[argmin][1] @ weights for _, features, _, _ in models]
    if box.is_simplex:
        limits = [weights >= 0, cp.sum(weights) == t]
    else:
        limits = [weights >= box.lower * t]
        limits += [weights[j] <= u * t for j, u in enumerate(box.upper) if math.isfinite(u)]
    cp.Problem(cp.Minimize(values), rows + limits).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    if not calibrated:
        return weights.value
    return weights.value / (weights.value.sum() if box.is_simplex else other.value)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("epsilon", ["balanced", "paper", 0.3])
@pytest.mark.parametrize("box", [pinned_box(4), pinned_box(4, math.inf), Box.simplex(list("abcd"))], ids=repr)
def test_agrees_with_cvxpy_on_the_raw_jacobians(objective, epsilon, box):
    """Both forms have the optimum that an independent modeller and the n x k Jacobians give."""
    for seed in range(3):
        models = random_models(m=5, k=4, n=12, seed=seed)
        learned = learn_loss(observed(models), box, objective=objective, epsilon=epsilon)
        expected = by_cvxpy(models, box, learned.objective, learned.epsilon, learned.argmin)
        np.testing.assert_allclose(learned.weights, expected, rtol=2e-5, atol=2e-6)
        cost = gradients_cost(learned.weights, learned.scale, models, learned.epsilon)
        divisor = learned.scale**2 if learned.objective == "calibrated" else 1.0
        assert learned.cost == pytest.approx(cost / divisor, rel=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients_only_is_the_limit_of_large_epsilon(objective):
    """epsilon = infinity gives the weights that a very large epsilon tends to."""
    observations = observed(random_models(m=5, k=3, n=10, seed=1))
    only = learn_loss(observations, pinned_box(3), objective=objective, epsilon=math.inf)
    large = learn_loss(observations, pinned_box(3), objective=objective, epsilon=1e9)
    np.testing.assert_allclose(only.weights, large.weights, rtol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("with_gradients", [True, False])
def test_order_of_the_observations_does_not_matter(objective, with_gradients):
    """Where nothing ties, a permutation changes nothing but the index of the argmin."""
    models = random_models(m=6, k=3, n=10, seed=2)
    observations = observed(models) if with_gradients else [Observation(e, f) for e, f, _, _ in models]
    order = np.random.default_rng(0).permutation(6)
    a = learn_loss(observations, pinned_box(3), objective=objective)
    b = learn_loss([observations[i] for i in order], pinned_box(3), objective=objective)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-7)
    assert order[b.argmin] == a.argmin


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("epsilon", ["balanced", "paper", 0.7, math.inf])
def test_repeating_all_observations_changes_nothing(objective, epsilon):
    observations = observed(random_models(m=4, k=3, n=10, seed=3))
    once = learn_loss(observations, pinned_box(3), objective=objective, epsilon=epsilon)
    thrice = learn_loss(observations * 3, pinned_box(3), objective=objective, epsilon=epsilon)
    np.testing.assert_allclose(once.weights, thrice.weights, rtol=1e-7)
    assert thrice.argmin == once.argmin + 8  # the most recent of equals


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sample_weights_count_like_repetitions(objective):
    """An observation of weight 3 is three observations, in the cost and in epsilon."""
    observations = observed(random_models(m=4, k=3, n=10, seed=4))
    weighted = learn_loss(observations, pinned_box(3), objective=objective, sample_weight=[1, 3, 2, 1])
    repeated = learn_loss([observations[i] for i in (0, 1, 1, 1, 2, 2, 3)], pinned_box(3), objective=objective)
    assert weighted.epsilon == pytest.approx(repeated.epsilon)
    np.testing.assert_allclose(weighted.weights, repeated.weights, rtol=1e-7)
    plain = learn_loss(observations, pinned_box(3), objective=objective)
    assert np.abs(plain.weights - weighted.weights).max() > 1e-4


def test_an_observation_of_weight_0_still_constrains_the_argmin():
    """With weight 0 on the best model, the weights must still select it, though the cost would rather not."""
    box = Box.from_dict({"a": (0.0, 10.0), "b": 1.0})
    fitted = [Observation(2.0, [1.0, 1.0]), Observation(4.0, [2.0, 2.0])]
    best = Observation(1.0, [0.0, 3.0])
    learned = learn_loss([*fitted, best], box, sample_weight=[1, 1, 0])
    assert learned.argmin == 2
    assert_selects(learned.weights, [*fitted, best], 2)
    assert learned.weights[0] >= 2.0 - 1e-9  # a + b >= 3 b
    assert learn_loss(fitted, box).weights[0] < 2.0


UNITS = [
    pytest.param(1000.0, 1.0, np.ones(3), id="error"),
    pytest.param(1.0, 1e-4, np.ones(3), id="params"),
    pytest.param(1.0, 1.0, np.array([1e5, 1e-6, 30.0]), id="terms"),
    pytest.param(1e-6, 1e3, np.array([1e6, 1.0, 1e-6]), id="all"),
]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("error_unit", "params_unit", "term_unit"), UNITS)
def test_balanced_is_free_of_units(objective, error_unit, params_unit, term_unit):
    """Units of error, of the parameters and of each term (with its bounds) change the weights by the units only."""
    models = random_models(m=4, k=3, n=10, seed=5)
    box = pinned_box(3)
    changed = [
        (e * error_unit, f * term_unit, g * error_unit / params_unit, j * term_unit / params_unit)
        for e, f, g, j in models
    ]
    a = learn_loss(observed(models), box, objective=objective)
    b = learn_loss(observed(changed), Box(box.lower / term_unit, box.upper / term_unit), objective=objective)
    np.testing.assert_allclose(b.weights * term_unit, a.weights, rtol=1e-6)
    assert b.scale * error_unit == pytest.approx(a.scale, rel=1e-6)


def converged_ridge(l2: float) -> tuple[Observation, Observation]:
    """A ridge regression trained to convergence with weight `l2`; error is the loss on other data.

    Returns the observation at the minimum, and at the model of least error.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 5)), rng.normal(size=20)
    x_val, y_val = rng.normal(size=(40, 5)), rng.normal(size=40)

    def observe(params: np.ndarray) -> Observation:
        residual, validation = x @ params - y, x_val @ params - y_val
        return Observation.from_gradients(
            validation @ validation,
            [params @ params, residual @ residual],
            2 * x_val.T @ validation,
            np.column_stack([2 * params, 2 * x.T @ residual]),
        )

    return observe(np.linalg.solve(x.T @ x + l2 * np.eye(5), x.T @ y)), observe(np.linalg.lstsq(x_val, y_val)[0])


def test_at_a_converged_model_the_paper_form_stands_still_and_the_calibrated_one_moves():
    """There jacobian @ weights = 0, so with gradients only (weights, scale = 0) costs nothing in the printed form."""
    box = Box.from_dict({"l2": (0.01, 1000.0), "fit": 1.0})
    model, _ = converged_ridge(l2=0.5)
    paper = learn_loss([model], box, objective="paper", epsilon=math.inf)
    assert paper.weights[0] == pytest.approx(0.5, rel=1e-6)
    assert paper.scale == pytest.approx(0.0, abs=1e-6)
    calibrated = learn_loss([model], box, objective="calibrated", epsilon=math.inf)
    assert calibrated.scale > 0.1
    assert abs(calibrated.weights[0] - 0.5) > 0.1


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_l1_is_two_hinges_at_0(objective):
    """|w| = max(0, w) + max(0, -w): on a problem that is symmetric about 0 each hinge gets the weight of L1."""
    rng = np.random.default_rng(0)
    params, noise = rng.exponential(size=20), 0.3 * rng.normal(size=20)
    slope = rng.normal(size=20)
    odd = lambda half: np.append(half, -half)  # noqa: E731
    params, logloss, validation = odd(params), odd(slope), odd(slope + 0.7 + noise)
    hinges = np.column_stack([params > 0, params < 0]) * np.array([1.0, -1.0])

    def learned(penalties: np.ndarray) -> np.ndarray:
        values = np.append(params @ penalties, 30.0)
        model = Observation.from_gradients(50.0, values, validation, np.column_stack([penalties, logloss]))
        k = len(values)
        return learn_loss([model], Box([0.0] * (k - 1) + [1.0], [10.0] * (k - 1) + [1.0]), objective=objective).weights

    l1 = learned(np.sign(params)[:, None])[0]
    assert 0.1 < l1 < 10
    np.testing.assert_allclose(learned(hinges)[:2], [l1, l1], rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_twin_terms_share_their_weight_equally(objective):
    """The tie rule: of all optimal weights those of smallest norm in scaled coordinates."""
    models = random_models(m=3, k=2, n=10, seed=6)
    twins = [
        (e, np.array([f[0], f[0], f[1]]), g, np.column_stack([j[:, 0], j[:, 0], j[:, 1]])) for e, f, g, j in models
    ]
    alone = learn_loss(observed(models), Box([0.0, 1.0], [10.0, 1.0]), objective=objective)
    twice = learn_loss(observed(twins), Box([0.0, 0.0, 1.0], [10.0, 10.0, 1.0]), objective=objective)
    assert alone.weights[0] > 0.01
    np.testing.assert_allclose(twice.weights[:2], alone.weights[0] / 2, rtol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_term_that_never_matters_gets_the_smallest_weight(objective):
    """A term that is 0 with gradient 0 costs nothing: the tie rule puts it at the bound nearest 0."""
    models = [
        (e, np.append(f, 0.0), g, np.column_stack([j, np.zeros(len(g))])) for e, f, g, j in random_models(3, 2, 8, 7)
    ]
    learned = learn_loss(observed(models), Box([0.0, 1.0, 0.5], [10.0, 1.0, 9.0]), objective=objective)
    assert learned.weights[2] == pytest.approx(0.5)


def test_at_infinity_a_term_with_gradient_0_gets_the_smallest_weight_that_selects_the_argmin():
    """A constant's gradient is 0, but its values may be needed by the argmin rows."""
    box = Box.from_dict({"offset": (0.0, 10.0), "loss": 1.0})
    jacobian, gradient = np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([2.0, 4.0])
    free = Observation.from_gradients(1.0, [5.0, 1.0], gradient, jacobian)
    assert learn_loss([free], box, epsilon=math.inf).weights[0] == pytest.approx(0.0, abs=1e-8)
    better = Observation.from_gradients(0.5, [4.0, 3.0], gradient, jacobian)  # needs offset >= 2
    both = learn_loss([free, better], box, epsilon=math.inf)
    assert both.argmin == 1
    assert both.weights[0] == pytest.approx(2.0, rel=1e-6)


def test_a_loss_that_cannot_follow_error_falls_back_to_the_paper_form_and_says_so():
    """t = 0: the loss falls where error rises, whatever the weights; the argmin stays the best reachable one."""
    gradient, jacobian = np.array([1.0, 0.0]), np.array([[-1.0], [0.0]])
    model = Observation.from_gradients(0.0, [0.0], gradient, jacobian)
    learned = learn_loss([model], Box(1.0, 1.0, ["loss"]), epsilon=1.0)
    assert learned.objective == "paper"
    assert "paper form used: no weights" in learned.note
    assert learned.scale == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(learned.weights, [1.0])


def test_weights_that_run_away_are_capped_and_named():
    """t = 0 with mu != 0: error is l2 alone, so an unbounded l2 makes log loss vanish."""
    jacobian = np.array([[1.0, 0.0], [0.0, 1.0]])
    model = Observation.from_gradients(1.0, [1.0, 1.0], np.array([1.0, 0.0]), jacobian)
    learned = learn_loss([model], Box.from_dict({"l2": (0.0, None), "logloss": 1.0}), epsilon=math.inf)
    assert learned.weights[0] == pytest.approx(1000, rel=1e-6)
    assert "weights capped" in learned.note
    assert "l2" in learned.note
    assert "logloss" not in learned.note


def test_a_guess_beyond_the_cap_is_still_reached():
    """Theorem 3 holds for the box as given: where the argmin needs more than the cap, the cap is widened."""
    better = Observation(1.0, [0.0, 1.0])
    other = Observation(2.0, [1e-9, 0.0])  # needs a weight of 1e9 on the first term
    anchor = Observation(3.0, [1.0, 2.0])
    box = Box.from_dict({"a": (0.0, None), "b": 1.0})
    learned = learn_loss([better, other, anchor], box)
    assert learned.argmin == 0
    assert_selects(learned.weights, [better, other, anchor], 0)
    assert learned.weights[0] >= 1e9 * (1 - 1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_harmful_term_gets_weight_0_exactly(objective):
    """A weight at its bound is the bound, not nearly: 0 means that the term need not be computed."""
    zeros = 0
    for seed in range(20):
        models = random_models(m=6, k=4, n=12, seed=seed)
        harmful = [(e, np.append(5.0 + 1 / e, f), g, np.column_stack([-g + 0.1 * j[:, 0], j])) for e, f, g, j in models]
        box = Box([0.0] * 4 + [1.0], [10.0] * 4 + [1.0])
        learned = learn_loss(observed(harmful), box, objective=objective)
        assert learned.weights[0] == 0.0 or learned.weights[0] > 1e-6
        zeros += learned.weights[0] == 0.0
    assert zeros >= 5


def test_with_all_errors_0_the_scale_is_the_smallest():
    """Then no scale costs anything: the tie rule of the printed form takes 0."""
    box = Box.from_dict({"a": (0.5, 2.0), "b": 1.0})
    learned = learn_loss([Observation(0.0, [1.0, 2.0]), Observation(0.0, [2.0, 1.0])], box, objective="paper")
    assert learned.scale == pytest.approx(0.0, abs=1e-9)


def test_what_rounding_leaves_of_negative_eigenvalues_is_removed():
    """A sum of float32 grams may be slightly indefinite; a convex program must not be."""
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    slightly = (vectors * [-1e-7, 0.0, 0.1, 1.0, 2.0]) @ vectors.T
    scales = Scaling(unit=np.ones(4), error_unit=1.0, t_unit=1.0)
    assert np.linalg.eigvalsh(scales.cost(slightly))[0] > -1e-12
    np.testing.assert_allclose(scales.cost(slightly), slightly, atol=2e-7)
    definite = vectors @ np.diag([0.1, 0.2, 0.3, 1.0, 2.0]) @ vectors.T
    np.testing.assert_array_equal(scales.cost(definite), definite)


def rubbish(problem, **options):
    """What a solver returns that went wrong without saying so."""
    return Solution(0 * problem.c + 7.0, 0 * problem.b, 0 * problem.h, "PIQP")


def test_a_second_solver_is_asked_on_doubt_and_named(monkeypatch):
    """PIQP returns rubbish: Clarabel gives the same weights, and the note says so."""
    observations = observed(random_models(m=5, k=3, n=10, seed=1))
    expected = learn_loss(observations, pinned_box(3)).weights
    monkeypatch.setattr(qp, "_piqp", rubbish)
    learned = learn_loss(observations, pinned_box(3))
    np.testing.assert_allclose(learned.weights, expected, rtol=1e-6)
    assert learned.note == "solved by Clarabel"


def test_if_all_solvers_fail_there_is_an_error_and_no_answer(monkeypatch):
    """With the sizes of the program and the residual that was asked for."""
    monkeypatch.setattr(qp, "_piqp", rubbish)
    monkeypatch.setattr(qp, "_clarabel", rubbish)
    message = r"no solver reached a KKT residual of 1e-07 for the program of 5 observations and 3 weights"
    with pytest.raises(SolverError, match=message):
        learn_loss(observed(random_models(m=5, k=3, n=10, seed=1)), pinned_box(3))


def test_a_solution_that_breaks_a_promise_is_not_returned():
    """Neither one that is not optimal, nor one that does not select its argmin."""
    observations = observed(random_models(m=5, k=3, n=10, seed=1))
    box, features, counts = pinned_box(3), features_of(observations), np.ones(5)
    cost = cost_matrix(observations, 1.0, counts)
    fit = LearnProblem([features], 1.0, cost, box, scaling(cost, features, box))
    best, worst = best_first(observations)[0], best_first(observations)[-1]
    rows, others = (features[guess] - features for guess in (best, worst))
    program = form("calibrated", fit.scales.cost(cost), rows, box, fit.scales, 1e3)
    good = qp.solve(program.problem)
    assert fit._verified(program, rows, good) is not None
    assert fit._verified(program, rows, replace(good, x=1.01 * good.x)) is None
    unchecked = replace(program, argmin=form("paper", cost, others, box, fit.scales, 1e3).argmin)
    assert fit._verified(unchecked, rows, good) is None
    assert fit._verified(program, others, good) is None


def test_a_common_offset_of_ten_million_is_solved():
    """Features that agree in all but the last digits, on a simplex, in the printed form."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        features = 1e7 + rng.normal(size=(3, 7))
        observations = [Observation(rng.random(), f) for f in features]
        box = Box.simplex(list("abcdefg"))
        assert_verified(learn_loss(observations, box, objective="paper"), observations, box)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_term_that_is_always_0_beside_a_large_one_on_a_simplex(objective):
    """The unit of a term that was never seen is that of the others, not 1."""
    errors = [-0.9, -1.4, 0.2, 0.3, -0.4, 0.9, 1.2]
    values = [13000, 16000, 220000, 36000, 120000, 240000, 43000]
    observations = [Observation(e, [v, 0.0]) for e, v in zip(errors, values, strict=True)]
    learned = learn_loss(observations, Box.simplex(["a", "b"]), objective=objective)
    np.testing.assert_allclose(learned.weights, [0.0, 1.0], atol=1e-12)
    assert learned.argmin == 1


def test_the_metric_decides_the_order_and_the_error_is_fitted():
    """Ties in the metric are broken by error, then by the most recent."""
    features = np.array([[1.0, 3.0], [3.0, 1.0], [2.0, 2.0], [2.0, 2.0]])

    def order(errors: list[float], metrics: list[float | None]) -> list[int]:
        return best_first([Observation(e, f, metric=m) for e, f, m in zip(errors, features, metrics, strict=True)])

    assert order([0.1, 0.2, 0.3, 0.4], [None] * 4) == [0, 1, 2, 3]
    assert order([0.1, 0.2, 0.3, 0.4], [4.0, 3.0, 2.0, 1.0]) == [3, 2, 1, 0]
    assert order([0.4, 0.2, 0.3, 0.3], [1.0, 1.0, 1.0, 1.0]) == [1, 3, 2, 0]
    box = Box.from_dict({"a": (0.1, 10.0), "b": 1.0})
    by_error = [Observation(e, f) for e, f in zip([1.0, 2.0], features, strict=False)]
    by_metric = [Observation(e, f, metric=-e) for e, f in zip([1.0, 2.0], features, strict=False)]
    assert learn_loss(by_error, box).argmin == 0
    assert learn_loss(by_metric, box).argmin == 1


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_single_numbers(objective):
    """m = 1 and k = 1: the weight is the bound nearest 0 without a pin, the pin with one."""
    model = Observation(2.0, [4.0])
    assert learn_loss([model], Box(0.5, 8.0), objective="calibrated").weights[0] == pytest.approx(0.5)
    pinned = learn_loss([model], Box(3.0, 3.0), objective=objective)
    assert pinned.weights[0] == 3.0
    assert pinned.scale == pytest.approx(6.0)


def test_a_thousand_unreachable_guesses_are_passed_over():
    """All mixtures of reachable models with a little added are ruled out, whatever their error."""
    rng = np.random.default_rng(0)
    hull = rng.exponential(size=(40, 6)) ** 2
    mixtures = rng.dirichlet(np.ones(4), size=300)
    inside = np.array([y @ hull[rng.choice(40, size=4, replace=False)] for y in mixtures]) + 1e-3
    observations = [Observation(i * 1e-3, f) for i, f in enumerate(inside)]
    observations += [Observation(1.0 + f.sum(), f) for f in hull]
    learned = learn_loss(observations, pinned_box(6))
    assert learned.argmin >= 300
    assert margin(learned.argmin, observations, pinned_box(6)) >= -1e-7
    assert len(features_of(observations)) == 340


def test_without_constraints_the_cost_alone_decides():
    """Unconstrained, the cost is no higher; and the argmin told is what these weights select."""
    observations = observed(random_models(m=6, k=3, n=10, seed=3))
    free = learn_loss(observations, pinned_box(3), constrained=False)
    bound = learn_loss(observations, pinned_box(3))
    assert free.cost <= bound.cost * (1 + 1e-9)
    assert_selects(free.weights, observations, free.argmin)


def test_an_observation_that_does_not_count_needs_no_gram():
    """It holds in the argmin constraints as it would with its gram."""
    observations = observed(random_models(m=4, k=3, n=10, seed=5))
    bare = [Observation(o.error, o.features) for o in observations[:2]]
    counts = [0.0, 0.0, 1.0, 1.0]
    expected = learn_loss(observations, pinned_box(3), sample_weight=counts)
    found = learn_loss([*bare, *observations[2:]], pinned_box(3), sample_weight=counts)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-12)
    with pytest.raises(InvalidInput, match="Either all observations have a gram or none"):
        learn_loss([*bare, *observations[2:]], pinned_box(3))


@pytest.mark.parametrize("constant", [-3.0, 50.0])
def test_with_an_offset_a_constant_in_a_term_or_in_the_error_changes_nothing(constant):
    """Of the cost of an epsilon that is a number; models whose error is a sum of terms and a constant cost nothing."""
    box, true, counts = pinned_box(3), np.array([0.5, 2.0, 1.0]), [1.0, 0.5, 2.0, 1.0, 1.0, 3.0]
    exact, moved = [], []
    for _, features, _, jacobian in random_models(m=6, k=3, n=10, seed=7):
        error, gradient = float(features @ true), jacobian @ true
        exact.append(Observation.from_gradients(error, features, gradient, jacobian))
        shifted = features + np.array([constant, 0.0, 0.0])
        moved.append(Observation.from_gradients(error + constant, shifted, gradient, jacobian))
    for objective in ("calibrated", "paper"):
        found = learn_loss(moved, box, offset=True, objective=objective, epsilon=0.3, sample_weight=counts)
        assert found.cost < 1e-9
        np.testing.assert_allclose(found.weights, true, rtol=1e-5)
    noise = np.random.default_rng(0).normal(size=6)
    noisy = [
        [Observation(o.error + e + more, o.features, o.gram) for o, e in zip(exact, noise, strict=True)]
        for more in (0.0, constant)
    ]
    weights = [learn_loss(some, box, offset=True, epsilon=0.3, sample_weight=counts).weights for some in noisy]
    np.testing.assert_allclose(*weights, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(instance=instances(max_models=10))
def test_what_was_ruled_out_stays_so_as_observations_are_added(instance):
    """Remembering it gives the same weights; and each of them, by linprog, cannot be selected."""
    observations, box = instance
    learner = Learner(box)
    for m in range(1, len(observations) + 1):
        plain, quicker = learn_loss(observations[:m], box), learner.learn(observations[:m])
        assert quicker.argmin == plain.argmin
        np.testing.assert_array_equal(quicker.weights, plain.weights)
    assert all(margin(i, observations, box) < 0 for i in learner._unreachable)


@settings(max_examples=60, deadline=None)
@given(instance=instances(max_models=10))
def test_what_was_proved_of_other_observations_is_forgotten(instance):
    """A learner that is given fewer, other or reordered observations answers as a new one."""
    observations, box = instance
    learner = Learner(box)
    learner.learn(observations)
    for changed in (observations[:1], observations[1:] or observations, observations[::-1], observations):
        assert learner.learn(changed).argmin == learn_loss(changed, box).argmin
