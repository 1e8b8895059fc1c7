"""The gram in the curvature metric against dense matrices, and the rule that chooses its damping.

These tests reach gauss_newton.py and lanczos.py too.
"""

import copy
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.torch.reference import log_loss, make_data
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch import L1, L2, Augmented, ConvexPiecewiseLinear, Dropout, LinearLoss, OnlineTuner, observe
from tuneloss.torch.batch import rows_of
from tuneloss.torch.observing import ObserveOptions, curvature
from tuneloss.torch.observing.gauss_newton import GaussNewton, evaluate, l2_diagonal
from tuneloss.torch.observing.lanczos import Ritz, block_lanczos
from tuneloss.torch.observing.sampling_noise import Contrast
from tuneloss.tuning import OnlinePolicy

TRAIN, VALIDATION = make_data(12, 12), make_data(15, 15, seed=1)
DAMPINGS = (1.0, 0.1, 0.01, 1e-3, 1e-4)


def make_mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def make_loss(**weights):
    terms = {"fit": log_loss, "flat": lambda model, batch: model(batch[0]).square().mean(), "l1": L1(), "l2": L2()}
    loss = LinearLoss(terms, {"fit": (0.5, 2), "flat": (0, 1), "l1": (0, 1), "l2": (0, 1)})
    loss.set_weights({"fit": 1.0} | weights)
    return loss


def jacobian(net, x):
    """The jacobian (N, C, n) of the outputs."""
    params = dict(net.named_parameters())
    parts = torch.func.jacrev(lambda ps: torch.func.functional_call(net, ps, (x,)))(params)
    return torch.cat([parts[name].flatten(2) for name in params], dim=2).detach()


def dense_matrix(net, loss, batches):
    """The Gauss-Newton matrix: softmax's Hessian diag(p) - pp' for log loss, 2I/C for the mean square, 2w for L2."""
    w = dict(zip(loss.names, loss.weights.tolist(), strict=True))  # the very numbers of the float32 buffer
    x = torch.cat([batch[0] for batch in batches])
    jac, p = jacobian(net, x), torch.softmax(net(x), dim=1).detach()
    hess = (
        w["fit"] * (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)) + w["flat"] * 2 * torch.eye(3).double() / 3
    )
    matrices = torch.cat([torch.full_like(q, float(q.ndim > 1)).flatten() for q in net.parameters()]).detach()
    return torch.einsum("nci,ncd,ndj->ij", jac, hess, jac) / len(x) + 2 * w["l2"] * torch.diag(matrices)


def dense_gradients(net, loss, train, validation):
    """The gradients (k + 2, n) of the terms, and of the error on each of two batches."""
    params = list(net.parameters())
    ms = [p for p in params if p.ndim > 1]

    def mean(term):
        return sum(term(net, batch) for batch in train) / len(train)  # batches of one size

    values = [mean(term.term) for term in loss.data_terms]
    values += [sum(m.abs().sum() for m in ms), sum(m.square().sum() for m in ms)]
    values += [log_loss(net, batch) for batch in validation]
    gradients = [torch.autograd.grad(value, params, materialize_grads=True) for value in values]
    return torch.stack([torch.cat([g.flatten() for g in gradient]) for gradient in gradients])


def inverse_gram(matrix, rows, damping):
    return damping * rows @ torch.linalg.solve(matrix + damping * torch.eye(len(matrix)).double(), rows.T)


def use_examples(monkeypatch, n):
    """Let the Gauss-Newton matrix have about n examples."""
    for module in (curvature, sys.modules[observe.__module__]):
        monkeypatch.setattr(module, "EXAMPLES", n)


def in_metric(monkeypatch, damping, **options):
    """Observe with a damping that is given instead of chosen, and enough steps for all directions."""
    monkeypatch.setattr(curvature, "STEPS", 12)
    use_examples(monkeypatch, 24)  # all of TRAIN
    monkeypatch.setattr(curvature, "trusted_damping", lambda ritz: damping)
    net, loss = make_mlp(), make_loss(flat=0.3, l2=0.02)
    return observe(net, loss, log_loss, TRAIN, VALIDATION, gradient_metric="curvature", **options).gram


