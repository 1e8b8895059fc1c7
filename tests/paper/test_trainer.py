"""The AdaGrad trainer: against an independent solver, unbiased steps, and bad input."""

import dataclasses

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from tuneloss.errors import RunFailed
from tuneloss.paper.datasets import digits
from tuneloss.paper.terms import NAMES, draw_masks, training_terms
from tuneloss.paper.trainer import AdaGrad, train

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
    masks = draw_masks(split, np.random.default_rng(1), draws=32)
    without = train(split, PLAIN, np.random.default_rng(0), epochs=100)
    tamed = train(split, PLAIN | {term: 5.0}, np.random.default_rng(0), epochs=100)
    j = NAMES.index(term)
    assert training_terms(tamed, split, masks)[0][j] < training_terms(without, split, masks)[0][j]


def slow_epoch(params, squares, split, weights, order, masks, rate):
    """One epoch in NumPy, float64: params and squares (D + 1, C); masks (N, D), in the order of steps; no bits."""
    w_l1, w_l2, w_uniform, w_dropout, w_logloss = weights
    n, classes = len(order), split.n_classes
    for i, mask in zip(order, masks, strict=True):
        clean = np.append(split.train_x[i], 1.0)
        seen = np.append(split.train_x[i] * mask, 1.0)
        p_clean, p_seen = softmax(clean @ params), softmax(seen @ params)
        gradient = (w_logloss + w_dropout) * np.outer(seen, p_seen - np.eye(classes)[split.train_y[i]])
        gradient += w_uniform * np.outer(clean, p_clean - 1 / classes)
        gradient[:-1] += (w_l1 * np.sign(params[:-1]) + 2 * w_l2 * params[:-1]) / n
        squares += gradient**2
        params -= rate * gradient / (np.sqrt(squares) + 1e-12)


class Told:
    """A generator that gives what it is told, and remembers the bits it drew."""

    def __init__(self, order, dropped, seed=0):
        self.order, self.dropped, self.rng = order, dropped, np.random.default_rng(seed)

    def random(self, n):
        return np.where(self.dropped, 0.0, 1.0)

    def permutation(self, n):
        return self.order

    def integers(self, low, high, size, dtype):
        self.bits = self.rng.integers(low, high, size=size, dtype=dtype)
        return self.bits


