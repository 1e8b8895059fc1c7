"""An observation against its plainest form, and a model that does not notice it.

These tests reach passes.py, sums.py and gram.py through `observe`.
"""

import copy
import gc
import math
import random
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.torch.reference import Counted, dense, hinges, log_loss, make_data, make_net, matrices
from tuneloss import Observation
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch import L1, L2, Augmented, ConvexPiecewiseLinear, Dropout, LinearLoss, UniformLabels, observe
from tuneloss.torch.observing import ObserveOptions
from tuneloss.torch.observing.batches import saved_bytes
from tuneloss.torch.observing.observe import observe_with
from tuneloss.torch.terms.penalties import GroupPenalty, Penalty

MODULE = sys.modules["tuneloss.torch.observing.passes"]

KNOTS = [-0.25, 0.125, 0.25]  # exact in every dtype
TRAIN, VALIDATION = make_data(5, 3, 8, 1), make_data(4, 7, 2, seed=1)
PLAIN = {"fit": log_loss, "smooth": UniformLabels()}
PENALTIES = {"l1": L1(), "l2": L2(), "r": ConvexPiecewiseLinear(KNOTS)}


def make_loss(terms=None):
    terms = PLAIN | PENALTIES if terms is None else terms
    bounds = dict.fromkeys(terms, (0, math.inf))
    return LinearLoss(terms, bounds | {next(iter(terms)): 1.0})


def penalty_values(net):
    ms = matrices(net)
    l1, l2 = (lambda: sum(p.abs().sum() for p in ms)), (lambda: sum(p.square().sum() for p in ms))
    return [l1, l2, *hinges(KNOTS, ms)]


def brier(model, batch):
    return (F.softmax(model(batch[0]), 1) - F.one_hot(batch[1], 3)).square().sum(1).mean()


