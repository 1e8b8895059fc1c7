"""The learned penalty: hinges at knots, and where the knots come from."""

import copy
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.torch.reference import hinges, make_net, matrices
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch import L1, ConvexPiecewiseLinear, LinearLoss, by_layer
from tuneloss.torch.wrappers import trainable

KNOTS = [-0.2, 0.0, 0.13, 0.4]
WEIGHTS = [0.1, 0.0, 2.0, 0.3, 1.0, 0.5, 0.0, 0.2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradient_are_those_of_the_sum_of_hinges(dtype):
    net = make_net(dtype=dtype)
    term = ConvexPiecewiseLinear(KNOTS).to(dtype)
    expected = sum(w * hinge() for w, hinge in zip(WEIGHTS, hinges(term.knots[0].tolist(), matrices(net)), strict=True))
    total = term.total(trainable(net), WEIGHTS)
    torch.testing.assert_close(total, expected)
    ours, theirs = (torch.autograd.grad(value, matrices(net)) for value in (total, expected))
    torch.testing.assert_close(ours, theirs)


def test_one_knot_at_0_with_equal_weights_is_l1():
    params = trainable(make_net())
    ours = ConvexPiecewiseLinear([0.0]).total(params, [0.7, 0.7])
    torch.testing.assert_close(ours, L1().total(params, [0.7]))


def test_weights_come_group_by_group_right_hinges_first():
    net = make_net()
    term = ConvexPiecewiseLinear([-0.1, 0.1], groups=by_layer(net)).double()
    assert term.labels() == [f"{g}/{side}" for g in "03" for side in ("right0", "right1", "left0", "left1")]
    only_left1_of_3 = [0.0] * 7 + [1.0]
    expected = F.relu(term.knots[1, 1] - net[3].weight).sum()
    torch.testing.assert_close(term.total(trainable(net), only_left1_of_3), expected)


def test_function_gives_r():
    """In each open bin it is the sum of hinges."""
    term = ConvexPiecewiseLinear(KNOTS).double()
    x = torch.tensor([-3.0, -0.1, 0.05, 0.2, 7.0], dtype=torch.float64)
    expected = torch.stack([sum(w * h() for w, h in zip(WEIGHTS, hinges(KNOTS, [v]), strict=True)) for v in x])
    np.testing.assert_allclose(term.function(WEIGHTS)(x.numpy()), expected.numpy(), rtol=1e-6, atol=1e-6)


def test_the_loss_shows_each_regularizer_by_its_values_at_the_knots():
    """The sum of hinges at the knots of each group, minus its least value; without knots there is nothing to show."""
    net = make_net()
    penalty = ConvexPiecewiseLinear(3, groups=by_layer(net))
    loss = LinearLoss({"fit": lambda model, batch: model(batch[0]).mean(), "r": penalty}, box={"fit": 1.0, "r": (0, 9)})
    assert loss.regularizers() == {}
    loss.place_knots(net)
    weights = np.random.default_rng(0).random(12)
    loss.set_weights({"fit": 1.0, "r": weights})
    shown = loss.regularizers()
    assert list(shown) == [f"r/{group}" for group in penalty.groups]
    for own, row, (knots, values) in zip(weights.reshape(2, 6), penalty.knots.double(), shown.values(), strict=True):
        expected = torch.stack([sum(w * h() for w, h in zip(own, hinges(row.tolist(), [v]), strict=True)) for v in row])
        np.testing.assert_array_equal(knots, row.numpy())
        np.testing.assert_allclose(values, (expected - expected.min()).numpy(), rtol=1e-5, atol=1e-5)


def test_knots_are_placed_from_the_least_to_the_greatest_parameter_of_their_group():
    net = make_net()
    term = ConvexPiecewiseLinear(5, groups=by_layer(net)).double()
    assert not term.placed
    term.place(trainable(net))
    assert term.placed
    for row, layer in zip(term.knots, (net[0], net[3]), strict=True):
        torch.testing.assert_close(row[[0, -1]], torch.stack([layer.weight.min(), layer.weight.max()]).detach())
        assert bool((row.diff() > 0).all())
        inside = (layer.weight.detach().reshape(-1, 1) <= row).double().mean(0)
        torch.testing.assert_close(inside, torch.linspace(0, 1, 5).double(), rtol=0, atol=2 / layer.weight.numel())


def test_using_knots_that_have_no_place_is_refused():
    with pytest.raises(InvalidInput, match="must have positions before it is used; found none yet"):
        ConvexPiecewiseLinear(3).total(trainable(make_net()), [1.0] * 6)


def test_knots_go_back_if_the_block_fails():
    term = ConvexPiecewiseLinear(3)
    with suppress(ZeroDivisionError), term.unplaced_on_error():
        term.place(trainable(make_net()))
        raise ZeroDivisionError
    assert not term.placed
    with term.unplaced_on_error():
        term.place(trainable(make_net()))
    assert term.placed


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_positions_may_be_given_as_any_row_of_numbers(kind):
    torch.testing.assert_close(ConvexPiecewiseLinear(kind(KNOTS)).knots, torch.tensor([KNOTS]))


@pytest.mark.parametrize("knots", [[0.0, 0.0], [1.0, 0.0], [], [[0.0, 1.0]]])
def test_positions_that_do_not_ascend_are_refused(knots):
    with pytest.raises(InvalidInput, match="`knots` must be numbers in ascending order, each once"):
        ConvexPiecewiseLinear(knots)


@pytest.mark.parametrize(
    ("knots", "message"),
    [(1, "`knots` must be at least 2; found 1"), (2.5, "`knots` must be a whole number; found 2.5")],
)
def test_a_bad_number_of_knots_is_refused(knots, message):
    with pytest.raises(InvalidInput, match=message):
        ConvexPiecewiseLinear(knots)


def test_positions_must_be_finite():
    with pytest.raises(NotFinite, match="`knots` must be finite"):
        ConvexPiecewiseLinear([0.0, float("nan")])


def test_new_knots_are_used_at_once():
    """Placing, loading or moving them is noticed, though tables are kept from call to call."""
    term, params = ConvexPiecewiseLinear([0.0]), {"x": torch.ones(1, 1)}
    assert term.total(params, [1.0, 0.0]) == 1.0
    term.load_state_dict({"knots": torch.tensor([[0.5]])})
    assert term.total(params, [1.0, 0.0]) == 0.5
    for _ in range(4):
        term.knots.fill_(0.5)
    for writes in range(1, 5):
        assert term.total(params, [1.0, 0.0]) == 0.5
        other = copy.deepcopy(term)
        for _ in range(writes):
            other.knots.fill_(0.75)
        assert (term.total(params, [1.0, 0.0]), other.total(params, [1.0, 0.0])) == (0.5, 0.25)
    term.knots = torch.tensor([[0.25]])
    assert term.total(params, [1.0, 0.0]) == 0.75
