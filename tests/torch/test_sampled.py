"""The gram of all batches from a part of them: without bias, by counting all choices; and a gram again."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

from tuneloss.torch import L2, LinearLoss, UniformLabels, observe
from tuneloss.torch import passes as passes_module
from tuneloss.torch.sampled import SMALL, Spread, nearest_gram

NAMES = ("fit", "smooth")


def gram_of(rows):
    return rows @ rows.T


@pytest.mark.parametrize("m", [2, 3, 4])
def test_over_all_choices_of_batches_the_mean_is_the_gram_of_all(m):
    """Five batches, any m of them: the corrected gram of their mean gradients, on average, is that of all five."""
    batches = torch.randn(5, len(NAMES), 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, found, plain = gram_of(batches.mean(0)), [], []
    for chosen in combinations(range(5), m):
        spread = Spread(NAMES, m / 5)
        for b in chosen:
            for name, gradient in zip(NAMES, batches[b], strict=True):
                spread.add(name, [gradient], [gradient], times=3.0)
            spread.end_part(3)
        gram = gram_of(3.0 * batches[list(chosen)].sum(0))
        found.append((gram - spread.excess(gram)) / (3 * m) ** 2)
        plain.append(gram / (3 * m) ** 2)
    torch.testing.assert_close(torch.stack(found).mean(0), whole, rtol=1e-10, atol=1e-12)
    assert (torch.stack(plain).mean(0) - whole).diagonal().min() > 0.1  # what is taken off is not nothing


def test_all_batches_or_one_part_leave_the_gram_as_it_is():
    gradient = torch.ones(3, dtype=torch.float64)
    for share, parts in ((1.0, 3), (0.5, 1)):
        spread = Spread(("fit",), share)
        for _ in range(parts):
            spread.add("fit", [gradient], [gradient], times=1.0)
            spread.end_part(1)
        assert spread.excess(torch.tensor([[9.0]], dtype=torch.float64)).item() == 0


def test_of_a_large_parameter_some_entries_stand_for_all():
    """Squares of independent entries: within a few percent; a gradient that is missing counts as 0."""
    generator = torch.Generator().manual_seed(1)
    large, small = torch.randn(200 * SMALL, generator=generator), torch.randn(5, generator=generator)
    spread = Spread(NAMES, 0.5)
    spread.add("fit", [large, small], [large, small], times=2.0)
    spread.add("smooth", [None, small], [large, small], times=2.0)
    spread.end_part(2)
    squares = 4 * float(large.square().sum()), 4 * float(small.square().sum())
    assert spread.products[0, 0].item() == pytest.approx(sum(squares), rel=0.05)
    assert spread.products[1, 1].item() == pytest.approx(squares[1], rel=1e-6)
    assert spread.products[0, 1].item() == pytest.approx(squares[1], rel=1e-6)


def test_draws_of_one_term_in_a_part_are_added():
    spread = Spread(("fit",), 0.5)
    for _ in range(2):
        spread.add("fit", [torch.ones(3)], [torch.ones(3)], times=0.5)
    spread.end_part(1)
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
    monkeypatch.setattr(passes_module.Spread, "excess", lambda self, gram: torch.zeros_like(gram))
    plain = mean_gram()
    assert plain[0, 0] > 1.5 * whole[0, 0]
    assert abs(corrected[0, 0] - whole[0, 0]) < 0.4 * (plain[0, 0] - whole[0, 0])
    assert corrected[2, 2] == pytest.approx(whole[2, 2], rel=0.02)  # a penalty has no noise