def assert_equals(seen: Observation, expected, rtol=1e-9):
    error, features, gram = expected
    assert seen.error == pytest.approx(error, rel=rtol)
    np.testing.assert_allclose(seen.features, features, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(seen.gram, gram, rtol=rtol, atol=rtol * np.abs(gram).max())


def assert_same(one: Observation, other: Observation, rtol=1e-9):
    assert_equals(one, (other.error, other.features, other.gram), rtol)


def assert_exactly(one: Observation, other: Observation):
    assert one.to_dict() == other.to_dict()


class WithState(nn.Module):
    """Batch norm, dropout, one part in eval mode."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)
        self.frozen_norm, self.last = nn.BatchNorm1d(5), nn.Linear(5, 3)
        self.double()
        self.frozen_norm.eval()

    def forward(self, x):
        return self.last(self.frozen_norm(self.drop(self.norm(self.first(x)))))


def noisy(x):
    """Draws from all three."""
    return x * torch.rand(1).double() + np.random.rand() + random.random()  # noqa: NPY002


# --- against the plainest form ----------------------------------------------------------------------------------------


def test_it_is_values_and_gram_of_dense_gradients():
    """Data terms, penalties and hinges; batches of unequal size; the error by another function than any term."""
    net = make_net()
    seen = observe(net, make_loss(), brier, TRAIN, VALIDATION)
    assert seen.names == ("fit", "smooth", "l1", "l2", *(f"r/{s}{j}" for s in ("right", "left") for j in range(3)))
    assert_equals(seen, dense(net, PLAIN, penalty_values(net), brier, TRAIN, VALIDATION))


def test_weights_of_the_loss_do_not_matter():
    """Those of weight 0 are observed too."""
    net, loss = make_net(), make_loss()
    before = observe(net, loss, brier, TRAIN, VALIDATION)
    loss.set_weights({"smooth": 3.0, "r": 0.5})
    assert_exactly(observe(net, loss, brier, TRAIN, VALIDATION), before)


def test_one_callable_that_gives_several_terms_is_as_several_callables():
    net = make_net()

    def both(model, batch):
        return {name: term(model, batch) for name, term in PLAIN.items()}

    bounds = {"fit": 1.0, "smooth": (0, 1), "l2": (0, 1)}
    together = observe(net, LinearLoss([both, L2()], bounds), brier, TRAIN, VALIDATION)
    apart = observe(net, LinearLoss({**PLAIN, "l2": L2()}, bounds), brier, TRAIN, VALIDATION)
    assert_same(together, apart, rtol=1e-12)


def test_penalties_by_group_fill_blocks_of_the_gram():
    """Two piecewise-linear ones on the same parameters included."""
    net = make_net()
    groups = {"first": "0.*", "last": "3.weight"}
    terms = {
        "fit": log_loss,
        "l2": L2(groups=groups),
        "r": ConvexPiecewiseLinear(KNOTS, groups=groups),
        "s": ConvexPiecewiseLinear([0.0], "*"),
    }
    first, last, everything = [net[0].weight, net[0].bias], [net[3].weight], list(net.parameters())
    penalties = [lambda ps=ps: sum(p.square().sum() for p in ps) for ps in (first, last)]
    penalties += hinges(KNOTS, first) + hinges(KNOTS, last) + hinges([0.0], everything)
    with torch.no_grad():
        for p in net.parameters():
            p += 1e-3  # biases of norms are 0, a knot: there autograd's relu and our hinge agree, but not r's values
    seen = observe(net, make_loss(terms), brier, TRAIN, VALIDATION)
    assert_equals(seen, dense(net, {"fit": log_loss}, penalties, brier, TRAIN, VALIDATION))


def test_parameters_at_a_knot_have_slope_0():
    """Both hinges of the knot are flat there, as autograd's relu is at 0."""
    net = make_net()
    with torch.no_grad():
        net[0].weight[:2] = 0.25
        net[3].weight[0] = -0.25
    seen = observe(net, make_loss(), brier, TRAIN, VALIDATION)
    assert_equals(seen, dense(net, PLAIN, penalty_values(net), brier, TRAIN, VALIDATION))


def test_parameters_that_no_data_term_uses_count_in_the_penalties():
    """Their slopes are gradients as good as any, if all parameters are asked for."""
    net = nn.ModuleDict({"used": make_net(), "unused": nn.Linear(3, 4).double()})
    net.forward = lambda x: net["used"](x)
    seen = observe(net, make_loss(), brier, TRAIN, VALIDATION, params="*")
    assert_equals(seen, dense(net, PLAIN, penalty_values(net), brier, TRAIN, VALIDATION))
    loss = make_loss({"fit": log_loss, "r": ConvexPiecewiseLinear(KNOTS)})
    lonely = observe(net, loss, brier, TRAIN, VALIDATION, params="*")
    expected = dense(net, {"fit": log_loss}, hinges(KNOTS, matrices(net)), brier, TRAIN, VALIDATION)
    assert_equals(lonely, expected)


class TwoHeads(nn.Module):
    """A trunk with a head for the error and another for an auxiliary task."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.main, self.aux = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 4)
        self.double()

    def forward(self, x):
        return self.main(torch.tanh(self.trunk(x)))


def test_by_default_parameters_on_which_the_error_does_not_depend_are_left_out():
    """The gram is that of the trunk and the main head alone; values of penalties are those of all parameters."""

    def aux(model, batch):
        return model.aux(torch.tanh(model.trunk(batch[0]))).square().mean()

    net = TwoHeads()
    loss = LinearLoss({"fit": log_loss, "aux": aux, "l2": L2()}, {"fit": 1.0, "aux": (0, 1), "l2": (0, 1)})
    seen = observe(net, loss, brier, TRAIN, VALIDATION)
    assert_same(seen, observe(net, loss, brier, TRAIN, VALIDATION, params=["trunk.*", "main.*"]), rtol=1e-12)
    whole = observe(net, loss, brier, TRAIN, VALIDATION, params="*")
    np.testing.assert_allclose(seen.features, whole.features, rtol=1e-12)
    assert seen.gram[1, 1] < whole.gram[1, 1]
    assert seen.gram[-1, -1] == pytest.approx(whole.gram[-1, -1], rel=1e-12)


def test_selection_decides_by_the_metric_or_the_error_on_other_examples():
    net, loss, other = make_net(), make_loss(), make_data(7, 3, seed=9)
    plain = observe(net, loss, brier, TRAIN, VALIDATION)
    on_other = observe(net, loss, brier, TRAIN, other)
    seen = observe(net, loss, brier, TRAIN, VALIDATION, selection=other)
    assert (seen.error, seen.metric) == (plain.error, pytest.approx(on_other.error, rel=1e-12))
    np.testing.assert_array_equal(seen.gram, plain.gram)
    by_metric = observe(net, loss, brier, TRAIN, VALIDATION, metric=log_loss, selection=other)
    expected = observe(net, loss, brier, TRAIN, other, metric=log_loss)
    assert by_metric.metric == pytest.approx(expected.metric, rel=1e-12)
    with pytest.raises(InvalidInput, match="`selection` must be a loader"):
        observe(net, loss, brier, TRAIN, VALIDATION, selection=iter(other))


def test_blocks_of_parameters_do_not_show(monkeypatch):
    """A gram taken 7 parameters at a time is that of all at once."""
    net, loss = make_net(), make_loss()
    whole = observe(net, loss, brier, TRAIN, VALIDATION)
    monkeypatch.setattr("tuneloss.torch.terms.columns.BLOCK", 7)
    assert_same(observe(net, loss, brier, TRAIN, VALIDATION), whole, rtol=1e-12)


class FrobeniusNorm(GroupPenalty):
    """No sum over entries, and without a slope."""

    def value(self, x):
        return x.norm()


class Coupled(Penalty):
    """One weight, of a product over all parameters."""

    def total(self, params, weights):
        return weights[0] * torch.stack([params[name].square().sum() for name in self.members(params)]).prod()


class HalfL2(L2):
    """What it inherits from L2 as its slope is not its slope."""

    def total(self, params, weights):
        return super().total(params, weights) / 2


class Quartic(L2):
    def value(self, x):
        return x.pow(4).sum()


class SaysItIsEntrywise(HalfL2):
    """Its value and slope are those of L2, its total is another one."""

    entrywise = True


class OtherHinges(ConvexPiecewiseLinear):
    def total(self, params, weights):
        return 3 * super().total(params, weights)


def of_matrices(formula):
    return lambda net: [lambda: formula(matrices(net))]


OWN_PENALTIES = {
    "norm": (FrobeniusNorm(), of_matrices(lambda ms: sum(p.norm() for p in ms))),
    "coupled": (Coupled(), of_matrices(lambda ms: ms[0].square().sum() * ms[1].square().sum())),
    "another total": (HalfL2(), of_matrices(lambda ms: sum(p.square().sum() for p in ms) / 2)),
    "another value": (Quartic(), of_matrices(lambda ms: sum(p.pow(4).sum() for p in ms))),
    "said entrywise": (SaysItIsEntrywise(), of_matrices(lambda ms: sum(p.square().sum() for p in ms) / 2)),
    "other hinges": (OtherHinges(KNOTS), lambda net: [lambda h=h: 3 * h() for h in hinges(KNOTS, matrices(net))]),
    "by group": (
        FrobeniusNorm(groups={"first": "0.*", "last": "3.weight"}),
        lambda net: [lambda: net[0].weight.norm() + net[0].bias.norm(), lambda: net[3].weight.norm()],
    ),
}


@pytest.mark.parametrize("params", [None, "3.*"])
@pytest.mark.parametrize("own", OWN_PENALTIES)
def test_a_penalty_of_ones_own_is_observed_by_autograd(own, params, monkeypatch):
    """Whatever it inherits, and though our penalties are taken 7 parameters at a time."""
    monkeypatch.setattr("tuneloss.torch.terms.columns.BLOCK", 7)
    net = make_net()
    penalty, formulas = OWN_PENALTIES[own]
    seen = observe(
        net, make_loss({"fit": log_loss, "l2": L2(), "own": penalty}), brier, TRAIN, VALIDATION, params=params
    )
    rows = None if params is None else list(net[3].parameters())
    right = dense(net, {"fit": log_loss}, [penalty_values(net)[1], *formulas(net)], brier, TRAIN, VALIDATION, rows)
    assert_equals(seen, right)
    assert (seen.features > 0).all()


class Smooth(GroupPenalty):
    """A sum over entries that says so: its slope is taken block by block."""

    entrywise, sizes = True, ()

    def value(self, x):
        self.sizes = {*self.sizes, len(x)}
        return (x.square() + 1).sqrt().sum()


def test_a_penalty_of_ones_own_that_is_entrywise_is_taken_block_by_block(monkeypatch):
    monkeypatch.setattr("tuneloss.torch.terms.columns.BLOCK", 7)
    net, penalty = make_net(), Smooth()
    seen = observe(net, make_loss({"fit": log_loss, "own": penalty}), brier, TRAIN, VALIDATION)
    penalties = [lambda: sum((p.square() + 1).sqrt().sum() for p in matrices(net))]
    assert_equals(seen, dense(net, {"fit": log_loss}, penalties, brier, TRAIN, VALIDATION))
    assert max(penalty.sizes) == 7


def test_a_subset_of_parameters_is_a_subset_of_rows():
    """Of the jacobian and the gradient; values are as of the whole model."""
    net, loss = make_net(), make_loss()
    expected = dense(net, PLAIN, penalty_values(net), brier, TRAIN, VALIDATION, params=list(net[3].parameters()))
    for params in ("3.*", ["3.weight", "3.bias"], lambda name, p: name.startswith("3.")):
        assert_equals(observe(net, loss, brier, TRAIN, VALIDATION, params=params), expected)


def test_tied_and_frozen_parameters():
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3)).double()
    net[2].weight = net[0].weight
    net[3].weight.requires_grad_(False)
    seen = observe(net, make_loss(), brier, TRAIN, VALIDATION)
    assert_equals(seen, dense(net, PLAIN, penalty_values(net), brier, TRAIN, VALIDATION))


def test_sparse_gradients_count_as_dense_ones():
    def make(sparse):
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(10, 4, sparse=sparse), nn.Flatten(), nn.Linear(8, 3)).double()

    data = [(torch.randint(0, 10, (n, 2)), torch.randint(0, 3, (n,))) for n in (3, 4)]
    one, other = (observe(make(sparse), make_loss(), brier, data, data) for sparse in (True, False))
    assert_same(one, other, rtol=1e-12)


@pytest.mark.parametrize(("kind", "width"), [(nn.Embedding, 8), (nn.EmbeddingBag, 4)])
def test_embeddings_with_a_largest_norm_are_left_as_they_were(kind, width):
    """Data terms and the error see shrunk rows, penalties the weights as they are: as a training step sees them."""
    torch.manual_seed(0)
    net = nn.Sequential(kind(10, 4, max_norm=0.5), nn.Flatten(), nn.Linear(width, 3)).double()
    data = [(torch.randint(0, 9, (n, 2)), torch.randint(0, 3, (n,))) for n in (3, 4, 5)]
    train, validation = data[:2], data[1:]
    shrunk = copy.deepcopy(net)
    for x, _ in data:
        shrunk(x)
    shrunk[0].max_norm = None
    l2_column = [2 * p.detach() if p.ndim >= 2 else torch.zeros_like(p) for p in net.parameters()]
    before = world(net)
    loss = make_loss({"fit": log_loss, "l2": L2()})
    seen = observe(net, loss, brier, train, validation)
    assert_untouched(before, net)
    linear = [lambda: sum((p * g).sum() for p, g in zip(shrunk.parameters(), l2_column, strict=True))]
    error, features, gram = dense(shrunk, {"fit": log_loss}, linear, brier, train, validation)
    assert_equals(seen, (error, [features[0], sum(p.square().sum().item() for p in matrices(net))], gram))
    assert_exactly(observe(net, loss, brier, train, validation), seen)


def test_a_loss_of_penalties_only():
    net = make_net()
    seen = observe(net, LinearLoss({"l2": L2()}, {"l2": 1.0}), brier, TRAIN, VALIDATION)
    assert_equals(seen, dense(net, {}, penalty_values(net)[1:2], brier, TRAIN, VALIDATION))


# --- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [True, False])
def test_the_error_is_of_eval_mode_and_terms_are_of_train_mode(mode):
    """Whatever mode the model is in: batch norm by its batch in terms, by its statistics in the error."""
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    net(TRAIN[2][0])  # statistics that differ from any batch's
    train = [TRAIN[0], TRAIN[1]]
    reference = copy.deepcopy(net)
    seen = observe(net.train(mode), make_loss(), brier, train, VALIDATION)
    expected = dense(reference, PLAIN, penalty_values(reference), brier, train, VALIDATION)
    # The statistics of the reference moved with its terms, before its error: take that from a fresh one.
    assert seen.features == pytest.approx(expected[1])
    np.testing.assert_allclose(seen.gram[:-1, :-1], expected[2][:-1, :-1], rtol=1e-9, atol=1e-12)
    net.eval()
    counts = [len(y) for _, y in VALIDATION]
    assert seen.error == pytest.approx(np.average([brier(net, b).item() for b in VALIDATION], weights=counts))


def test_layers_that_the_user_froze_in_eval_mode_stay_so():
    """A model in train mode with a batch norm in eval mode: that norm uses its statistics in terms too."""
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5).eval(), nn.Linear(5, 3)).double()
    seen = observe(net, make_loss(), brier, TRAIN, VALIDATION)
    np.testing.assert_allclose(
        seen.features[0], np.average([log_loss(net, b).item() for b in TRAIN], weights=[len(y) for _, y in TRAIN])
    )


# --- the model and the world are left as they were --------------------------------------------------------------------


def world(net, *loaders):
    """Everything that must not change."""
    return {
        "modes": [m.training for m in net.modules()],
        "parameters": [p.detach().clone() for p in net.parameters()],
        "grads": [(id(p.grad), None if p.grad is None else p.grad.clone()) for p in net.parameters()],
        "buffers": [(id(b), b.clone()) for b in net.buffers()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()],
        "requires": [p.requires_grad for p in net.parameters()],
        "torch": torch.get_rng_state(),
        "numpy": str(np.random.get_state()),  # noqa: NPY002
        "python": random.getstate(),
        "generators": [g.get_state() for ld in loaders if (g := getattr(ld, "generator", None)) is not None],
        "saved": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "gradients on": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


def assert_untouched(before, net, *loaders):
    after = world(net, *loaders)
    for what in before:
        if what in ("parameters", "grads", "buffers", "torch", "generators"):
            torch.testing.assert_close(after[what], before[what], rtol=0, atol=0, equal_nan=True, msg=what)
        else:
            assert after[what] == before[what], what


def random_loss():
    return make_loss({"fit": log_loss, "drop": Dropout(0.5), "noise": Augmented(noisy), "l2": L2()})


def shuffled(generator=None, batch_size=4):
    x, y = (torch.cat(parts) for parts in zip(*make_data(30, seed=3), strict=True))
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True, generator=generator, drop_last=True)


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(4)], ids=["torch's", "its own"])
@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_nothing_is_changed(generator, around):
    """Modes, gradients, buffers and random states, also where gradients are off."""
    net, train, validation = WithState(), shuffled(generator), shuffled()
    net.first.weight.grad = torch.ones_like(net.first.weight)
    expected = observe(net, random_loss(), brier, train, validation)
    with around():
        before = world(net, train, validation)
        seen = observe(net, random_loss(), brier, train, validation, metric=log_loss)
        assert_untouched(before, net, train, validation)
    np.testing.assert_array_equal(seen.gram, expected.gram)


def fails_from(call, failure):
    calls = iter(range(10**6))
    return lambda model, batch: failure(model, batch) if next(calls) >= call else log_loss(model, batch)


@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("where", ["term", "error"])
@pytest.mark.parametrize("kind", ["vector", "NaN", "raises"])
def test_nothing_is_changed_by_a_failure(where, kind, call):
    """At the first batch or a later one, of a term or of the error."""

    def failure(model, batch):
        value = model(batch[0])
        return {"vector": lambda: value.mean(1), "NaN": lambda: value.mean() * math.nan, "raises": lambda: 1 / 0}[
            kind
        ]()

    net, train, validation = WithState(), shuffled(torch.Generator()), shuffled()
    failing = fails_from(call, failure)
    loss = make_loss({"drop": Dropout(0.5), "fit": failing if where == "term" else log_loss})
    before = world(net, train, validation)
    expected = {
        "vector": (
            InvalidInput,
            f"must return a scalar tensor.*{'fit' if where == 'term' else 'error'}' returned shape",
        ),
        "NaN": (NotFinite, f"Values must be finite; '{'fit' if where == 'term' else 'the error'}' is nan on a batch"),
        "raises": (ZeroDivisionError, "division by zero"),
    }
    kind_of_error, message = expected[kind]
    with pytest.raises(kind_of_error, match=message) as caught:
        observe(net, loss, failing if where == "error" else brier, train, validation)
    assert_untouched(before, net, train, validation)
    assert caught.tb is not None  # alive until here: nothing waits for it to go


def test_buffers_of_terms_are_left_too():
    """A term that is a module may keep statistics of its own."""

    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, model, batch):
            self.seen += len(batch[1])
            return log_loss(model, batch)

    term = Running()
    observe(make_net(), make_loss({"fit": term}), brier, TRAIN, VALIDATION)
    assert term.seen == 0
    assert_untouched(world(term), term)


def test_an_observation_within_an_epoch_takes_nothing_from_live_workers():
    """The training loop meets every example once in each epoch, though the loader has one iterator."""
    x, y = make_data(40)[0]
    data = TensorDataset(x, y, torch.arange(40))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
    net, loss = make_net(), make_loss()
    for _ in range(2):
        met = []
        for number, batch in enumerate(loader):
            met += batch[2].tolist()
            if number in (2, 5):
                observe(net, loss, brier, loader, loader, batches=3)
        assert sorted(met) == list(range(40))


# --- common random numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(4)], ids=["torch's", "its own"])
def test_the_same_again(generator):
    """Though batches are shuffled, a part is taken, terms are random, and the world's random states move on."""
    net, loss, train = WithState(), random_loss(), shuffled(generator)
    seen = observe(net, loss, brier, train, VALIDATION, batches=0.5, draws=2)
    for _ in train:
        noisy(torch.zeros(1))
    assert_exactly(observe(net, loss, brier, train, VALIDATION, batches=0.5, draws=2), seen)
    other = observe(net, loss, brier, train, VALIDATION, batches=0.5, draws=2, seed=1)
    assert (other.features[:3] != seen.features[:3]).all()


def test_two_models_meet_the_same_numbers():
    """A model and its copy in other clothes: same masks, same noise, same batches."""
    net, loss = make_net(), random_loss()
    inside = Counted(copy.deepcopy(net))
    train = shuffled()
    assert_exactly(observe(net, loss, brier, train, VALIDATION), observe(inside, loss, brier, train, VALIDATION))


def test_draws_reduce_the_variance_and_keep_the_mean():
    """Over seeds, of the value of a dropout term: about 1/16 with 16 draws."""
    net, loss = make_net(), make_loss({"fit": log_loss, "drop": Dropout(0.5)})

    def values(draws):
        seen = [observe(net, loss, brier, TRAIN, VALIDATION[:1], draws=draws, seed=seed) for seed in range(30)]
        return np.array([o.features[1] for o in seen]), np.mean([o.gram[1, 1] for o in seen])

    (one, gram_of_one), (many, gram_of_many) = values(1), values(16)
    assert 1 / 40 < many.var() / one.var() < 1 / 6
    assert abs(one.mean() - many.mean()) < 4 * one.std() / 30**0.5
    assert gram_of_many < gram_of_one  # noise adds to the square of a gradient


def test_draws_do_not_change_plain_terms():
    net, loss = make_net(), random_loss()
    one, many = (observe(net, loss, brier, TRAIN, VALIDATION, draws=d) for d in (1, 3))
    plain = [0, 3, 4]
    np.testing.assert_array_equal(one.gram[np.ix_(plain, plain)], many.gram[np.ix_(plain, plain)])
    assert one.features[1] != many.features[1]


def test_a_callable_says_that_it_is_random():
    """Then it is drawn as often as `Dropout` is."""

    class Term:
        random, calls = True, 0

        def __call__(self, model, batch):
            self.calls += 1
            return log_loss(model, batch)

    term = Term()
    seen = observe(make_net(), make_loss({"fit": term}), brier, TRAIN[:1], VALIDATION, draws=5, merge=False)
    assert term.calls == 5
    assert seen.features[0] == pytest.approx(log_loss(make_net(), TRAIN[0]).item())


# --- how much is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "used"), [(2, 2), (0.5, 2), (0.01, 1), (99, 4), (1.0, 4), (None, 4)])
def test_a_part_of_the_training_batches(count, used):
    """Values and gram are those of the batches that are read, except for the noise that is removed from data terms."""
    net, loss = make_net(), make_loss()
    part = observe(net, loss, brier, TRAIN, VALIDATION, batches=count)
    right = observe(net, loss, brier, TRAIN[:used], VALIDATION)
    if used in (1, 4):  # of one batch the noise is unknown, of all it is none
        assert_exactly(part, right)
    assert part.error == right.error
    np.testing.assert_allclose(part.features, right.features, rtol=1e-12)


def test_a_part_of_the_validation_batches_is_for_the_gradient_only():
    """The error, and the metric, are always of all."""
    net, loss = make_net(), make_loss()
    whole = observe(net, loss, brier, TRAIN, VALIDATION, metric=log_loss)
    part = observe(net, loss, brier, TRAIN, VALIDATION, metric=log_loss, validation_batches=2)
    assert part.error == pytest.approx(whole.error, rel=1e-12)
    assert part.metric == pytest.approx(whole.metric, rel=1e-12)
    assert_equals(part, (part.error, *dense(net, PLAIN, penalty_values(net), brier, TRAIN, VALIDATION[:2])[1:]))


def test_the_metric_is_a_mean_over_examples_in_eval_mode():
    """It needs no gradient."""
    net = nn.Sequential(nn.Dropout(0.9), make_net())

    def wrong(model, batch):
        return (model(batch[0]).argmax(1) != batch[1]).double().mean()

    seen = observe(net, make_loss(), brier, TRAIN, VALIDATION, metric=wrong)
    x, y = (torch.cat(parts) for parts in zip(*VALIDATION, strict=True))
    assert seen.metric == pytest.approx(wrong(net.eval(), (x, y)).item())
    assert observe(net, make_loss(), brier, TRAIN, VALIDATION).metric is None


def test_small_batches_put_together_give_the_same(monkeypatch):
    """And cost fewer forwards: a trial and one for all, of the error and of the terms."""
    data, loss = make_data(*[2] * 20), make_loss()
    together, apart = Counted(make_net()), Counted(make_net())
    seen = observe(together, loss, brier, data, data)
    assert_same(observe(apart, loss, brier, data, data, merge=False), seen, rtol=1e-12)
    assert (together.forwards, apart.forwards) == (4, 40)
    monkeypatch.setattr(MODULE, "TOGETHER", 10)
    observe(bounded := Counted(make_net()), loss, brier, data, data)
    assert bounded.forwards == 6


def test_a_term_that_cannot_be_watched_is_not_put_together():
    """torch.func refuses the hooks that count what is saved."""

    def smoothness(model, batch):
        return torch.func.grad(lambda x: log_loss(model, (x, batch[1])))(batch[0]).square().mean()

    data, net = make_data(*[2] * 5), make_net()
    seen = observe(net, make_loss({"fit": log_loss, "smooth": smoothness}), brier, data, data)
    assert seen.features[1] == pytest.approx(np.mean([smoothness(net, batch).item() for batch in data]))


def test_room_bounds_how_many_are_put_together(monkeypatch):
    """With room for what four batches save, a forward sees at most four."""
    sizes = []
    net = make_net()
    net.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    data, loss = make_data(*[2] * 9), make_loss({"fit": log_loss})
    saved = saved_bytes(net, lambda batch: log_loss(net, batch), data[0])
    sizes.clear()
    monkeypatch.setattr(MODULE, "ROOM", 4 * saved)
    observe(net, loss, log_loss, data, data)
    assert sizes == [2, 8, 8, 2] * 2


def keep_weights(model, batch):
    """Log loss, and something of the parameters that takes 80 kB for any number of examples."""
    return log_loss(model, batch) + sum((p.sum() * torch.ones(2000)).square().sum() for p in model.parameters())


@pytest.mark.parametrize("term", [log_loss, keep_weights])
@pytest.mark.parametrize("batches", [0.5, 1, 3.5])
def test_room_is_measured_on_few_examples(monkeypatch, term, batches):
    """As many batches are merged as fit into the room, and a single one if none fits."""
    sizes = []
    net = make_net()

    def saved(n):
        with torch.enable_grad():
            return saved_bytes(net, lambda batch: term(net, batch), make_data(n)[0])

    room = saved(8) + (batches - 1) * (saved(16) - saved(8))
    monkeypatch.setattr(MODULE, "ROOM", room)
    net.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    observe(net, make_loss({"fit": term}), term, make_data(*[8] * 6), make_data(*[8] * 6))
    together = max(1, int(batches))
    assert sizes == [2, 4, *[8 * together] * (6 // together)] * 2


def test_one_trial_is_enough_if_everything_fits():
    """Two examples show it; where there is nothing to merge, there is no trial."""
    net, data = Counted(make_net()), make_data(*[8] * 6)
    observe(net, make_loss({"fit": log_loss}), log_loss, data, data)
    assert net.forwards == 4
    observe(alone := Counted(make_net()), make_loss({"fit": log_loss}), log_loss, data[:1], data[:1])
    assert alone.forwards == 2


def test_a_term_that_fails_on_few_examples_is_tried_on_the_batch():
    """Its values and gradients are those without merging, and batches are merged all the same."""

    def some(model, batch):
        if len(batch[0]) < 5:
            raise ValueError("at least five examples")
        return log_loss(model, batch)

    data, loss = make_data(*[8] * 6), make_loss({"fit": some})
    together, apart = Counted(make_net()), Counted(make_net())
    seen = observe(together, loss, some, data, data)
    assert_same(observe(apart, loss, some, data, data, merge=False), seen, rtol=1e-12)
    assert (together.forwards, apart.forwards) == (4, 12)


def test_an_error_of_a_term_on_every_batch_is_the_one_that_is_raised():
    def broken(model, batch):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        observe(make_net(), make_loss({"fit": broken}), log_loss, TRAIN, VALIDATION)


def test_a_batch_that_cannot_be_cut_is_observed_whole():
    class Pairs:
        def __init__(self, x, y):
            self.x, self.y = x, y

    def fit(model, batch):
        return log_loss(model, (batch[1].x, batch[1].y))

    data = [(x, Pairs(x, y)) for x, y in make_data(*[8] * 4)]
    net, loss = make_net(), make_loss({"fit": fit})
    assert_exactly(observe(net, loss, fit, data, data), observe(net, loss, fit, data, data, merge=False))


def test_trials_leave_random_numbers_as_they_were(monkeypatch):
    """An error that draws is the same with trials as without, if no batches fit together."""

    def noisy(model, batch):
        return log_loss(model, (batch[0] + torch.randn_like(batch[0]), batch[1]))

    monkeypatch.setattr(MODULE, "ROOM", 1)
    net, data = make_net(), make_data(*[8] * 3)
    tried, untried = (observe(net, make_loss(), noisy, data, data, merge=merge) for merge in (True, False))
    assert_exactly(tried, untried)


@pytest.mark.parametrize("statistics", [True, False])
def test_where_batch_norm_normalizes_by_the_batch_batches_stay_as_they_are(statistics):
    """In train mode always; in eval mode if it has no statistics of its own."""
    norm = nn.BatchNorm1d(6, track_running_stats=statistics).double()
    net = Counted(nn.Sequential(norm, make_net()))
    data = make_data(*[4] * 10)
    seen = observe(net, make_loss({"fit": log_loss}), log_loss, data, data)
    assert net.forwards == 10 + (2 if statistics else 10)
    assert seen.features[0] == pytest.approx(np.mean([log_loss(net, b).item() for b in data]))
    if not statistics:
        assert seen.error == pytest.approx(seen.features[0])


# --- dtypes, compilers ------------------------------------------------------------------------------------------------


def observe_in(dtype, net=None):
    net = make_net(dtype=dtype) if net is None else net
    train, validation = make_data(5, 3, 8, dtype=dtype), make_data(4, 7, seed=1, dtype=dtype)
    return observe(net, make_loss(), brier, train, validation)


def test_float32_agrees_with_float64():
    exact = observe_in(torch.float64)
    seen = observe_in(torch.float32)
    size = np.sqrt(np.diagonal(exact.gram))
    np.testing.assert_allclose(seen.gram / np.outer(size, size), exact.gram / np.outer(size, size), atol=1e-5)
    np.testing.assert_allclose(seen.features, exact.features, rtol=1e-5)
    assert seen.error == pytest.approx(exact.error, rel=1e-5)


def test_bfloat16_agrees_roughly_and_gives_a_true_gram():
    """Of the model as bfloat16 rounds it; positive semidefinite, since `Observation` checks that."""
    rounded = make_net(dtype=torch.bfloat16)
    exact = observe_in(torch.float64, copy.deepcopy(rounded).double())
    seen = observe_in(torch.bfloat16, rounded)
    size = np.sqrt(np.diagonal(exact.gram))
    np.testing.assert_allclose(seen.gram / np.outer(size, size), exact.gram / np.outer(size, size), atol=0.05)
    np.testing.assert_allclose(seen.features[2:], exact.features[2:], rtol=1e-12)  # penalties are exact


def test_under_autocast_it_agrees_roughly():
    exact = observe_in(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        seen = observe_in(torch.float32)
    size = np.sqrt(np.diagonal(exact.gram))
    np.testing.assert_allclose(seen.gram / np.outer(size, size), exact.gram / np.outer(size, size), atol=0.05)
    assert seen.error != exact.error


@pytest.mark.parametrize("how", ["wrapped", "in place", "a part"])
def test_a_compiled_model_is_observed_as_it_was_before(how):
    net, loss = make_net(), random_loss()
    torch._dynamo.reset()
    plain = nn.Sequential(net, nn.Identity()) if how == "a part" else net
    expected = observe(plain, loss, brier, TRAIN, VALIDATION)
    if how == "wrapped":
        compiled = torch.compile(net, backend="aot_eager")
    elif how == "in place":
        net.compile(backend="aot_eager")
        compiled = net
    else:
        compiled = nn.Sequential(torch.compile(net, backend="aot_eager"), nn.Identity())
    compiled(TRAIN[0][0]).sum().backward()  # compiled for good
    assert_exactly(observe(compiled, loss, brier, TRAIN, VALIDATION), expected)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["train", "validation"])
@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "must give at least one batch; found none"),
        (iter(TRAIN), "must be a loader that can be read from its start again and again"),
        ((batch for batch in TRAIN), "found a generator. Give what you iterate over"),
        ([(torch.zeros(0, 6).double(), torch.zeros(0).long())], "must have at least one example; found one with none"),
    ],
    ids=["empty", "iterator", "generator", "empty batch"],
)
def test_a_bad_loader_is_refused(which, loader, message):
    net = WithState()
    loaders = {"train": TRAIN[:3], "validation": VALIDATION} | {which: loader}
    before = world(net)
    with pytest.raises(InvalidInput, match=message):
        observe(net, make_loss(), brier, **loaders)
    assert_untouched(before, net)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": 0}, "`batches` must be a number of batches"),
        ({"validation_batches": 1.5}, "`validation_batches` must be a number of batches"),
        ({"draws": 0}, "`draws` must be at least 1; found 0"),
        ({"draws": 1.5}, "`draws` must be a whole number; found 1.5"),
        ({"seed": -1}, "`seed` must be at least 0; found -1"),
        ({"params": "encoder.*"}, r"`params` must select a parameter that is trained; found none among \['0.weight'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        observe(make_net(), make_loss(), brier, TRAIN, VALIDATION, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": 0}, "`batches` must be a number of batches"),
        ({"validation_batches": 1.5}, "`validation_batches` must be a number of batches"),
        ({"draws": 0}, "`draws` must be at least 1; found 0"),
        ({"seed": 0.5}, "`seed` must be a whole number; found 0.5"),
    ],
)
def test_options_are_checked_when_they_are_made(options, message):
    """Not at the first observation."""
    with pytest.raises(InvalidInput, match=message):
        ObserveOptions(**options)


