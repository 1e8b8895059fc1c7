"""The gram of all batches from a part of them: without bias, by counting all choices; and a gram again."""

from itertools import combinations, cycle, product

import numpy as np
import pytest
import torch
from torch import nn

from tuneloss.errors import NotFinite
from tuneloss.torch import L1, L2, LinearLoss, UniformLabels, observe
from tuneloss.torch.observing import passes as passes_module
from tuneloss.torch.observing import sampling_noise as sampled_module
from tuneloss.torch.observing.processes import _sums
from tuneloss.torch.observing.sampling_noise import Spread, nearest_gram, products, sampled

NAMES = ("fit", "smooth")


def gram_of(rows):
    return rows @ rows.T


@pytest.mark.parametrize("m", [2, 3, 4])
def test_over_all_choices_of_batches_the_mean_is_the_gram_of_all(m):
    """Five batches, any m of them: the corrected gram of their mean gradients, on average, is that of all five."""
    batches = torch.randn(5, len(NAMES), 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, found, plain = gram_of(batches.mean(0)), [], []
    for chosen in combinations(range(5), m):
        spread = Spread(NAMES, torch.full((len(NAMES),), m / 5, dtype=torch.float64), compares=True)
        for b in chosen:
            for name, gradient in zip(NAMES, batches[b], strict=True):
                spread.add(name, [gradient], [gradient], times=3.0, n=3)
            spread.end_part([batches[b, 0]])
        gram = gram_of(3.0 * batches[list(chosen)].sum(0))
        assert spread.sizes == [[3.0] * len(NAMES)] * m
        n, squares = _sums(spread.sizes)
        found.append((gram - spread.excess(gram, n, squares)) / (3 * m) ** 2)
        plain.append(gram / (3 * m) ** 2)
    torch.testing.assert_close(torch.stack(found).mean(0), whole, rtol=1e-10, atol=1e-12)
    assert (torch.stack(plain).mean(0) - whole).diagonal().min() > 0.1  # what is taken off is not nothing


def test_all_batches_or_one_part_leave_the_gram_as_it_is():
    gram = torch.tensor([[9.0]], dtype=torch.float64)
    one, two = torch.ones(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    assert Spread(("fit",), one, compares=True).excess(gram, 3 * one, 3 * two).item() == 0
    assert Spread(("fit",), one / 2, compares=True).excess(gram, 3 * one, 9 * two).item() == 0


def test_of_a_large_model_some_entries_stand_for_all(monkeypatch):
    """Squares of independent entries: within a few percent; a gradient that is missing counts as 0."""
    monkeypatch.setattr(sampled_module, "ENTRIES", 20_000)
    generator = torch.Generator().manual_seed(1)
    params = [torch.randn(200_000, generator=generator), torch.randn(17 * 200, generator=generator)]
    found = products([sampled(params, params), sampled([None, params[1]], params)])
    squares = [float(p.square().sum()) for p in params]
    assert len(sampled(params, params)[0]) < 12_000
    assert found[0, 0].item() == pytest.approx(sum(squares), rel=0.05)
    assert found[1, 1].item() == pytest.approx(squares[1], rel=0.2)
    assert found[0, 1].item() == pytest.approx(found[1, 1].item(), rel=1e-6)


def test_of_a_small_model_all_entries_are_compared():
    params = [torch.randn(300, 40), torch.randn(40), torch.randn(())]
    found = sampled(params, params)
    assert all(torch.equal(one, p.reshape(-1)) for one, p in zip(found, params, strict=True))


@pytest.mark.parametrize("columns", [16, 17, 19, 34, 17 * 19, 1020])
def test_the_entries_of_a_matrix_are_from_all_of_its_columns(columns, monkeypatch):
    """Also where every 17th entry would be from the same few; one column is ten times as large."""
    monkeypatch.setattr(sampled_module, "ENTRIES", 10_000)
    matrix = torch.randn(100_000 // columns, columns, generator=torch.Generator().manual_seed(2))
    matrix[:, 0] *= 10
    found = sampled([matrix], [matrix])
    assert len(found[0]) < 10_000
    assert products([found]).item() == pytest.approx(float(matrix.square().sum()), rel=0.3)


def test_half_precision_does_not_overflow():
    gradient = torch.full((5,), 60.0, dtype=torch.float16)
    spread = Spread(("fit",), torch.full((1,), 0.5), compares=True)
    spread.add("fit", [gradient], [gradient], times=4096.0, n=4096)
    spread.end_part([gradient])
    assert spread.products.item() == pytest.approx(5 * (60 * 4096) ** 2)


def test_draws_of_one_term_in_a_part_are_added():
    spread = Spread(("fit",), torch.full((1,), 0.5), compares=True)
    for _ in range(2):
        spread.add("fit", [torch.ones(3)], [torch.ones(3)], times=0.5, n=0.5)
    spread.end_part([torch.ones(3)])
    assert spread.products.item() == 3


def test_the_nearest_gram_is_one_and_a_gram_is_its_own():
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(4, 9, dtype=torch.float64, generator=generator) * torch.tensor([[1e-6], [1.0], [1e3], [0.0]])
    gram = gram_of(rows)
    size = gram.diagonal().sqrt()
    torch.testing.assert_close(nearest_gram(gram, size), gram, rtol=1e-9, atol=1e-20)
    less = gram - torch.diag(2 * gram.diagonal() * torch.tensor([0, 1, 0, 0]))
    fixed = nearest_gram(less, size)
    unit = fixed[:3, :3] / torch.outer(size[:3], size[:3])
    assert torch.linalg.eigvalsh(unit).min() > -1e-12
    assert fixed[0, 2].item() == pytest.approx(less[0, 2].item(), rel=0.5)


def log_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def test_observations_of_half_the_batches_have_the_squares_of_all(monkeypatch):
    """Of 40 random halves of 16 batches the mean gram is that of all; uncorrected, it is larger by far."""
    torch.manual_seed(3)
    net = nn.Linear(6, 3).double()
    x, y = torch.randn(64, 6, dtype=torch.float64), torch.randint(3, (64,))
    batches = list(zip(x.split(4), y.split(4), strict=True))
    bounds = {"fit": 1.0, "smooth": (0, 1), "l2": (0, 1)}
    loss = LinearLoss({"fit": log_loss, "smooth": UniformLabels(), "l2": L2()}, bounds)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=100)

    def closure():
        optimizer.zero_grad()
        value = log_loss(net, (x, y)) + 1e-2 * net.weight.square().sum()
        value.backward()
        return value

    optimizer.step(closure)
    orders = [torch.randperm(16).tolist() for _ in range(40)]

    def mean_gram():
        seen = [observe(net, loss, log_loss, [batches[i] for i in order], batches, batches=0.5) for order in orders]
        return np.mean([o.gram for o in seen], axis=0)

    whole, corrected = observe(net, loss, log_loss, batches, batches).gram, mean_gram()
    monkeypatch.setattr(passes_module.Spread, "excess", lambda self, total, n, squares: torch.zeros_like(total))
    plain = mean_gram()
    assert plain[0, 0] > 1.5 * whole[0, 0]
    assert abs(corrected[0, 0] - whole[0, 0]) < 0.4 * (plain[0, 0] - whole[0, 0])
    assert corrected[2, 2] == pytest.approx(whole[2, 2], rel=0.02)  # a penalty has no noise


@pytest.mark.parametrize("columns", [17, 18])
def test_a_large_feature_in_a_matrix_whose_rows_are_as_long_as_the_stride(columns, monkeypatch):
    """Means of the gram over 20 halves, of a layer that is compared by some of its entries only."""
    monkeypatch.setattr(sampled_module, "ENTRIES", 200)
    torch.manual_seed(4)
    net = nn.Linear(columns, 100).double()
    x, y = torch.randn(256, columns, dtype=torch.float64), torch.randint(100, (256,))
    x[:, 0] *= 10
    batches = list(zip(x.split(16), y.split(16), strict=True))
    loss = LinearLoss({"fit": log_loss, "smooth": UniformLabels()}, {"fit": 1.0, "smooth": (0, 1)})
    whole = observe(net, loss, log_loss, batches, batches).gram
    orders = [torch.randperm(16).tolist() for _ in range(20)]
    seen = [observe(net, loss, log_loss, [batches[i] for i in order], batches, batches=0.5).gram for order in orders]
    np.testing.assert_allclose(np.mean(seen, axis=0).diagonal(), whole.diagonal(), rtol=0.3)  # it was 0.02 of it once


class Stream:
    """A loader without a length."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def near_batches(seed):
    """A model and four batches, close to each other: so the corrected matrix is a gram as it is."""
    torch.manual_seed(seed)
    net, y = nn.Linear(6, 3).double(), torch.tensor([0, 1, 2, 0])
    common = torch.randn(4, 6, dtype=torch.float64)
    return net, [(common + 0.2 * torch.randn(4, 6, dtype=torch.float64), y) for _ in range(4)]


@pytest.mark.parametrize("count", [2, 3])
def test_over_all_draws_from_an_endless_stream_the_mean_is_the_gram_of_all(count):
    """Independent draws with replacement from four batches: each sequence of them once."""
    net, batches = near_batches(5)
    loss = LinearLoss({"fit": log_loss, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)})
    validation = [(torch.randn(9, 6, dtype=torch.float64), torch.randint(3, (9,)))]
    whole = observe(net, loss, log_loss, batches, validation).gram
    found, plain = [], []
    for draws in product(batches, repeat=count):
        found.append(observe(net, loss, log_loss, Stream(cycle(draws)), validation, batches=count).gram)
        plain.append(observe(net, loss, log_loss, draws, validation).gram)
    np.testing.assert_allclose(np.mean(found, axis=0), whole, rtol=1e-9)
    assert np.mean(plain, axis=0)[0, 0] > whole[0, 0] * (1 + 1e-3)  # what is taken off is not nothing


@pytest.mark.parametrize("count", [None, 5, "auto"])
def test_a_stream_that_ends_is_read_whole_and_nothing_is_taken_off(count):
    net, batches = near_batches(6)
    loss = LinearLoss({"fit": log_loss, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)})
    right = observe(net, loss, log_loss, batches, batches)
    seen = observe(net, loss, log_loss, Stream(batches), batches, batches=count)
    np.testing.assert_allclose(seen.gram, right.gram, rtol=1e-12)
    other = observe(net, loss, log_loss, Stream(batches), batches, batches=4)  # for all that is known it goes on
    assert other.gram[0, 0] < (1 - 1e-4) * right.gram[0, 0]


BATCHES = [(torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(16)]


def test_penalties_only_on_a_part_of_the_batches():
    net = nn.Linear(6, 3)
    loss = LinearLoss({"l2": L2(), "l1": L1()}, {"l2": 1.0, "l1": (0, 1)})
    part, whole = (observe(net, loss, log_loss, BATCHES, BATCHES, batches=count) for count in (8, None))
    np.testing.assert_array_equal(part.gram, whole.gram)


@pytest.mark.parametrize("count", [8, None])
def test_a_parameter_that_only_a_penalty_sees_must_be_finite(count):
    net = nn.ModuleDict({"used": nn.Linear(6, 3), "unused": nn.Linear(6, 3)})
    nn.init.constant_(net["unused"].weight, float("nan"))

    def own(model, batch):
        return log_loss(model["used"], batch)

    loss = LinearLoss({"fit": own, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)}, share_forward=False)
    with pytest.raises(NotFinite):
        observe(net, loss, own, BATCHES, BATCHES, batches=count)


@pytest.mark.parametrize(("number", "parts"), [(5, 5), (6, 6), (8, 4), (9, 5), (12, 4)])
def test_there_are_at_least_four_parts(number, parts, monkeypatch):
    seen, end_part = [], Spread.end_part

    def counted(self, params):
        seen.append(params)
        end_part(self, params)

    monkeypatch.setattr(passes_module.Spread, "end_part", counted)
    loss = LinearLoss({"fit": log_loss}, {"fit": 1.0})
    observe(nn.Linear(6, 3), loss, log_loss, BATCHES, BATCHES, batches=number)
    assert len(seen) == parts
