"""Columns of penalties, block by block, against their dense jacobian."""

import pytest
import torch

from tuneloss.torch import L1, L2, ConvexPiecewiseLinear
from tuneloss.torch.terms import GroupPenalty, Penalty
from tuneloss.torch.terms.columns import Columns, EntrywiseColumn, GradientColumn, HingeColumns, gram_and_values

KNOTS = [-0.5, 0.0, 0.25]


class Norm(GroupPenalty):
    def value(self, x):
        return x.norm()


class Cubes(GroupPenalty):
    entrywise = True

    def value(self, x):
        return x.abs().pow(3).sum()


class Quartic(L2):
    """What it inherits from L2 as its slope is not the slope of its value."""

    entrywise = True

    def value(self, x):
        return x.pow(4).sum()


class QuarticWithSlope(Quartic):
    entrywise = True

    def slope(self, x):
        return 4 * x.pow(3)


class Steeper(ConvexPiecewiseLinear):
    """A subclass may change the value, so that its hinges are not those of its parent."""

    entrywise = True

    def total(self, params, weights):
        return 2 * super().total(params, weights)


def some_params():
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (7, 5), "b": (4, 3), "c": (2, 2)}
    params = {n: torch.randn(*s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}
    params["a"][0, 0] = 0.25  # at a knot
    return {name: p.requires_grad_() for name, p in params.items()}


def by_autograd(penalty, params):
    """Values (d,) and jacobian (n, d) of the weights of a penalty, as `total` says."""
    values, columns = [], []
    count = len(penalty.labels())
    for j in range(count):
        value = penalty.total(params, [float(i == j) for i in range(count)])
        gradient = torch.autograd.grad(value, list(params.values()), allow_unused=True)
        dense = [torch.zeros_like(p) if g is None else g for g, p in zip(gradient, params.values(), strict=True)]
        values.append(value.detach())
        columns.append(torch.cat([g.reshape(-1) for g in dense]))
    return torch.stack(values), torch.stack(columns, dim=1)


GROUPS = {"first": ["a", "c"], "last": "b"}


@pytest.mark.parametrize("block", [7, 1 << 15])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: L1(groups=GROUPS), EntrywiseColumn),
        (lambda: L2("b"), EntrywiseColumn),
        (lambda: Cubes(groups=GROUPS), EntrywiseColumn),
        (lambda: Quartic("b"), EntrywiseColumn),
        (lambda: QuarticWithSlope("b"), EntrywiseColumn),
        (lambda: Norm(groups=GROUPS), GradientColumn),
        (lambda: ConvexPiecewiseLinear(KNOTS, groups=GROUPS).double(), HingeColumns),
        (lambda: Steeper(KNOTS, groups=GROUPS).double(), GradientColumn),
    ],
    ids=["l1", "l2", "own entrywise", "own value", "own slope", "own", "hinges", "own hinges"],
)
def test_values_and_gram_are_those_of_total_by_autograd(make, kind, block, monkeypatch):
    """Also with gradients of other terms beside them, and a second penalty with bins."""
    monkeypatch.setattr("tuneloss.torch.terms.columns.BLOCK", block)
    params, penalties = some_params(), [make(), ConvexPiecewiseLinear([0.1, 0.2]).double(), L2()]
    gradient = {name: torch.full_like(p, 0.5) for name, p in params.items()}
    expected = [by_autograd(penalty, params) for penalty in penalties]
    k = sum(len(values) for values, _ in expected)
    places = torch.arange(k).split([len(values) for values, _ in expected])
    named = [("own", penalty, at.tolist()) for penalty, at in zip(penalties, places, strict=True)]
    columns = [c for name, penalty, at in named for c in penalty.columns(name, at, params, params)]
    gram, values = gram_and_values(params, columns, {k: gradient}, k)
    jacobian = torch.cat([*(columns for _, columns in expected), torch.full((51, 1), 0.5).double()], dim=1)
    torch.testing.assert_close(values[:k], torch.cat([own for own, _ in expected]))
    torch.testing.assert_close(gram, jacobian.T @ jacobian)
    assert {type(c) for c in penalties[0].columns("own", named[0][2], params, params)} == {kind}


class Sum(Penalty):
    """A penalty of one's own with columns of its own."""

    def total(self, params, weights):
        return weights[0] * params["b"].sum()

    def columns(self, term, positions, params, inside):
        return [Ones(positions, ["b"])]


class Ones(Columns):
    total = 0.0

    def see(self, block):
        self.total += float(block.numbers.sum())

    def rows(self, block):
        return torch.ones_like(block.numbers).unsqueeze(0)

    def add_to(self, gram, values):
        values[self.positions] += self.total


def test_the_gram_asks_for_columns_and_not_for_types():
    params = some_params()
    columns = [*Sum().columns("sum", [0], params, params), *L2("b").columns("l2", [1], params, params)]
    gram, values = gram_and_values(params, columns, {}, 2)
    b = params["b"].detach()
    torch.testing.assert_close(values, torch.stack([b.sum(), b.square().sum(), torch.tensor(0.0).double()]))
    expected = torch.tensor([[12.0, 2 * b.sum(), 0], [2 * b.sum(), 4 * b.square().sum(), 0], [0, 0, 0]])
    torch.testing.assert_close(gram, expected.double())
    with pytest.raises(NotImplementedError, match="Ones gives rows"):
        Ones([0], ["b"]).gather([], torch.zeros(0, 1))
