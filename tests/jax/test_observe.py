"""`observe` sees of a JAX model what it sees of a PyTorch model, and says what it cannot see."""

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from tuneloss import Box, learn_loss  # noqa: E402
from tuneloss.errors import InvalidInput, NotFinite  # noqa: E402
from tuneloss.jax import observe  # noqa: E402

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 6)).astype(np.float32), RNG.integers(0, 3, size=30)
TRAIN = [(X[a : a + 5], Y[a : a + 5]) for a in (0, 5)]
VALIDATION = [(X[10:20], Y[10:20]), (X[20:], Y[20:])]
PARAMS = {
    "w1": jnp.asarray(RNG.normal(size=(6, 8)), dtype=jnp.float32),
    "b1": jnp.zeros(8),
    "w2": jnp.asarray(RNG.normal(size=(8, 3)), dtype=jnp.float32),
    "b2": jnp.zeros(3),
}


def log_probabilities(params, inputs):
    hidden = jax.nn.relu(inputs @ params["w1"] + params["b1"])
    return jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])


def log_loss(params, batch):
    return -jnp.take_along_axis(log_probabilities(params, batch[0]), batch[1][:, None], axis=1).mean()


def smooth(params, batch):
    return -log_probabilities(params, batch[0]).mean()


def l2(params):
    return sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


def accuracy(params, batch):
    return (log_probabilities(params, batch[0]).argmax(axis=1) == batch[1]).mean()


TERMS = {"log_loss": log_loss, "smooth": smooth, "l2": l2}


def test_it_sees_what_torch_sees():
    """Of the same network and data: features, error, gram and metric agree to a millionth."""
    torch = pytest.importorskip("torch")
    from tuneloss.torch import LinearLoss
    from tuneloss.torch import observe as observe_torch

    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with torch.no_grad():
        for param, name in zip(model.parameters(), ("w1", "b1", "w2", "b2"), strict=True):
            param.copy_(torch.from_numpy(np.array(PARAMS[name].T)))

    class All(torch.nn.Module):
        def forward(self, model, batch):
            return sum(p.square().sum() for p in model.parameters())

    functions = {
        "log_loss": lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
        "smooth": lambda model, batch: -model(batch[0]).log_softmax(1).mean(),
        "l2": All(),
    }
    loss = LinearLoss(functions, box={"log_loss": 1.0, "smooth": (0, 1), "l2": (0, 1)})
    train, validation = ([(torch.tensor(x), torch.tensor(y)) for x, y in part] for part in (TRAIN, VALIDATION))
    there = observe_torch(
        model, loss, functions["log_loss"], train, validation,
        metric=lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).float().mean(),
    )  # fmt: skip
    here = observe(PARAMS, TERMS, log_loss, TRAIN, VALIDATION, metric=accuracy)
    order = [there.names.index(name) for name in TERMS]
    np.testing.assert_allclose(here.features, there.features[order], rtol=1e-6)
    np.testing.assert_allclose([here.error, here.metric], [there.error, there.metric], rtol=1e-6)
    gram = there.gram[np.ix_([*order, 3], [*order, 3])]
    assert np.abs(here.gram - gram).max() < 1e-6 * np.abs(gram).max()


def test_batches_count_by_their_examples():
    """Two batches of different sizes are one batch."""
    uneven = [(X[:3], Y[:3]), (X[3:10], Y[3:10])]
    one = observe(PARAMS, TERMS, log_loss, [(X[:10], Y[:10])], [(X[10:], Y[10:])])
    several = observe(PARAMS, TERMS, log_loss, uneven, VALIDATION)
    np.testing.assert_allclose(several.features, one.features, rtol=1e-6)
    np.testing.assert_allclose(several.gram, one.gram, rtol=1e-4, atol=1e-6 * np.abs(one.gram).max())


def test_functions_are_compiled_once():
    """Tracing runs the Python function; a second observation of the same shapes traces nothing."""
    n_traced = 0

    def counted(params, batch):
        nonlocal n_traced
        n_traced += 1
        return log_loss(params, batch)

    observe(PARAMS, {"log_loss": counted}, log_loss, TRAIN, VALIDATION)
    before = n_traced
    other = jax.tree.map(lambda leaf: leaf + 1, PARAMS)
    observe(other, {"log_loss": counted}, log_loss, TRAIN, VALIDATION)
    assert n_traced <= before + 1  # once more for the shape of its value