# --- against dense matrices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [10.0, 0.1, 1e-3])
def test_the_gram_is_that_of_the_dense_inverse(monkeypatch, damping):
    """F by jacrev and closed-form Hessians of the outputs; the error's gradient is the mean of the halves'."""
    net, loss = make_mlp(), make_loss(flat=0.3, l2=0.02)
    rows = dense_gradients(net, loss, TRAIN, VALIDATION)
    rows = torch.cat([rows[:-2], rows[-2:].mean(dim=0, keepdim=True)])
    expected = inverse_gram(dense_matrix(net, loss, TRAIN), rows, damping).numpy()
    gram = in_metric(monkeypatch, damping)
    np.testing.assert_allclose(gram, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_halves_of_one_batch_are_as_two_batches(monkeypatch):
    """The gradient of the error is that of all examples, however they are split."""
    (x0, y0), (x1, y1) = VALIDATION
    net, loss = make_mlp(), make_loss(flat=0.3, l2=0.02)
    apart = in_metric(monkeypatch, 0.1)
    together = [(torch.cat([x0, x1]), torch.cat([y0, y1]))]
    one = observe(net, loss, log_loss, TRAIN, together, gradient_metric="curvature").gram
    np.testing.assert_allclose(one, apart, atol=1e-10)


def test_as_the_damping_grows_the_gram_becomes_the_plain_one(monkeypatch):
    plain = observe(make_mlp(), make_loss(flat=0.3, l2=0.02), log_loss, TRAIN, VALIDATION).gram
    far = [np.abs(in_metric(monkeypatch, 10.0**d) - plain).max() for d in (2, 4, 6)]
    assert far[2] < 1.1e-2 * far[1] < 1.1e-4 * 1.1 * far[0]
    np.testing.assert_allclose(in_metric(monkeypatch, 1e12), plain, rtol=1e-9, atol=1e-12)


def test_the_noise_of_sampled_batches_is_subtracted_as_in_the_plain_gram(monkeypatch):
    """Much damping changes nothing; with less, a part of it is subtracted, and of no noise nothing."""
    net, loss, train = make_mlp(), make_loss(flat=0.3), make_data(*[10] * 16)
    monkeypatch.setattr(curvature, "STEPS", 12)
    monkeypatch.setattr(curvature, "trusted_damping", lambda ritz: 1e12)
    plain = observe(net, loss, log_loss, train, VALIDATION, batches=9).gram
    curved = observe(net, loss, log_loss, train, VALIDATION, batches=9, gradient_metric="curvature").gram
    np.testing.assert_allclose(curved, plain, rtol=1e-8, atol=1e-10)
    monkeypatch.setattr(curvature, "trusted_damping", lambda ritz: 0.1)
    corrected = observe(net, loss, log_loss, train, VALIDATION, batches=9, gradient_metric="curvature").gram
    monkeypatch.setattr(curvature, "_noise_row", lambda look: torch.zeros(0, 43).double())
    as_it_is = observe(net, loss, log_loss, train, VALIDATION, batches=9, gradient_metric="curvature").gram
    assert (np.diag(corrected)[:2] < np.diag(as_it_is)[:2]).all()
    np.testing.assert_allclose(corrected[2:, 2:], as_it_is[2:, 2:], rtol=1e-3)


@pytest.mark.parametrize("parts", [4, 5])
def test_a_contrast_of_equal_parts_is_0_and_an_unpaired_part_is_left_out(parts):
    contrast, gradient = Contrast(np.random.default_rng(0)), [torch.ones(3), None]
    for part in range(parts):
        for n in (10, 20):
            contrast.add("term", gradient, n)
        contrast.end_part(30)
        assert part == 0 or not contrast.total[0].any()
    contrast.add("term", [2 * torch.ones(3), None], 30)
    contrast.end_part(30)
    assert bool(contrast.total[0].any()) == (parts == 5)


def test_a_product_of_linear_least_squares_is_that_with_the_inputs():
    """F = 2 X'X / n, whatever the parameters."""
    torch.manual_seed(0)
    net, x, y = nn.Linear(5, 1, bias=False).double(), torch.randn(30, 5).double(), torch.randn(30, 1).double()
    loss = LinearLoss({"fit": lambda model, batch: F.mse_loss(model(batch[0]), batch[1])}, {"fit": 1.0})
    matrix = GaussNewton(dict(net.named_parameters()), {})
    matrix.parts.append(evaluate(net, loss, loss.data_terms, (x, y), matrix.params))
    rows = torch.randn(4, 5).double()
    expected = 2 * x.T @ x / 30
    torch.testing.assert_close(matrix.product(rows), rows @ expected)
    torch.testing.assert_close(matrix.quadratic(rows), rows @ expected @ rows.T)


def test_weights_enter_linearly_and_l2_on_the_diagonal():
    net = make_mlp()
    params = dict(net.named_parameters())
    n = sum(p.numel() for p in params.values())

    def matrix_of(**weights):
        loss = make_loss(**weights)
        matrix = GaussNewton(params, l2_diagonal(loss, params))
        matrix.parts.append(evaluate(net, loss, loss.data_terms, TRAIN[0], matrix.params))
        return matrix.product(torch.eye(n).double())

    base = matrix_of()
    torch.testing.assert_close(matrix_of(fit=2.0, flat=0.4) - base, base + 2 * (matrix_of(flat=0.2) - base))
    ridge = torch.cat([torch.full((p.numel(),), 0.06 * (p.ndim > 1)) for p in params.values()]).double()
    torch.testing.assert_close(matrix_of(l2=0.03) - base, torch.diag(ridge))
    torch.testing.assert_close(matrix_of(l1=0.5), base)
    loss = make_loss(fit=1.5, flat=0.1, l2=0.01)
    torch.testing.assert_close(matrix_of(fit=1.5, flat=0.1, l2=0.01), dense_matrix(net, loss, TRAIN[:1]))


def test_terms_are_drawn_with_the_right_expectation():
    """Plain terms come together, a random one alone; what is drawn counts more often, so on average with its weight."""
    terms = {"fit": log_loss, "flat": lambda model, batch: model(batch[0]).square().mean()}
    terms |= {f"copy {i}": Augmented(lambda x: x) for i in range(3)}
    weights = dict(zip(terms, [0.1, 0.2, 0.0, 0.3, 0.4], strict=True))
    loss = LinearLoss(terms, dict.fromkeys(terms, (0.0, 1.0)) | {"fit": (0.1, 1.0)}, weights=weights)
    counts = dict.fromkeys(terms, 0.0)
    for seed in range(4000):
        drawn, times = curvature._drawn_terms(loss, np.random.default_rng(seed))
        names = [name for term in drawn for name in term.names]
        assert names in (["fit", "flat"], ["copy 1"], ["copy 2"])
        assert times * sum(weights[name] for name in names) == pytest.approx(1.0)  # the sum of all weights
        for name in names:
            counts[name] += times / 4000
    assert counts.pop("copy 0") == 0.0
    np.testing.assert_allclose(list(counts.values()), 1.0, atol=0.1)


def test_what_is_drawn_stands_for_all_terms(monkeypatch):
    """Terms with the same values give the same matrix, whichever of them is drawn."""
    copies = {f"copy {i}": Augmented(lambda x: x) for i in range(4)}
    many = LinearLoss(copies, dict.fromkeys(copies, (0.1, 1.0)), weights=[0.1, 0.2, 0.3, 0.4])
    one = LinearLoss({"copy 0": Augmented(lambda x: x)}, {"copy 0": 1.0})
    monkeypatch.setattr(curvature, "trusted_damping", lambda ritz: 0.1)
    monkeypatch.setattr(curvature, "STEPS", 12)
    options = {"gradient_metric": "curvature", "merge": False}
    grams = [observe(make_mlp(), loss, log_loss, make_data(20), VALIDATION, **options).gram for loss in (many, one)]
    np.testing.assert_allclose(grams[0][np.ix_([0, -1], [0, -1])], grams[1], rtol=1e-5)


@pytest.mark.parametrize("n", [3, 9, 30])
def test_lanczos_is_exact_on_an_invariant_space(n):
    """Also if vectors depend on each other, or there are fewer directions than vectors."""
    torch.manual_seed(n)
    factor = torch.randn(n, n).double()

    class Dense:
        matrix = factor @ factor.T

        def product(self, rows):
            return rows @ self.matrix

        def quadratic(self, rows):
            return rows @ self.matrix @ rows.T

    rows = torch.randn(4, n).double()
    rows[3] = rows[0] - rows[1]
    ritz = block_lanczos(Dense(), rows, steps=12)
    assert ritz.largest == pytest.approx(float(torch.linalg.eigvalsh(Dense.matrix)[-1]))
    for damping in (10.0, 0.1):
        torch.testing.assert_close(ritz.gram(damping), inverse_gram(Dense.matrix, rows, damping))


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_halves_that_agree_allow_the_least_damping_and_noise_allows_none():
    values = torch.tensor([1e-6, 1.0, 10.0], dtype=torch.float64)
    alike = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.1, 0.9]], dtype=torch.float64)
    assert curvature.trusted_damping(Ritz(values, alike)) == pytest.approx(1e-4 * 10)
    opposite = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.1]], dtype=torch.float64)
    assert curvature.trusted_damping(Ritz(values, opposite)) is None
    noise_in_flat_directions = torch.tensor([[0.3, 0.0, 3.0], [-0.3, 0.0, 3.0]], dtype=torch.float64)
    assert 1e-4 * 10 < curvature.trusted_damping(Ritz(values, noise_in_flat_directions)) <= 10
    assert curvature.trusted_damping(Ritz(torch.zeros(3, dtype=torch.float64), alike)) is None