def test_options_are_the_keywords_of_observe():
    """One object and flat keywords give the same observation."""
    options = ObserveOptions(batches=2, validation_batches=1, params="0.*", draws=2, merge=False, seed=3)
    loss = make_loss(PLAIN | {"drop": Dropout()})
    flat = observe(make_net(), loss, brier, TRAIN, VALIDATION, **vars(options))
    assert_exactly(observe_with(options, make_net(), loss, brier, TRAIN, VALIDATION)[0], flat)


ARGUMENTS = {"model": make_net(), "loss": make_loss(), "error": brier, "train": TRAIN, "validation": VALIDATION}


@pytest.mark.parametrize(
    ("swapped", "message"),
    [
        (
            ("model", "loss"),
            r"`loss` must be a LinearLoss; found a Sequential. The order is observe\(model, loss, error",
        ),
        (("loss", "error"), "`loss` must be a LinearLoss; found the function brier. The order is"),
        (("loss", "train"), "`loss` must be a LinearLoss; found a list. The order is"),
        (("model", "error"), "`model` must be a torch.nn.Module; found a function. Give the model that is trained"),
        (("model", "train"), "`model` must be a torch.nn.Module; found a list"),
        (("error", "train"), r"`error` must be a callable \(model, batch\) -> mean .*; found a list. Give e.g. lambda"),
        (("error", "validation"), r"`error` must be a callable \(model, batch\) -> mean .*; found a list"),
    ],
)
def test_swapped_arguments_are_refused(swapped, message):
    one, other = swapped
    with pytest.raises(InvalidInput, match=message):
        observe(**ARGUMENTS | {one: ARGUMENTS[other], other: ARGUMENTS[one]})


