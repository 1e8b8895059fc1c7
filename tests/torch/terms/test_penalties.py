"""L1 and L2: values and slopes in closed form, by group; and penalties of a user."""

import copy
import math

import pytest
import torch
from torch import nn

from tests.torch.reference import log_loss, make_data, make_net, matrices
from tuneloss.errors import InvalidInput
from tuneloss.torch import L1, L2, LinearLoss, by_layer
from tuneloss.torch.terms.penalties import GroupPenalty, Penalty, differentiate
from tuneloss.torch.wrappers import trainable

PENALTIES = pytest.mark.parametrize(
    ("penalty", "formula"), [(L1(), lambda x: x.abs()), (L2(), lambda x: x.square())], ids=["l1", "l2"]
)


@PENALTIES
def test_value_is_the_sum_over_matrices_and_kernels(penalty, formula):
    net = make_net()
    expected = 0.3 * sum(formula(p).sum() for p in matrices(net))
    torch.testing.assert_close(penalty.total(trainable(net), [0.3]), expected)


@PENALTIES
def test_slope_is_the_gradient_of_the_value(penalty, formula):
    """Also at 0, where both are 0."""
    x = torch.tensor([-2.0, 0.0, 0.5], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(penalty.value(x), x)
    torch.testing.assert_close(penalty.slope(x.detach()), gradient, rtol=0, atol=0)
    torch.testing.assert_close(penalty.value(x), formula(x).sum())


@PENALTIES
def test_total_is_linear_in_the_weights_of_its_groups(penalty, formula):
    net = make_net()
    grouped = type(penalty)(groups=by_layer(net))
    assert grouped.labels() == ["0", "3"]
    total = grouped.total(trainable(net), [0.2, 5.0])
    torch.testing.assert_close(total, 0.2 * formula(net[0].weight).sum() + 5.0 * formula(net[3].weight).sum())


def test_a_group_of_weight_0_is_not_evaluated():
    """Not even a NaN in it is seen."""
    params = {"a": torch.full((2, 2), torch.nan), "b": torch.ones(2, 2)}
    assert L2(groups={"a": "a", "b": "b"}).total(params, [0.0, 1.0]) == 4.0


def test_l2_of_weight_w_is_weight_decay_of_2_w():
    """One step of SGD with either leads to the same parameters."""
    net, (batch,) = make_net(), make_data(8)
    other = copy.deepcopy(net)
    loss = LinearLoss({"fit": log_loss, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1)}, weights={"l2": 0.05})
    ours = torch.optim.SGD(net.parameters(), lr=0.1)
    loss.double()(net, batch).backward()
    ours.step()
    decayed = [{"params": matrices(other), "weight_decay": 0.1}]
    rest = [{"params": [p for p in other.parameters() if p.ndim < 2]}]
    theirs = torch.optim.SGD(decayed + rest, lr=0.1)
    log_loss(other, batch).backward()
    theirs.step()
    torch.testing.assert_close(net.state_dict(), other.state_dict())


def test_a_tied_parameter_counts_once_and_a_frozen_one_not_at_all():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    net[2].requires_grad_(False)
    torch.testing.assert_close(L1().total(trainable(net), [1.0]), net[0].weight.abs().sum())


def test_a_function_of_the_shape_is_asked_again_for_another_model():
    wide = L2(lambda name, p: p.shape[0] > 3)
    wide.members(trainable(nn.Sequential(nn.Linear(2, 4))))
    with pytest.raises(InvalidInput, match="found none for 'all'"):
        wide.members(trainable(nn.Sequential(nn.Linear(2, 3))))


def test_params_and_groups_exclude_each_other():
    with pytest.raises(InvalidInput, match="takes `params` or `groups`; found both"):
        L2("a.*", groups={"b": "b.*"})


def test_groups_must_not_be_empty():
    with pytest.raises(InvalidInput, match="`groups` of a penalty must not be empty"):
        L1(groups={})


def test_a_penalty_without_its_formula_cannot_be_made():
    """Python says which method is missing when it is made, not when it is used."""
    with pytest.raises(TypeError, match=r"abstract class Penalty .*total"):
        Penalty()
    for kind in (GroupPenalty, type("Own", (GroupPenalty,), {})):
        with pytest.raises(TypeError, match=rf"abstract class {kind.__name__} .*value"):
            kind()


@PENALTIES
def test_a_subclass_does_not_inherit_that_it_is_entrywise(penalty, formula):
    """It may have another value, for which nobody knows."""
    assert penalty.is_entrywise
    assert not type("Own", (type(penalty),), {})().is_entrywise
    assert type("Own", (type(penalty),), {"entrywise": True})().is_entrywise


class Cosine(GroupPenalty):
    def value(self, x):
        return x.cos().sum()


def test_a_slope_that_is_not_defined_is_that_of_the_value():
    """Also where gradients are off."""
    with torch.no_grad():
        torch.testing.assert_close(Cosine().slope(torch.tensor([0.5, 2.0])), -torch.tensor([0.5, 2.0]).sin())


def test_a_derivative_has_one_value_and_gradient_for_each_weight():
    """Of a function of each weight's own parameters, the others are left out."""
    params = {name: torch.full((2, 2), x, requires_grad=True) for name, x in (("a", 1.0), ("b", 2.0))}
    penalty = Cosine(groups={"first": "a", "last": "b"})
    (first, of_first), (last, of_last) = differentiate("own", penalty, params, {"b"})
    assert (first, last) == (pytest.approx(4 * math.cos(1.0)), pytest.approx(4 * math.cos(2.0)))
    assert of_first == {}
    torch.testing.assert_close(of_last, {"b": torch.full((2, 2), -math.sin(2.0))})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda x: x.detach().sum(), "A penalty must depend on parameters that are trained; 'own' does not. Leave it"),
        (lambda x: x.sum(1), r"must return a scalar tensor, .* 'own' returned shape \(2,\)"),
    ],
    ids=["detached", "no scalar"],
)
def test_a_penalty_that_cannot_be_differentiated_is_refused(value, message):
    penalty = Cosine()
    penalty.value = value
    with pytest.raises(InvalidInput, match=message):
        list(differentiate("own", penalty, {"a": torch.ones(2, 2, requires_grad=True)}, {"a"}))