def test_random_labels_give_the_plain_gram_and_equal_halves_another():
    """Of a validation set without signal nothing but noise would be amplified."""
    net, loss = make_mlp(), make_loss()
    noise = torch.Generator().manual_seed(5)
    x = torch.randn(60, 6, generator=noise).double()
    chance = torch.softmax(net(x), dim=1).detach().multinomial(1, generator=noise)[:, 0]  # its gradient has mean 0
    halves = [(x[:30], chance[:30]), (x[30:], chance[30:])]
    plain = observe(net, loss, log_loss, TRAIN, halves).gram
    curved = observe(net, loss, log_loss, TRAIN, halves, gradient_metric="curvature").gram
    np.testing.assert_allclose(curved, plain, rtol=1e-12)
    twice = [VALIDATION[0], VALIDATION[0]]
    plain = observe(net, loss, log_loss, TRAIN, twice).gram
    curved = observe(net, loss, log_loss, TRAIN, twice, gradient_metric="curvature").gram
    assert curved[-1, -1] < 0.9 * plain[-1, -1]


def test_values_are_those_of_the_plain_observation():
    net, loss = make_mlp(), make_loss()
    plain = observe(net, loss, log_loss, TRAIN, VALIDATION, metric=log_loss)
    curved = observe(net, loss, log_loss, TRAIN, VALIDATION, metric=log_loss, gradient_metric="curvature")
    assert curved.error == pytest.approx(plain.error, rel=1e-12)
    assert curved.metric == pytest.approx(plain.metric, rel=1e-12)
    np.testing.assert_allclose(curved.features, plain.features, rtol=1e-12)