@pytest.mark.parametrize("which", ["train", "validation"])
def test_a_model_is_no_loader(which):
    """Though one can iterate over its layers."""
    with pytest.raises(InvalidInput, match=f"`{which}` must be a loader .*; found a Sequential"):
        observe(**ARGUMENTS | {which: make_net()})


@pytest.mark.parametrize("which", ["error", "metric"])
@pytest.mark.parametrize(
    ("function", "found"),
    [
        (nn.CrossEntropyLoss(), "a CrossEntropyLoss"),
        (nn.CrossEntropyLoss, "the class CrossEntropyLoss"),
        (F.cross_entropy, "the function cross_entropy"),
        (make_net(), "a Sequential"),
        (0.5, "a float"),
    ],
)
def test_what_takes_no_model_and_batch_is_refused(which, function, found):
    """As the losses of PyTorch, which take scores and labels."""
    with pytest.raises(
        InvalidInput, match=rf"`{which}` must be a callable \(model, batch\) .*; found {found}. Give e.g."
    ):
        observe(**ARGUMENTS | {which: function})


def test_an_error_may_be_a_module_of_ones_own():
    class Brier(nn.Module):
        def forward(self, model, batch):
            return brier(model, batch)

    assert_exactly(observe(**ARGUMENTS | {"error": Brier()}), observe(**ARGUMENTS))