def test_sixteen_bit_parameters_are_summed_in_at_least_float32():
    halves = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), halves)
    exact = observe(rounded, {"l2": l2}, log_loss, [], VALIDATION)
    seen = observe(halves, {"l2": l2}, log_loss, [], VALIDATION)
    np.testing.assert_allclose(seen.gram[0, 0], exact.gram[0, 0], rtol=0.01)


def test_an_argument_with_a_default_is_not_a_batch():
    seen = observe(PARAMS, {"l2": lambda params, power=2: (params["w1"] ** power).sum()}, log_loss, [], VALIDATION)
    assert seen.features[0] == pytest.approx(float((PARAMS["w1"] ** 2).sum()), rel=1e-6)


def test_a_head_on_which_the_error_does_not_depend_is_left_out():
    with_head = PARAMS | {"head": jnp.ones(5)}
    seen = observe(with_head, TERMS, log_loss, TRAIN, VALIDATION)
    without = observe(PARAMS, TERMS, log_loss, TRAIN, VALIDATION)
    np.testing.assert_allclose(seen.gram, without.gram, rtol=1e-6)
    assert seen.features[2] == pytest.approx(without.features[2] + 5)


def test_learn_loss_takes_the_observation():
    box = Box.from_dict({"log_loss": 1.0, "smooth": (0.0, 1.0), "l2": (0.0, 1.0)})
    learned = learn_loss([observe(PARAMS, TERMS, log_loss, TRAIN, VALIDATION)], box)
    assert learned.scale > 0


def nan(params, batch):
    return log_loss(params, batch) * jnp.nan


def root_at_zero(params):
    return jnp.sqrt((0 * params["w1"]).sum())


def per_example(params, batch):
    return log_probabilities(params, batch[0])[:, 0]


def whole(params, batch):
    return jnp.sum(batch[1])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"terms": {"log_loss": nan}}, NotFinite, "Values must be finite; 'log_loss' is nan. If training diverged"),
        ({"error": nan}, NotFinite, "Values must be finite; 'error' is nan"),
        ({"terms": {"root": root_at_zero}}, NotFinite, "those of ['root'] are not, though their values are. Look"),
        ({"terms": {"all": per_example}}, InvalidInput, "'all' must return one floating-point number"),
        ({"terms": {"all": whole}}, InvalidInput, "'all' must return one floating-point number"),
        ({"error": per_example}, InvalidInput, "'error' must return one floating-point number"),
        ({"error": lambda params, batch: 0.0 * params["b1"].sum()}, InvalidInput, "`error` must depend on the param"),
        (
            {"error": None},
            InvalidInput,
            "`error` must be a callable (params, batch) -> mean over the batch; found None",
        ),
        ({"metric": 3}, InvalidInput, "`metric` must be a callable (params, batch) -> mean over the batch; found 3"),
        ({"train": []}, InvalidInput, "`train` must give at least one batch; found none. Is its dataset empty, or"),
        ({"validation": iter(())}, InvalidInput, "`validation` must give at least one batch; found none."),
        ({"train": [(X[:0], Y[:0])]}, InvalidInput, "A batch of `train` must be a pytree of arrays whose first axis"),
        ({"train": [(X[:3], Y[:4])]}, InvalidInput, "counts the same examples, at least one; found shapes [(3, 6), (4"),
        ({"terms": {}}, InvalidInput, "`terms` must be a dict of names and callables"),
        ({"terms": [log_loss]}, InvalidInput, "`terms` must be a dict of names and callables"),
        ({"terms": {1: log_loss}}, InvalidInput, "`terms` must be a dict of names and callables"),
        ({"terms": {"l2": 3.0}}, InvalidInput, "or (params) -> value; found {'l2': 3.0}"),
        ({"terms": {"error": log_loss}}, InvalidInput, "other names than 'error' and 'metric'; found ['error']"),
        ({"params": {}}, InvalidInput, "`params` must be a pytree of arrays of floating-point numbers; found no array"),
        ({"params": {"w": jnp.arange(3)}}, InvalidInput, "floating-point numbers; found ['int32']. The order is obs"),
        ({"params": TERMS}, InvalidInput, "floating-point numbers; found ['function']. The order is observe(params"),
    ],
)
def test_what_cannot_be_observed_is_said_in_words(change, kind, message):
    arguments = {"params": PARAMS, "terms": TERMS, "error": log_loss, "train": TRAIN, "validation": VALIDATION}
    with pytest.raises(kind, match=re.escape(message)):
        observe(**arguments | change)