# --- with models and loaders of all kinds -----------------------------------------------------------------------------


class WithState(nn.Module):
    """A convolution, batch norm, dropout and an embedding with a largest norm; it returns a dict."""

    def __init__(self):
        super().__init__()
        self.look = nn.Embedding(6, 6, max_norm=0.5)
        self.conv, self.norm, self.drop = nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.last = nn.Linear(12, 3)
        self.double()

    def forward(self, x):
        x = x + self.look(torch.arange(len(x)) % 6)
        return {"scores": self.last(self.drop(self.norm(self.conv(x.unsqueeze(1)))).flatten(1))}


def scores_loss(model, batch):
    return F.cross_entropy(model(batch[0])["scores"], batch[1])


def test_nothing_of_the_model_changes():
    torch.manual_seed(0)
    net = WithState()
    net.norm.eval()
    net.last.weight.grad = torch.ones_like(net.last.weight)
    terms = {"fit": scores_loss, "drop": Dropout(0.5, scores_loss), "l2": L2()}
    loss = LinearLoss(terms, {"fit": 1.0, "drop": (0, 1), "l2": (0, 1)}, weights=[1.0, 0.5, 0.01])
    before, modes = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    generator = torch.get_rng_state()
    one, other = (observe(net, loss, scores_loss, TRAIN, VALIDATION, gradient_metric="curvature") for _ in range(2))
    assert one.to_dict() == other.to_dict()
    assert torch.equal(torch.get_rng_state(), generator)
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(net.last.weight.grad, torch.ones_like(net.last.weight))
    assert net.conv.weight.grad is None
    assert not net._forward_hooks


