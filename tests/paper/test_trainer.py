"""The AdaGrad trainer: against an independent solver, unbiased steps, and bad input."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tuneloss.errors import RunFailed
from tuneloss.paper.datasets import digits
from tuneloss.paper.terms import NAMES, draw_masks, training_terms
from tuneloss.paper.trainer import TINY, _one_epoch_of_examples, adagrad, step_gradient, train

PLAIN = dict.fromkeys(NAMES, 0.0) | {"logloss": 1.0}


def array(weights):
    return np.array([weights[name] for name in NAMES])


@pytest.fixture(scope="module")
def split():
    return digits(0, n_train=60)


def loss(params, split, weights, draws=1):
    masks = draw_masks(split, np.random.default_rng(0), draws=draws)
    return float(training_terms(params, split, masks)[0] @ array(weights))


def test_long_training_approaches_the_ridge_solution(split):
    """With L2 only, the loss comes within 1% of the optimum found by scikit-learn's L-BFGS."""
    weights = PLAIN | {"l2": 20.0}
    exact = LogisticRegression(C=1 / (2 * 20.0), tol=1e-8, max_iter=5000).fit(split.train_x, split.train_y)
    optimum = loss(np.vstack([exact.coef_.T, exact.intercept_]), split, weights)
    trained = loss(train(split, weights, np.random.default_rng(0), epochs=300, learning_rate=0.02), split, weights)
    assert optimum * (1 - 1e-6) <= trained <= optimum * 1.01


@pytest.mark.parametrize("term", ["l1", "l2", "uniform", "dropout"])
def test_every_weight_shrinks_its_own_term(split, term):
    """Training with a large weight on a term ends with a smaller value of that term than training without."""
    masks = draw_masks(split, np.random.default_rng(1), draws=8)
    without = train(split, PLAIN, np.random.default_rng(0))
    tamed = train(split, PLAIN | {term: 5.0}, np.random.default_rng(0))
    j = NAMES.index(term)
    assert training_terms(tamed, split, masks)[0][j] < training_terms(without, split, masks)[0][j]


def test_a_step_follows_the_gradient_of_the_loss_on_average(split):
    """The mean step gradient over examples and masks is the gradient of the loss divided by N."""
    rng = np.random.default_rng(2)
    weights = array({"l1": 0.7, "l2": 0.3, "uniform": 0.5, "dropout": 0.8, "logloss": 1.0})
    params, n, epochs = rng.normal(size=split.params_shape) * 0.02, len(split.train_y), 400
    mean = np.zeros_like(params)
    for _ in range(epochs):
        for pair, label in zip(*_one_epoch_of_examples(split, weights, rng), strict=True):
            mean += step_gradient(params, pair, label, weights, n) / (n * epochs)
    expected = training_terms(params, split, draw_masks(split, rng, draws=400))[1] @ weights / n
    assert np.linalg.norm(mean.ravel() - expected) < 0.05 * np.linalg.norm(expected)


def test_one_step_by_hand():
    """From zero with one example the first AdaGrad step is learning_rate * sign(gradient)."""
    params, squares = np.zeros((3, 2)), np.zeros((3, 2))
    pair = np.array([[[2.0, 0.0, 1.0], [2.0, 0.0, 1.0]]])
    adagrad(params, squares, pair, np.array([0]), array(PLAIN), 0.1)
    np.testing.assert_allclose(params, [[0.1, -0.1], [0, 0], [0.1, -0.1]], atol=10 * TINY)


def test_training_is_a_function_of_the_generator(split):
    """The same generator state gives the same params, bit for bit; another gives others."""
    weights = PLAIN | {"dropout": 0.5}
    first, again, other = (train(split, weights, np.random.default_rng(s), epochs=2) for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_no_epochs_return_the_start(split):
    """Zero epochs give a copy of the start, or zeros."""
    start = np.random.default_rng(0).normal(size=split.params_shape)
    back = train(split, PLAIN, np.random.default_rng(0), epochs=0, start=start)
    np.testing.assert_array_equal(back, start)
    assert back is not start
    assert (train(split, PLAIN, np.random.default_rng(0), epochs=0) == 0).all()


def test_the_start_is_used_and_left_alone(split):
    """A warm start changes the result and is not changed itself."""
    start = np.ones(split.params_shape)
    warm = train(split, PLAIN, np.random.default_rng(0), epochs=1, start=start)
    cold = train(split, PLAIN, np.random.default_rng(0), epochs=1)
    assert (start == 1).all()
    assert (warm != cold).any()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"l1": 1.0}, "`weights` must name l1, l2, uniform, dropout, logloss; found l1"),
        (PLAIN | {"l3": 1.0}, "`weights` must name .* found .*l3"),
        (PLAIN | {"l2": -1.0}, "`weights` must be finite and not negative"),
        (PLAIN | {"l2": float("nan")}, "`weights` must be finite and not negative"),
        (PLAIN | {"l2": float("inf")}, "`weights` must be finite and not negative"),
        (dict.fromkeys(NAMES, 0.0), "`weights` must not all be 0"),
    ],
)
def test_bad_weights_are_refused(split, weights, message):
    """Names, sign and finiteness of weights are checked once, at the border."""
    with pytest.raises(ValueError, match=message):
        train(split, weights, np.random.default_rng(0))


@pytest.mark.parametrize("options", [{"epochs": -1}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}])
def test_bad_options_are_refused(split, options):
    """Epochs count up from 0 and the learning rate is positive."""
    with pytest.raises(ValueError, match="`epochs` must be at least 0 and `learning_rate`"):
        train(split, PLAIN, np.random.default_rng(0), **options)


def test_a_start_of_the_wrong_shape_is_refused(split):
    """The message gives both shapes."""
    with pytest.raises(ValueError, match=r"`start` must have shape .*\(65, 10\).*found \(64, 10\)"):
        train(split, PLAIN, np.random.default_rng(0), start=np.zeros((64, 10)))


def test_a_start_with_nan_is_refused(split):
    """A model that is already broken is not trained."""
    with pytest.raises(ValueError, match="`start` must be finite"):
        train(split, PLAIN, np.random.default_rng(0), start=np.full(split.params_shape, np.nan))


def test_divergence_is_an_error_that_says_so(split):
    """Params that overflow raise RunFailed instead of coming back as NaN."""
    with pytest.raises(RunFailed, match="Training diverged in epoch 1"):
        train(split, PLAIN | {"l2": 1.0}, np.random.default_rng(0), learning_rate=1e306)
