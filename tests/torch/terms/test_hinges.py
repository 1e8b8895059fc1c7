"""Hinges by bins and cells against dense Jacobians, torch's autograd, and limit cases."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tuneloss.errors import InvalidInput
from tuneloss.hinges import PiecewiseLinear, hinge_products
from tuneloss.torch.terms.hinges import Grid, Table, bin_sums, make_table, penalty, quantile_knots, searched_bins

F32 = st.floats(-1e3, 1e3, width=32)


def table(knots: Tensor, right: Tensor, left: Tensor) -> Table:
    grid = Grid(knots)
    return make_table(PiecewiseLinear.from_weights(grid.positions, torch.cat([right, left]).numpy()), grid)


def values(x: Tensor, knots: Tensor) -> Tensor:
    """Values (n, 2p) of all hinges at all entries, as their definition says, in float64."""
    distance = x.double().reshape(-1, 1) - knots.double()
    return torch.cat([distance, -distance], dim=1).clamp(min=0)


def jacobian(x: Tensor, knots: Tensor) -> Tensor:
    """Gradients (n, 2p) of all hinges at all entries, as their definition says, in float64."""
    x, knots = x.double().reshape(-1, 1), knots.double()
    return torch.cat([(x > knots).double(), (x < knots).double() * -1], dim=1)


def assert_penalty_by_definition(
    x: Tensor, knots: Tensor, right: Tensor, left: Tensor, rtol: float = 2e-6, of_parts: float = 0.0
) -> None:
    """of_parts: how far the value may be off, relative to the sum of weight * (|x| + |knot|), of which it is made."""
    x = x.detach().requires_grad_()
    value = penalty(x, table(knots, right, left))
    (gradient,) = torch.autograd.grad(value, x)
    weights = torch.cat([right, left]).double()
    parts = x.detach().abs().double().reshape(-1, 1) + torch.cat([knots, knots]).abs().double()
    atol = 1e-6 + of_parts * float((parts @ weights).sum())
    torch.testing.assert_close(value.double(), (values(x, knots) @ weights).sum(), rtol=rtol, atol=atol)
    expected = (jacobian(x, knots) @ weights).reshape(x.shape).to(x.dtype)
    torch.testing.assert_close(gradient, expected, rtol=1e-6 if x.dtype != torch.bfloat16 else 1e-2, atol=1e-6)


def weights_of(p: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(p, generator=generator), torch.rand(p, generator=generator)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(deadline=None)
@given(x=st.lists(F32, min_size=1, max_size=30), knots=st.sets(F32, min_size=1, max_size=8), ties=st.booleans())
def test_penalty_is_its_definition(x, knots, ties):
    ordered = torch.tensor(sorted(knots))
    entries = torch.cat([torch.tensor(x), ordered]) if ties else torch.tensor(x)
    assert_penalty_by_definition(entries, ordered, *weights_of(len(ordered)), rtol=1e-5, of_parts=3e-7)
    assert_penalty_by_definition(entries.double(), ordered.double(), *weights_of(len(ordered)))


@settings(deadline=None)
@given(x=st.lists(F32, min_size=1, max_size=30), knots=st.sets(F32, min_size=1, max_size=8))
def test_bins_are_between_and_at_knots(x, knots):
    ordered = sorted(knots)
    expected = [sum(a < v for a in ordered) + sum(a <= v for a in ordered) for v in x + ordered]
    entries, at = torch.tensor(x + ordered), torch.tensor(ordered)
    assert searched_bins(entries, at).tolist() == expected
    assert Grid(at).bins_of(entries).tolist() == expected


@pytest.mark.parametrize("scale", [1e-30, 0.05, 1e20])
def test_bins_by_cells_are_those_by_search(scale):
    x = normal(300_000) * scale
    knots = quantile_knots(x, 50)
    assert torch.equal(Grid(knots).bins_of(x), searched_bins(x, knots))


@pytest.mark.parametrize("n", [1, 1000, 300_000])
@pytest.mark.parametrize("scale", [1e-30, 0.05, 1e20])
def test_penalty_at_quantile_knots_of_many_entries(n, scale):
    x = normal(n) * scale
    knots = quantile_knots(x, 50)
    weights = [w / scale for w in weights_of(50)]
    assert_penalty_by_definition(x, knots, weights[0].double(), weights[1].double())


@pytest.mark.parametrize("distribution", ["heavy tails", "mostly zero", "one outlier", "far from zero"])
def test_penalty_is_exact_for_any_distribution(distribution):
    x = normal(20_000)
    x = {
        "heavy tails": x**9,
        "mostly zero": x * (x > 1),
        "one outlier": torch.cat([x, torch.tensor([1e9])]),
        "far from zero": x + 1000,
    }[distribution]
    assert_penalty_by_definition(x, quantile_knots(x, 20), *weights_of(20), rtol=1e-5)


def test_knots_one_ulp_apart():
    knots = torch.tensor([-1.0, 1.0, 1.0 + 2**-23, 1.0 + 2**-22, 3.0])
    x = torch.cat([knots, torch.nextafter(knots, knots + 1), torch.nextafter(knots, knots - 1), normal(1000)])
    assert_penalty_by_definition(x, knots, *weights_of(5))
    close = torch.tensor([1e-45, 3e-45, 4e-45])
    assert_penalty_by_definition(torch.cat([close, -close, normal(10)]), close, *weights_of(3))


def test_float64_knots_are_not_rounded_for_float32_entries():
    x = torch.tensor([1.0, 1.0, 2.0])
    assert_penalty_by_definition(x, torch.tensor([1.0 - 1e-12, 1.0 + 1e-12], dtype=torch.float64), *weights_of(2))


def test_l1_is_two_hinges_at_zero():
    x, one = normal(100_000).requires_grad_(), torch.ones(1)
    value = penalty(x, table(torch.zeros(1), one, one))
    value.backward()
    torch.testing.assert_close(value, x.abs().sum())
    assert torch.equal(x.grad, x.sign())
    zeros = torch.tensor([0.0, -0.0], requires_grad=True)
    penalty(zeros, table(torch.zeros(1), one, one)).backward()
    assert torch.equal(zeros.grad, torch.zeros(2))


def test_autograd_of_relu_gives_the_same_gradient():
    x, knots, (right, left) = normal(40, 50).requires_grad_(), torch.linspace(-2, 2, 7), weights_of(7)
    distance = x.unsqueeze(-1) - knots
    plain = (torch.relu(distance) @ right + torch.relu(-distance) @ left).sum()
    (expected,) = torch.autograd.grad(plain, x)
    ours = penalty(x, table(knots, right, left))
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad(3 * ours, x)[0], 3 * expected)


def test_gradcheck_away_from_knots():
    ready = table(torch.tensor([-1.0, 0.0, 2.0]).double(), *weights_of(3))
    x = torch.tensor([-3.0, -0.5, 0.3, 1.0, 5.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: penalty(t, ready), x)


def test_slopes_increase_since_the_penalty_is_convex():
    x = torch.linspace(-4, 4, 5001, requires_grad=True)
    penalty(x, table(quantile_knots(normal(500), 30), *weights_of(30))).backward()
    assert bool((x.grad.diff() >= 0).all())


def test_backward_twice_gives_the_same():
    x = normal(1000).requires_grad_()
    value = penalty(x, table(torch.linspace(-1, 1, 5), *weights_of(5)))
    first = torch.autograd.grad(value, x, retain_graph=True)[0].clone()
    assert torch.equal(torch.autograd.grad(2 * value, x)[0], 2 * first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("bad", "check"), [(math.nan, math.isnan), (math.inf, math.isinf), (-math.inf, math.isinf)])
def test_what_is_not_finite_shows_in_the_value(dtype, bad, check):
    x = normal(100, dtype=dtype)
    x[3] = bad
    assert check(penalty(x, table(torch.linspace(-1, 1, 5).to(dtype), *weights_of(5))).item())
    knots = torch.linspace(-1, 1, 5)
    for found in (searched_bins(x, knots), Grid(knots).bins_of(x)):
        assert 0 <= int(found.min()) <= int(found.max()) <= 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    x = normal(5000).to(dtype)
    right, left = torch.tensor([0.5, 1.0, 0.25]), torch.tensor([0.25, 2.0, 0.5])
    ready = table(torch.tensor([-0.5, 0.0, 0.5]), right, left)
    half, full = x.clone().requires_grad_(), x.float().requires_grad_()
    value = penalty(half, ready)
    assert value.dtype == torch.float32
    assert torch.equal(value, penalty(full, ready))
    gradient = torch.autograd.grad(value, half)[0]
    assert gradient.dtype == dtype
    assert torch.equal(gradient.float(), torch.autograd.grad(penalty(full, ready), full)[0])


def test_non_contiguous_and_empty_tensors():
    x = normal(60, 70)
    assert_penalty_by_definition(x.T, torch.linspace(-1, 1, 5), *weights_of(5))
    assert_penalty_by_definition(x[::2, 1::3], torch.linspace(-1, 1, 5), *weights_of(5))
    assert_penalty_by_definition(torch.empty(0, 3), torch.linspace(-1, 1, 5), *weights_of(5))


def test_sums_by_bin_give_products_with_the_jacobian():
    x, p = normal(5000), 12
    knots = quantile_knots(x, p)
    x = torch.cat([x, knots])
    grid, columns = Grid(knots), normal(5012, 3, dtype=torch.float64)
    sums = bin_sums(grid.bins_of(x), columns.T, 2 * len(knots) + 1)
    products = torch.from_numpy(hinge_products(sums.numpy()))
    torch.testing.assert_close(products, jacobian(x, knots).T @ columns)


@settings(deadline=None)
@given(x=st.lists(F32, min_size=1, max_size=40), p=st.integers(2, 20), repeats=st.integers(0, 40))
def test_there_are_p_increasing_knots_from_least_to_greatest(x, p, repeats):
    entries = torch.tensor(x + [0.5] * repeats)
    knots = quantile_knots(entries, p)
    assert len(knots) == p
    assert bool((knots.diff() > 0).all())
    if entries.min() < entries.max() and (entries.max() - entries.min()) > 1e-3:
        assert knots[0] == entries.min()
        assert knots[-1] == entries.max()


def test_about_as_many_entries_between_any_two_knots():
    x = normal(10_000)
    counts = torch.bincount(searched_bins(x, quantile_knots(x, 21)))
    assert bool(((counts[2:-2:2] - 10_000 / 20).abs() <= 2).all())


@pytest.mark.parametrize("x", [torch.empty(0), torch.tensor([1.0, math.nan]), torch.tensor([math.inf])])
def test_knots_need_finite_entries(x):
    with pytest.raises(InvalidInput, match="Knots need parameters that are finite"):
        quantile_knots(x, 3)


def test_one_knot_is_too_few_for_a_least_and_a_greatest():
    with pytest.raises(InvalidInput, match="`p` must be at least 2; found 1"):
        quantile_knots(normal(10), 1)