def test_a_model_without_trained_parameters_is_refused():
    with pytest.raises(InvalidInput, match="must have parameters that are trained"):
        observe(make_net().requires_grad_(False), make_loss(), brier, TRAIN, VALIDATION)


def independent(model, batch):
    return batch[0].mean()


def of_another_model(model, batch):
    return independent(model, batch) * torch.ones((), requires_grad=True)


@pytest.mark.parametrize("term", [independent, of_another_model, lambda m, b: log_loss(m, b).detach()])
def test_a_term_or_error_that_does_not_depend_on_the_parameters_is_refused(term):
    net = WithState()
    before = world(net)
    with pytest.raises(InvalidInput, match="must depend on parameters that are trained; 'other' does not"):
        observe(net, make_loss({"fit": log_loss, "other": term}), brier, TRAIN[:3], VALIDATION)
    with pytest.raises(InvalidInput, match="must depend on parameters that are trained; 'the error' does not"):
        observe(net, make_loss(), term, TRAIN[:3], VALIDATION)
    assert_untouched(before, net)


def test_a_term_without_rows_in_some_batches_is_0_there():
    """It returns a constant where no row has its label. That is a mean like any other, with a gradient of 0."""

    def labelled(model, batch):
        return log_loss(model, batch) if batch[1][0] > 0 else torch.zeros(())

    def as_product(model, batch):
        return log_loss(model, batch) * (batch[1][0] > 0)

    data = make_data(*[4] * 12)
    assert {bool(batch[1][0] > 0) for batch in data} == {True, False}
    one, other = (
        observe(make_net(), make_loss({"fit": log_loss, "other": term}), brier, data, VALIDATION, merge=False)
        for term in (labelled, as_product)
    )
    np.testing.assert_allclose(one.gram, other.gram, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(one.features, other.features, rtol=1e-6)


def test_of_a_subset_of_parameters_a_term_may_be_independent():
    """Its column is 0."""
    net = make_net()
    terms = {"fit": log_loss, "first": lambda model, batch: model[0](batch[0]).square().mean()}
    seen = observe(net, make_loss(terms), brier, TRAIN, VALIDATION, params="3.*")
    np.testing.assert_array_equal(seen.gram[1], 0.0)
    assert seen.features[1] > 0


@pytest.mark.parametrize("metric", ["plain", "curvature"])
def test_params_that_the_error_does_not_use_are_refused(metric):
    """Next to others that it uses, they may be selected."""
    net = TwoHeads()
    terms = {"fit": log_loss, "aux": lambda model, batch: model.aux(model.trunk(batch[0])).square().mean()}
    before = world(net)
    with pytest.raises(
        InvalidInput,
        match=r"`params` must select a parameter on which the error depends; found none among the selected "
        r"\['aux.weight', 'aux.bias'\]. Leave `params` out, to select all on which it depends, or select other ones.",
    ):
        observe(net, make_loss(terms), brier, TRAIN, VALIDATION, params="aux.*", gradient_metric=metric)
    assert_untouched(before, net)
    observe(net, make_loss(terms), brier, TRAIN, VALIDATION, params=["aux.*", "main.bias"])


def test_an_infinite_gradient_of_a_finite_value_is_refused():
    """A square root at 0, in the term or in the error."""

    def root(model, batch):
        return (model(batch[0]) * 0).sum().abs().sqrt()

    with pytest.raises(NotFinite, match=r"Gradients must be finite; those of \['root'\] are not, though their values"):
        observe(make_net(), make_loss({"fit": log_loss, "root": root}), brier, TRAIN, VALIDATION)
    with pytest.raises(NotFinite, match=r"Gradients must be finite; those of \['the error'\] are not"):
        observe(make_net(), make_loss(), root, TRAIN, VALIDATION)


def test_a_metric_that_is_no_number_is_refused():
    with pytest.raises(NotFinite, match="'the metric' is nan"):
        observe(make_net(), make_loss(), brier, TRAIN, VALIDATION, metric=lambda m, b: torch.tensor(math.nan))
    with pytest.raises(InvalidInput, match=r"'metric' returned shape \(2,\)"):
        observe(make_net(), make_loss(), brier, TRAIN, VALIDATION, metric=lambda m, b: [0.5, 0.5])
    with pytest.raises(InvalidInput, match="'metric' returned a complex number"):
        observe(make_net(), make_loss(), brier, TRAIN, VALIDATION, metric=lambda m, b: torch.tensor(1j))


@pytest.mark.parametrize("value", [None, "0.5", {"accuracy": 0.5}, 1j, [[0.5], []]], ids=lambda value: str(value))
def test_a_metric_that_cannot_be_a_number_is_refused(value):
    """As one that prints the number and forgets to return it."""
    found = f"must return a number, a mean over the batch; found a {type(value).__name__}. Return a number, or leave"
    with pytest.raises(InvalidInput, match=found):
        observe(make_net(), make_loss(), brier, TRAIN, VALIDATION, metric=lambda m, b: value)


def test_a_metric_may_be_a_python_number():
    assert observe(make_net(), make_loss(), brier, TRAIN, VALIDATION, metric=lambda m, b: 0.5).metric == 0.5


def test_knots_without_a_place_are_refused():
    with pytest.raises(InvalidInput, match="must have positions before it is used"):
        observe(make_net(), make_loss({"fit": log_loss, "r": ConvexPiecewiseLinear(3)}), brier, TRAIN, VALIDATION)


def test_names_that_differ_from_the_box_are_refused():
    loss = LinearLoss([lambda model, batch: {"fit": log_loss(model, batch)}], {"fot": 1.0})
    with pytest.raises(InvalidInput, match=r"unknown \['fit'\]. Change the box or the terms"):
        observe(make_net(), loss, brier, TRAIN, VALIDATION)


def test_nothing_of_a_pass_stays_in_memory():
    """Every tensor that an observation makes is freed with it, without help of the garbage collector."""

    def tensors():
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    net, loss = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Sigmoid(), nn.Linear(5, 3)).double(), random_loss()
    observe(net, loss, brier, TRAIN, VALIDATION)
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        for _ in range(3):
            observe(net, loss, brier, TRAIN, VALIDATION)
        assert tensors() == before
    finally:
        gc.enable()