def test_a_part_of_the_parameters_gives_their_block(monkeypatch):
    """F is that of these parameters alone, as if the others were constants."""
    net, loss = make_mlp(), make_loss(flat=0.3, l2=0.02)
    inside = torch.cat([torch.full((p.numel(),), name.startswith("2.")) for name, p in net.named_parameters()])
    rows = dense_gradients(net, loss, TRAIN, VALIDATION)[:, inside]
    rows = torch.cat([rows[:-2], rows[-2:].mean(dim=0, keepdim=True)])
    expected = inverse_gram(dense_matrix(net, loss, TRAIN)[inside][:, inside], rows, 0.1).numpy()
    np.testing.assert_allclose(in_metric(monkeypatch, 0.1, params="2.*"), expected, atol=1e-9)


def test_hinges_are_dense_columns(monkeypatch):
    """L1 is the sum of two hinges at 0, in every metric."""
    monkeypatch.setattr(curvature, "trusted_damping", lambda ritz: 0.1)
    terms = {"fit": log_loss, "l1": L1(), "r": ConvexPiecewiseLinear([0.0])}
    loss = LinearLoss(terms, {"fit": 1.0, "l1": (0, 1), "r": (0, 1)})
    gram = observe(make_mlp(), loss, log_loss, TRAIN, VALIDATION, gradient_metric="curvature").gram
    np.testing.assert_allclose(gram[1], gram[2] + gram[3], atol=1e-10)


def test_large_batches_are_thinned(monkeypatch):
    """The matrix is that of every other example if a batch has twice as many as are needed."""
    monkeypatch.setattr(curvature, "EXAMPLES", 20)
    train = make_data(40)
    seen = []
    original = curvature.evaluate
    monkeypatch.setattr(curvature, "evaluate", lambda *args: seen.append(len(args[3][0])) or original(*args))
    observe(make_mlp(), make_loss(), log_loss, train, VALIDATION, gradient_metric="curvature")
    observe(make_mlp(), make_loss(), log_loss, train, VALIDATION, gradient_metric="curvature", merge=False)
    assert seen == [20, 40]


def test_enough_batches_are_used_and_no_more(monkeypatch):
    """About EXAMPLES examples: batches are added as long as that comes nearer to it."""
    use_examples(monkeypatch, 25)
    for sizes, used in (((10, 10, 10, 10), 30), ((16, 16), 32), ((20, 8), 28), ((20, 12), 20), ((4, 4), 8)):
        seen = []
        net = make_mlp()

        def term(model, batch, seen=seen):
            seen.append(len(batch[0]))
            return log_loss(model, batch)

        loss = LinearLoss({"fit": term}, {"fit": 1.0})
        observe(net, loss, log_loss, make_data(*sizes), VALIDATION, gradient_metric="curvature")
        assert seen[-1] == used


def test_the_online_tuner_uses_it():
    net, loss = make_mlp(), make_loss()
    options = ObserveOptions(gradient_metric="curvature")
    tuner = OnlineTuner(net, loss, log_loss, TRAIN, VALIDATION, policy=OnlinePolicy(start="now"), observe=options)
    learned = tuner.step()
    expected = observe(net, make_loss(), log_loss, TRAIN, VALIDATION, gradient_metric="curvature")
    assert learned is not None
    np.testing.assert_allclose(tuner._learner.observations[-1].gram, expected.gram)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_the_metric_has_one_of_two_names():
    with pytest.raises(InvalidInput, match=r"`gradient_metric` must be one of \['plain', 'curvature'\]; found 'adam'"):
        ObserveOptions(gradient_metric="adam")


def refused(loss, match, net=None, validation=VALIDATION):
    with pytest.raises(InvalidInput, match=match):
        observe(net or make_mlp(), loss, log_loss, TRAIN, validation, gradient_metric="curvature")


def test_terms_that_do_not_call_the_model_are_refused():
    def of_a_layer(model, batch):
        return model[0](batch[0]).square().mean()

    loss = LinearLoss({"fit": log_loss, "inner": of_a_layer}, {"fit": 1.0, "inner": (0, 1)})
    refused(loss, r"for \['inner'\]: it also depends on parameters in another way.*gradient_metric=\"plain\"")