@pytest.mark.parametrize("uniform", [0.0, 0.7])
def test_one_epoch_is_that_of_a_slow_version(split, uniform):
    """All five terms, a part of the examples under dropout, from a random start: float32 against float64."""
    rng = np.random.default_rng(3)
    weights = np.array([0.7, 0.3, uniform, 0.8, 1.0])
    start = rng.normal(size=split.params_shape) * 0.05
    n, inputs = split.train_x.shape
    told = Told(rng.permutation(n), rng.random(n) < 0.4)
    trainer = AdaGrad(split, told, learning_rate=0.05, start=start)
    trainer.epoch(weights)
    masks = np.ones((n, inputs))
    masks[told.dropped] = 2 * np.unpackbits(told.bits, axis=1, bitorder="little")[:, :inputs]
    params, squares = start.copy(), np.zeros_like(start)
    slow_epoch(params, squares, split, weights, told.order, masks, 0.05)
    np.testing.assert_allclose(trainer.params.T, params, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(trainer.squares.T, squares, rtol=2e-3, atol=1e-8)


def test_half_of_the_inputs_are_kept_and_as_many_examples_dropped_as_the_weights_say(split):
    """Bits are 1 half of the time; dropout acts with probability dropout / (logloss + dropout)."""
    seen = []

    class Watched:
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def __getattr__(self, name):
            return getattr(self.rng, name)

        def integers(self, *args, **options):
            seen.append(self.rng.integers(*args, **options))
            return seen[-1]

    trainer = AdaGrad(split, Watched())
    for _ in range(200):
        trainer.epoch(np.array([0, 0, 0, 0.5, 1.5]))
    bits = np.unpackbits(np.concatenate(seen), axis=1)
    n = 200 * len(split.train_y)
    assert abs(len(bits) / n - 0.25) < 4 * (0.25 * 0.75 / n) ** 0.5
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / bits.size**0.5


TORCH_TERMS = ["l1", "l2", "uniform", "dropout", "logloss"]


@pytest.mark.parametrize("term", TORCH_TERMS)
def test_a_steps_gradient_is_torchs(term):
    """One example, one term at a time: squares after one step are the squared gradient by autograd."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    small = dataclasses.replace(digits(0, n_train=60), train_x=rng.normal(size=(1, 6)), train_y=np.array([1]))
    small = dataclasses.replace(small, n_classes=3)
    weights = np.array([0.0 if name != term else 0.6 for name in NAMES])
    start = rng.normal(size=(7, 3)) * 0.3
    told = Told(np.array([0]), np.array([term == "dropout"]))
    trainer = AdaGrad(small, told, start=start)
    trainer.epoch(weights)
    mask = 2.0 * np.unpackbits(told.bits, axis=1, bitorder="little")[0, :6] if term == "dropout" else np.ones(6)
    p = torch.tensor(start, requires_grad=True)
    logits = torch.tensor(np.append(small.train_x[0] * mask, 1.0)) @ p
    uniform = -torch.log_softmax(logits, 0).mean()
    own = torch.nn.functional.cross_entropy(logits, torch.tensor(1))
    values = {"l1": p[:-1].abs().sum(), "l2": p[:-1].square().sum(), "uniform": uniform, "dropout": own, "logloss": own}
    (gradient,) = torch.autograd.grad(0.6 * values[term], p)
    np.testing.assert_allclose(trainer.squares.T, gradient.numpy() ** 2, rtol=1e-4, atol=1e-9)


def test_a_step_with_a_piecewise_linear_penalty_by_hand():
    """Slopes of the bins of the params: below, between, above knots, and at one; the bias has none."""
    small = dataclasses.replace(digits(0, n_train=60), train_x=np.zeros((1, 4)), train_y=np.array([0]), n_classes=2)
    start = np.array([[-2.0, 0.0], [0.5, 1.0], [3.0, 0.25], [0.75, -1.0], [0.0, 0.0]])
    trainer = AdaGrad(small, np.random.default_rng(0), start=start)
    trainer.epoch_with_slopes(np.array([0.0, 1.0]), np.array([-3.0, -2.5, -2.0, 1.0, 4.0]))
    expected = np.array([[-3, -2.5], [-2, 1], [4, -2], [-2, -3], [-0.5, 0.5]])
    np.testing.assert_allclose(trainer.squares.T, expected**2, rtol=1e-6)
    np.testing.assert_allclose(trainer.params.T, start - 0.1 * np.sign(expected), rtol=1e-5, atol=1e-6)


def test_slopes_by_cells_are_those_by_search(split):
    """With inputs 0 a step's gradient is the slope of the bin, for many params and close knots."""
    rng = np.random.default_rng(5)
    knots = np.sort(rng.normal(size=50)).astype(np.float32).astype(float)
    slopes = np.sort(rng.normal(size=101))
    small = dataclasses.replace(split, train_x=np.zeros((1, 5000)), train_y=np.array([0]), n_classes=2)
    start = np.vstack([rng.normal(size=(4900, 2)) * 1.5, np.repeat(knots[:, None], 2, axis=1), np.zeros((51, 2))])
    trainer = AdaGrad(small, np.random.default_rng(0), start=start)
    at = trainer.params[:, :-1].T.astype(float)
    trainer.epoch_with_slopes(knots, slopes)
    bins = np.searchsorted(knots, at, side="left") + np.searchsorted(knots, at, side="right")
    np.testing.assert_allclose(trainer.squares[:, :-1].T, slopes[bins] ** 2, rtol=1e-5)


def test_state_stays_from_epoch_to_epoch(split):
    """Epochs one by one are those of one call, and the sums of squares grow."""
    trainer, weights = AdaGrad(split, np.random.default_rng(6)), array(PLAIN | {"dropout": 0.5})
    trainer.epoch(weights)
    before = trainer.squares.copy()
    trainer.epoch(weights)
    whole = train(split, PLAIN | {"dropout": 0.5}, np.random.default_rng(6), epochs=2)
    np.testing.assert_array_equal(trainer.params.T, whole)
    assert (trainer.squares >= before).all()


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
    np.testing.assert_array_equal(back, start.astype(np.float32))
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
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must be"):
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
        train(split, PLAIN | {"l2": 1.0}, np.random.default_rng(0), learning_rate=1e37)