def test_terms_that_differentiate_the_outputs_are_refused():
    def smoothness(model, batch):
        x = batch[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return slope.square().mean()

    loss = LinearLoss({"slope": smoothness}, {"slope": 1.0})
    refused(loss, r"for \['slope'\]: without the graph behind them, it fails")


@pytest.mark.parametrize("between", [torch.tanh, lambda z: z])
def test_a_model_that_is_called_on_its_own_outputs_is_refused(between):
    """The way through the second call would be missing from the matrix."""
    torch.manual_seed(0)
    net = nn.Linear(6, 6).double()

    def twice(model, batch):
        return model(between(model(batch[0]))).square().mean()

    refused(LinearLoss({"twice": twice}, {"twice": 1.0}), "found a call of the model on its own outputs", net)


def test_inputs_may_depend_on_parameters():
    """Such as embeddings that the term looks up itself: the graph of the outputs leads through them."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.out = nn.Embedding(10, 6), nn.Linear(6, 3)
            self.double()

        def forward(self, ids=None, vectors=None):
            return self.out(self.table(ids) if vectors is None else vectors)

    data = [(torch.arange(10), torch.arange(10) % 3)]
    grams = []
    for call in (lambda model, ids: model(ids), lambda model, ids: model(vectors=model.table(ids))):
        fit = lambda model, batch, call=call: F.cross_entropy(call(model, batch[0]), batch[1])  # noqa: E731
        error = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
        loss = LinearLoss({"fit": fit}, {"fit": 1.0})
        grams.append(observe(Words(), loss, error, data, data, gradient_metric="curvature").gram)
    np.testing.assert_allclose(*grams, rtol=1e-10)


class Once(torch.autograd.Function):
    """Twice its input; it cannot be differentiated twice."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient


def test_models_that_cannot_be_differentiated_twice_are_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make_mlp()

        def forward(self, x):
            return Once.apply(self.inner(x))

    refused(LinearLoss({"fit": log_loss}, {"fit": 1.0}), "must be differentiable twice", Net())


def test_many_weights_are_refused():
    loss = LinearLoss({"fit": log_loss, "r": ConvexPiecewiseLinear(np.linspace(-1, 1, 32))}, {"fit": 1.0, "r": (0, 1)})
    refused(loss, "at most 64 weights; found 65. Give fewer knots or groups")


def test_one_validation_example_is_refused():
    refused(make_loss(), "compares two halves of the validation examples; found one", validation=make_data(1))


def test_batches_that_cannot_be_split_are_refused():
    class Graph:
        pass

    with pytest.raises(InvalidInput, match="must be a tensor, or a tuple, list or dict of tensors; found a Graph"):
        rows_of((torch.zeros(4), Graph()), slice(0, None, 2))


def test_several_processes_are_refused():
    class Replicas:
        pass

    with pytest.raises(InvalidInput, match="supports a model in one process"):
        curvature.check_curvature(nn.Linear(1, 1), make_loss(), Replicas())


def test_the_dampings_are_as_documented():
    assert curvature.DAMPINGS == DAMPINGS
    assert math.isclose(curvature.AGREEMENT, 0.5)


def test_sparse_embeddings_are_refused():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.out(self.table(x).mean(1))

    def fit(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    data = [(torch.randint(0, 10, (16, 6)), torch.randint(0, 3, (16,)))]
    loss = LinearLoss({"fit": fit, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)})
    with pytest.raises(InvalidInput, match="supports dense gradients; found an embedding with sparse=True"):
        observe(Bag(), loss, fit, data, data, gradient_metric="curvature")


def test_second_derivatives_that_are_not_finite_are_named():
    """|x|^1.5 has a first derivative at 0 but no second one."""
    net = nn.Linear(3, 2)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)

    def fit(model, batch):
        return model(batch[0]).abs().pow(1.5).mean()

    def error(model, batch):
        return (model(batch[0]) - 1).square().mean()

    data = [(torch.randn(8, 3),)]
    loss = LinearLoss({"fit": fit, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)})
    with pytest.raises(NotFinite, match="Second derivatives must be finite for the curvature metric"):
        observe(net, loss, error, data, data, gradient_metric="curvature")
