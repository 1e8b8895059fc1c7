"""The weighted sum of terms: its weights, what it evaluates, and what it refuses."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.torch.reference import Counted, log_loss, make_data, make_net, matrices
from tuneloss import Box
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch import L1, L2, Augmented, ConvexPiecewiseLinear, Dropout, LinearLoss, UniformLabels, by_layer

BOX = {"fit": 1.0, "smooth": (0, 0.5), "l2": (0, 0.1)}


def make_loss(**options):
    return LinearLoss({"fit": log_loss, "smooth": UniformLabels(), "l2": L2()}, BOX, **options)


def several(model, batch):
    output = model(batch[0])
    return {"fit": F.cross_entropy(output, batch[1]), "size": output.square().mean()}


def gradient(value, model):
    return torch.autograd.grad(value, list(model.parameters()), materialize_grads=True)


# --- value ------------------------------------------------------------------------------------------------------------


def test_it_is_the_weighted_sum_of_its_terms():
    net, (batch,) = make_net(), make_data(6)
    loss = make_loss(weights={"smooth": 0.25, "l2": 0.0625})
    uniform = -F.log_softmax(net(batch[0]), 1).mean()
    expected = log_loss(net, batch) + 0.25 * uniform + 0.0625 * sum(p.square().sum() for p in matrices(net))
    value = loss(net, batch)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient(value, net), gradient(expected, net))


def test_the_last_values_are_those_of_the_terms_without_their_weights():
    net, (batch,) = make_net(), make_data(6)
    loss = make_loss(weights={"smooth": 0.25, "l2": 0.0625})
    loss(net, batch)
    expected = {
        "fit": log_loss(net, batch),
        "smooth": UniformLabels()(net, batch),
        "l2": sum(p.square().sum() for p in matrices(net)),
    }
    torch.testing.assert_close(loss.last, expected)
    assert not any(value.requires_grad for value in loss.last.values())


def test_the_last_values_always_have_all_names_in_the_order_of_the_weights():
    """Before the first call, with terms of weight 0, with several terms of one callable, and with groups."""
    net, (batch,) = make_net(), make_data(6)
    box = {"l1": (0, 1), "size": (0, 1), "l2": (0, 1), "fit": 1.0, "uniform": (0, 1)}
    loss = LinearLoss([UniformLabels(), L2(groups=by_layer(net)), several, L1()], box)
    names = ["l1", "size", "l2", "fit", "uniform"]
    assert list(loss.last) == names
    assert all(value.isnan() for value in loss.last.values())
    loss(net, batch)  # evaluates all data terms of a list, to know their names
    for weights in ({"size": 0, "l2": 0.5}, {"l2": 0, "l1": 0.5}, {"l1": 0, "uniform": 1}):
        loss.set_weights(weights)
        loss(net, batch)
        positive = {name.split("/")[0] for name, weight in loss.as_dict().items() if weight > 0}
        assert list(loss.last) == names
        assert {name for name, value in loss.last.items() if not value.isnan()} == positive | {"size"}


def test_a_call_reads_no_number_of_a_term():
    """Reading one would make the program wait for the device; a meta tensor has none to read."""
    net, batch = make_net().to("meta"), (torch.empty(6, 6, device="meta", dtype=torch.float64), torch.zeros(6).long())
    loss = LinearLoss({"fit": lambda model, batch: model(batch[0]).mean(), "l1": L1(), "l2": L2()},
                      {"fit": 1.0, "l1": (0, 1), "l2": (0, 1)}, weights={"fit": 1.0, "l2": 0.1})  # fmt: skip
    loss(net, batch)
    assert {value.device.type for value in loss.last.values()} == {"meta"}


def test_the_last_value_of_a_penalty_with_many_weights_is_its_weighted_sum():
    net, (batch,) = make_net(), make_data(6)
    loss = LinearLoss({"fit": log_loss, "l1": L1(groups=by_layer(net))}, {"fit": 1.0, "l1": (0, 1)})
    loss.set_weights({"l1": [0.5, 0.25]})
    loss(net, batch)
    expected = 0.5 * net[0].weight.abs().sum() + 0.25 * net[3].weight.abs().sum()
    assert loss.last["l1"].item() == pytest.approx(expected.item())


def test_terms_of_weight_0_are_not_evaluated():
    calls = []
    terms = {name: lambda model, batch, name=name: calls.append(name) or log_loss(model, batch) for name in "abc"}
    loss = LinearLoss(terms, {"a": 1.0, "b": (0, 1), "c": (0, 1)}, weights={"c": 0.5})
    net, (batch,) = make_net(), make_data(3)
    loss(net, batch)
    assert calls == ["a", "c"]
    assert [value.isnan().item() for value in loss.last.values()] == [False, True, False]
    loss.set_weights({"b": 0.5, "c": 0})
    loss(net, batch)
    assert calls == ["a", "c", "a", "b"]


def test_a_penalty_of_weight_0_is_not_evaluated():
    """Knots without a place do no harm until they are needed."""
    loss = LinearLoss({"fit": log_loss, "r": ConvexPiecewiseLinear(3)}, {"fit": 1.0, "r": (0, 1)})
    net, (batch,) = make_net(), make_data(3)
    torch.testing.assert_close(loss(net, batch), log_loss(net, batch))
    loss.set_weights({"r": 0.1})
    with pytest.raises(InvalidInput, match="must have positions before it is used"):
        loss(net, batch)
    loss.place_knots(net)
    assert loss(net, batch) > log_loss(net, batch)


def test_knots_that_have_a_place_are_not_placed_again():
    term = ConvexPiecewiseLinear([0.0, 9.0])
    LinearLoss({"fit": log_loss, "r": term}, {"fit": 1.0, "r": (0, 1)}).place_knots(make_net())
    assert term.knots.tolist() == [[0.0, 9.0]]


def test_normalized_it_does_not_change_if_all_weights_grow():
    """Neither value nor gradient: it divides by the sum of the data terms' weights."""
    net, (batch,) = make_net(), make_data(6)
    box = {"fit": (0.1, 10), "smooth": (0, 10), "l2": (0, 10)}
    terms = {"fit": log_loss, "smooth": UniformLabels(), "l2": L2()}
    small = LinearLoss(terms, box, weights={"fit": 1, "smooth": 0.5, "l2": 0.25}, normalize=True)
    large = LinearLoss(terms, box, weights={"fit": 4, "smooth": 2, "l2": 1}, normalize=True)
    plain = LinearLoss(terms, box, weights={"fit": 1, "smooth": 0.5, "l2": 0.25})
    torch.testing.assert_close(small(net, batch), large(net, batch))
    torch.testing.assert_close(gradient(small(net, batch), net), gradient(large(net, batch), net))
    torch.testing.assert_close(small(net, batch), plain(net, batch) / 1.5)


def test_normalized_without_data_terms_it_stays_as_it_is():
    net, (batch,) = make_net(), make_data(2)
    loss = LinearLoss({"l2": L2()}, {"l2": 0.5}, normalize=True)
    torch.testing.assert_close(loss(net, batch), 0.5 * sum(p.square().sum() for p in matrices(net)))


# --- one forward for many terms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "forwards"), [(True, 1), (False, 3)])
def test_terms_of_the_plain_call_share_one_forward(share, forwards):
    model, (batch,) = Counted(make_net()), make_data(4)
    terms = {"fit": log_loss, "smooth": UniformLabels(), "mean": lambda model, batch: model(batch[0]).mean()}
    loss = LinearLoss(terms, {"fit": 1.0, "smooth": 0.5, "mean": 0.25}, share_forward=share)
    value = loss(model, batch)
    assert model.forwards == forwards
    inner = model.inner
    expected = log_loss(inner, batch) + 0.5 * UniformLabels()(inner, batch) + 0.25 * inner(batch[0]).mean()
    torch.testing.assert_close(value, expected)


def test_shared_terms_see_one_draw_of_the_models_dropout():
    net, (batch,) = nn.Sequential(nn.Dropout(0.5), make_net()), make_data(20)
    for share in (True, False):
        loss = LinearLoss({"a": log_loss, "b": log_loss}, {"a": 1.0, "b": 1.0}, share_forward=share)
        loss(net, batch)
        assert torch.equal(loss.last["a"], loss.last["b"]) is share


def test_a_later_call_makes_a_forward_of_its_own():
    model, (batch,) = Counted(make_net()), make_data(4)
    loss = LinearLoss({"fit": log_loss}, {"fit": 1.0})
    loss(model, batch)
    loss(model, batch)
    assert model.forwards == 2


def test_one_callable_may_give_several_terms():
    model, (batch,) = Counted(make_net()), make_data(4)
    loss = LinearLoss([several, L2()], {"fit": 1.0, "size": (0, 1), "l2": (0, 1)}, weights={"size": 0.5})
    assert tuple(loss.layout.data) == ("fit", "size")
    value = loss(model, batch)
    assert model.forwards == 1
    values = several(model, batch)
    torch.testing.assert_close(value, values["fit"] + 0.5 * values["size"])


def test_of_several_terms_those_of_weight_0_do_not_count():
    net, (batch,) = make_net(), make_data(4)
    loss = LinearLoss([several], {"fit": 1.0, "size": (0, 1)}, weights={"fit": 1.0})
    torch.testing.assert_close(loss(net, batch), log_loss(net, batch))
    torch.testing.assert_close(loss.last["size"], several(net, batch)["size"])  # it was there anyway


def test_in_a_list_a_term_has_the_name_of_its_function_or_kind():
    net, (batch,) = make_net(), make_data(4)
    loss = LinearLoss([log_loss, UniformLabels(), Dropout(1.0), L1()], {"log_loss": 1.0, "uniform": 1.0, "dropout": 1.0,
                                                                       "l1": 1.0})  # fmt: skip
    loss(net, batch)
    assert not any(value.isnan() for value in loss.last.values())


def test_tasks_start_at_1_and_regularizers_at_their_lower_bounds():
    """Or at the bound nearest to 1; terms of one callable are tasks, and so are callables with a name."""

    def task(model, batch):
        return log_loss(model, batch)

    terms = {"fit": log_loss, "aux": task, "small": task, "large": task, "smooth": UniformLabels(), "l2": L2()}
    terms |= {"drop": Dropout(), "noise": Augmented(lambda x: x)}
    box = {"fit": 1.0, "aux": (0, 10), "small": (0, 0.5), "large": (2, 5), "smooth": (0, 1), "l2": (0.1, 1)}
    loss = LinearLoss(terms, box | {"drop": (0, 3), "noise": (0, 3)})
    expected = {"fit": 1, "aux": 1, "small": 0.5, "large": 2, "smooth": 0, "l2": 0.1, "drop": 0, "noise": 0}
    assert loss.as_dict() == pytest.approx(expected, rel=1e-6)
    listed = LinearLoss([several, UniformLabels(), L2()], {"fit": 1, "size": (0, 9), "uniform": (0, 1), "l2": (0, 1)})
    assert listed.as_dict() == {"fit": 1, "size": 1, "uniform": 0, "l2": 0}


# --- weights ----------------------------------------------------------------------------------------------------------


def test_it_starts_at_the_lower_bounds_and_on_a_simplex_at_equal_weights():
    assert make_loss().as_dict() == {"fit": 1.0, "smooth": 0.0, "l2": 0.0}
    mixture = LinearLoss({"a": log_loss, "b": UniformLabels()}, Box.simplex(["a", "b"]))
    assert mixture.as_dict() == {"a": 0.5, "b": 0.5}


def test_some_weights_can_be_set_and_the_others_stay():
    loss = make_loss(weights={"smooth": 0.25})
    loss.set_weights({"l2": 0.0625})
    assert loss.as_dict() == {"fit": 1.0, "smooth": 0.25, "l2": 0.0625}
    loss.set_weights([1.0, 0.5, 0.0])
    assert loss.weights.tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_a_penaltys_name_stands_for_all_its_weights(kind):
    net = make_net()
    loss = LinearLoss({"fit": log_loss, "l2": L2(groups=by_layer(net))}, {"fit": 1.0, "l2": (0, 1)})
    loss.set_weights({"l2": 0.5})
    assert loss.as_dict() == {"fit": 1.0, "l2/0": 0.5, "l2/3": 0.5}
    loss.set_weights({"l2": kind([0.25, 0.75]), "l2/0": 0.125})
    assert loss.as_dict() == {"fit": 1.0, "l2/0": 0.125, "l2/3": 0.75}


def test_a_mixture_takes_weights_that_sum_to_1():
    loss = LinearLoss({"a": log_loss, "b": UniformLabels()}, Box.simplex(["a", "b"]))
    loss.set_weights({"a": 0.25, "b": 0.75})
    assert loss.as_dict() == {"a": 0.25, "b": 0.75}
    with pytest.raises(InvalidInput, match=r"Weights must lie in Box\(simplex of a, b\)"):
        loss.set_weights({"a": 0.5})


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ({"smooth": 0.6}, InvalidInput, r"Weights must lie in Box\(fit=1, smooth=\[0, 0.5\], l2=\[0, 0.1\]\)"),
        ({"fit": 2.0}, InvalidInput, "Weights must lie in"),
        ({"l2": 0.05, "smooth": -0.1}, InvalidInput, "Weights must lie in"),
        ({"l2": 0.05, "smooth": math.nan}, NotFinite, "`weights` must be finite"),
        ({"l2": 0.05, "other": 1.0}, InvalidInput, r"Weights must be named as in \['fit', 'smooth', 'l2'\]; found 'o"),
        ({"l2": [0.05, 0.05]}, InvalidInput, "'l2' has 1 weights; found 2"),
        ([1.0, 0.1], InvalidInput, "Weights must be 3 numbers"),
    ],
)
def test_bad_weights_are_refused_and_none_is_set(weights, error, message):
    loss = make_loss(weights={"smooth": 0.25})
    with pytest.raises(error, match=message):
        loss.set_weights(weights)
    assert loss.as_dict() == {"fit": 1.0, "smooth": 0.25, "l2": 0.0}


def test_a_write_into_the_buffer_is_noticed():
    net, (batch,) = make_net(), make_data(4)
    loss = make_loss()
    before = loss(net, batch)
    loss.weights[1] = 0.5
    torch.testing.assert_close(loss(net, batch), before + 0.5 * UniformLabels()(net, batch))
    loss.weights = torch.tensor([2.0, 0.0, 0.0])
    torch.testing.assert_close(loss(net, batch), 2 * before)


def test_hundreds_of_weights_have_names_by_layer():
    """20 layers with two penalties each, and hinges of one group: weights by name, value by hand."""
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20))).double()
    groups = by_layer(net)
    terms = {"fit": log_loss, "l1": L1(groups=groups), "l2": L2(groups=groups), "r": ConvexPiecewiseLinear([-0.1, 0.1])}
    loss = LinearLoss(terms, {"fit": 1.0, "l1": (0, 1), "l2": (0, 1), "r": (0, math.inf)}).double()
    layers = [f"{penalty}/{layer}" for penalty in ("l1", "l2") for layer in range(20)]
    assert loss.names == ("fit", *layers, "r/right0", "r/right1", "r/left0", "r/left1")
    w1, w2 = np.linspace(0, 1, 20), np.linspace(1, 0, 20)
    loss.set_weights({"l1": w1, "l2": w2, "r": [1.0, 0.0, 0.0, 3.0]})
    batch = (torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 0]))
    expected = log_loss(net, batch)
    for layer, a, b in zip(net, w1, w2, strict=True):
        x = layer.weight
        expected = expected + a * x.abs().sum() + b * x.square().sum()
        expected = expected + F.relu(x - loss.penalties[2].knots[0, 0]).sum()
        expected = expected + 3 * F.relu(loss.penalties[2].knots[0, 1] - x).sum()
    torch.testing.assert_close(loss(net, batch), expected)


def test_bounds_may_be_given_group_by_group():
    net = make_net()
    loss = LinearLoss({"fit": log_loss, "l2": L2(groups=by_layer(net))}, {"l2": {"3": (0, 2), "0": 0.5}, "fit": 1.0})
    assert repr(loss.box) == "Box(l2/0=0.5, l2/3=[0, 2], fit=1)"
    assert "normalize=False" in repr(loss)


def test_the_order_of_weights_is_that_of_the_box():
    """Terms of weight 1, 2 and 3, whatever comes first."""
    net, (batch,) = make_net(), make_data(4)
    terms = {"l2": L2(), "fit": log_loss, "smooth": UniformLabels()}
    one = LinearLoss(terms, {"fit": 1.0, "smooth": 2.0, "l2": 3.0})
    other = LinearLoss(dict(reversed(terms.items())), {"l2": 3.0, "smooth": 2.0, "fit": 1.0})
    assert (one.names, other.names) == (("fit", "smooth", "l2"), ("l2", "smooth", "fit"))
    torch.testing.assert_close(one(net, batch), other(net, batch))


# --- as a module ------------------------------------------------------------------------------------------------------


def test_weights_and_knots_are_in_the_state_dict():
    """A state, through a file that holds no code, makes a new loss the same."""
    net, (batch,) = make_net(), make_data(4)
    make = lambda: LinearLoss({"fit": log_loss, "r": ConvexPiecewiseLinear(4)}, {"fit": 1.0, "r": (0, 1)})  # noqa: E731
    loss = make()
    loss.place_knots(net)
    loss.set_weights({"r": 0.25})
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    again = make()
    again.load_state_dict(torch.load(file, weights_only=True))
    assert again.as_dict() == loss.as_dict()
    assert again(net, batch) == loss(net, batch)


def test_weights_move_with_to():
    loss = make_loss(weights={"smooth": 0.25})
    assert loss.to(torch.float64).weights.dtype == torch.float64
    assert loss.to("meta").weights.device.type == "meta"


def test_weights_are_not_trained():
    assert list(make_loss().parameters()) == []


def test_the_parameters_of_a_term_that_is_a_module_are_the_losss():
    class Term(nn.Linear):
        def forward(self, model, batch):
            return super().forward(model(batch[0])).mean()

    loss = LinearLoss({"a": Term(3, 1).double()}, {"a": 1.0})
    assert len(list(loss.parameters())) == 2
    loss(make_net(), make_data(3)[0]).backward()
    assert all(p.grad is not None for p in loss.parameters())


@pytest.mark.parametrize("how", ["other names", "other order", "no names"])
def test_the_state_of_another_loss_is_refused_and_nothing_is_changed(how):
    loss = make_loss(weights={"smooth": 0.25})
    if how == "no names":
        state = {"weights": torch.tensor([1.0, 0.5, 0.1])}
    else:
        names = {"other names": ["fit", "dropout", "l2"], "other order": ["l2", "fit", "smooth"]}[how]
        terms = dict.fromkeys(names, log_loss)
        state = LinearLoss(terms, dict.fromkeys(names, 1.0)).state_dict()
    with pytest.raises(InvalidInput, match=r"must be of a loss with the same weights, \['fit', 'smooth', 'l2'\]; foun"):
        loss.load_state_dict(state)
    assert loss.as_dict() == {"fit": 1.0, "smooth": 0.25, "l2": 0.0}


def test_as_a_part_of_a_module_it_loads_with_it_and_may_be_left_out():
    whole = nn.ModuleDict({"model": make_net(), "loss": make_loss(weights={"smooth": 0.25})})
    state = copy.deepcopy(whole.state_dict())
    whole["loss"].set_weights({"smooth": 0.5})
    whole.load_state_dict({name: v for name, v in state.items() if name.startswith("model")}, strict=False)
    assert whole["loss"].as_dict()["smooth"] == 0.5
    whole.load_state_dict(state)
    assert whole["loss"].as_dict()["smooth"] == 0.25


def test_a_copy_is_independent():
    net, (batch,) = make_net(), make_data(4)
    loss = make_loss(weights={"smooth": 0.25})
    before = loss(net, batch)
    other = copy.deepcopy(loss)
    other.weights.copy_(torch.tensor([1.0, 0.5, 0.0]))
    assert loss(net, batch) == before
    torch.testing.assert_close(other(net, batch), before + 0.25 * UniformLabels()(net, batch))
    del loss
    with pytest.raises(InvalidInput, match="must be of a loss with the same weights"):
        other.load_state_dict(LinearLoss({"a": log_loss}, {"a": 1.0}).state_dict())


@pytest.mark.parametrize("writes", range(1, 5))
def test_a_write_into_a_copy_is_noticed(writes):
    """However often either was written to: numbers that were read of the one are not kept for the other."""
    loss = make_loss()
    for _ in range(4):
        loss.weights.copy_(torch.tensor([1.0, 0.25, 0.0]))
    loss.numbers()
    other = copy.deepcopy(loss)
    for _ in range(writes):
        other.weights.copy_(torch.tensor([1.0, 0.5, 0.0]))
    assert (loss.as_dict()["smooth"], other.as_dict()["smooth"]) == (0.25, 0.5)


def test_in_half_precision_its_weights_can_still_be_set():
    """A bound that bfloat16 rounds to the outside does not lock the others."""
    box = {"fit": (0.7, 1), "smooth": (0, 1)}
    loss = LinearLoss({"fit": log_loss, "smooth": UniformLabels()}, box, weights={"smooth": 0.0}).bfloat16()
    loss.set_weights({"smooth": 0.5})
    assert loss.as_dict() == pytest.approx({"fit": 0.7, "smooth": 0.5}, rel=2**-8)


# --- with other things of PyTorch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_gives_the_same_gradients(backend):
    net, (batch,) = make_net(), make_data(6)
    loss = make_loss(weights={"smooth": 0.25, "l2": 0.0625})
    expected = gradient(loss(net, batch), net)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend=backend)
    torch.testing.assert_close(gradient(loss(compiled, batch), net), expected)


def test_under_autocast_it_is_near_the_exact_one():
    net, (batch,) = make_net(dtype=torch.float32), make_data(64, dtype=torch.float32)
    loss = make_loss(weights={"smooth": 0.25, "l2": 0.0625})
    exact = loss(net, batch)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(net, batch)
    assert value != exact
    torch.testing.assert_close(value, exact, rtol=0.02, atol=0)
    torch.testing.assert_close(gradient(value, net), gradient(exact, net), rtol=0.1, atol=0.01)


def test_a_bfloat16_model_trains():
    net, (batch,) = make_net(dtype=torch.bfloat16), make_data(64, dtype=torch.bfloat16)
    terms = {"fit": log_loss, "l1": L1(), "l2": L2(), "r": ConvexPiecewiseLinear([-0.25, 0.25])}
    loss = LinearLoss(terms, {"fit": 1.0, "l1": 0.001, "l2": 0.001, "r": 0.001})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    values = []
    for _ in range(20):
        optimizer.zero_grad()
        value = loss(net, batch)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert all(p.grad.dtype == torch.bfloat16 for p in net.parameters())
    assert values[-1] < values[0]


def test_gradients_accumulate_as_of_any_loss():
    """Two backwards of half batches, halved, are one of the whole."""
    net, data = make_net(), make_data(4, 4)
    loss = make_loss(weights={"smooth": 0.25, "l2": 0.0625})
    for batch in data:
        (loss(net, batch) / 2).backward()
    whole = tuple(torch.cat(parts) for parts in zip(*data, strict=True))
    torch.testing.assert_close([p.grad for p in net.parameters()], list(gradient(loss(net, whole), net)))


def test_tied_and_frozen_parameters():
    """A tied one is penalized once; a frozen one has no gradient and no penalty."""
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)).double()
    net[1].weight = net[0].weight
    net[2].weight.requires_grad_(False)
    (batch,) = make_data(5)
    loss = make_loss(weights={"l2": 0.0625})
    value = loss(net, batch)
    torch.testing.assert_close(value, log_loss(net, batch) + 0.0625 * net[0].weight.square().sum())
    value.backward()
    assert net[2].weight.grad is None


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "box", "message"),
    [
        ({}, {}, "`LinearLoss` needs at least one term; found none"),
        (log_loss, {"a": 1.0}, r"`terms` must be \{name: term\} or a list of terms; found a function"),
        ({"": log_loss}, {"": 1.0}, "Terms must be named by strings; found ''"),
        ({3: log_loss}, {3: 1.0}, "Terms must be named by strings; found 3"),
        ({"a": L2}, {"a": 1.0}, "must be a callable .* or a penalty such as .*; found the class L2 for 'a'"),
        ({"a": 0.5}, {"a": 1.0}, "must be a callable .* found a float for 'a'"),
        ([None], {"a": 1.0}, "must be a callable .* found a NoneType"),
        ([nn.CrossEntropyLoss()], {"a": 1.0}, "must be a callable .* found a CrossEntropyLoss"),
        ({"a": F.mse_loss}, {"a": 1.0}, "must be a callable .* found the function mse_loss for 'a'. Give e.g. lambda"),
        ([L2("a.*"), L2("b.*")], {"l2": 1.0}, r"must have different names; found \['l2', 'l2'\]. Rename"),
        (
            {"l2": L2(groups={"a": "*"}), "l2/a": log_loss},
            {"l2": 1.0, "l2/a": 1.0},
            r"Terms and their weights must have different names; found \['l2/a', 'l2/a'\]",
        ),
        ({"a": log_loss}, {"b": 1.0}, r"names of the terms, \['a'\]; missing \['a'\], unknown \['b'\]. Give each term"),
        ({"a": log_loss, "b": L2()}, {"a": 1.0}, r"missing \['b'\], unknown \[\]"),
        ([log_loss, L2()], {"log_loss": 1.0}, r"missing \['l2'\]"),
        ({"a": log_loss}, Box.from_dict({"b": 1.0}), r"missing \['a'\], unknown \['b'\]"),
        ({"a": log_loss, "b": L2(groups={"x": "*"})}, Box.from_dict({"a": 1.0, "b": 1.0}), r"missing \['b/x'\]"),
        ({"a": log_loss}, [1.0], r"`box` must be a Box or \{term: \(lower, upper\)\}; found list"),
        ({"a": log_loss}, {"a": (0, 1)}, "`Box` must not contain the zero vector"),
        (
            {"a": log_loss, "b": L2(groups={"x": "*"})},
            {"a": 1.0, "b": {"y": 1.0}},
            r"The bounds of 'b' must be given for \['x'\]; found \['y'\]",
        ),
    ],
)
def test_what_is_no_loss_is_refused(terms, box, message):
    with pytest.raises(InvalidInput, match=message):
        LinearLoss(terms, box)


def test_starting_weights_must_lie_in_the_box():
    with pytest.raises(InvalidInput, match="Weights must lie in"):
        make_loss(weights={"smooth": 3.0})


@pytest.mark.parametrize(
    ("term", "found"),
    [
        (lambda model, batch: model(batch[0]).mean(1), r"shape \(4,\). Take the mean"),
        (lambda model, batch: 1.0, "a float. Return the mean as a tensor"),
        (lambda model, batch: None, "a NoneType. Return the mean as a tensor"),
        (lambda model, batch: torch.fft.fft(model(batch[0])).mean(), "a complex number. Take its real part"),
    ],
)
def test_a_term_that_gives_no_scalar_is_refused(term, found):
    loss = LinearLoss({"a": term}, {"a": 1.0})
    with pytest.raises(InvalidInput, match=f"must return a scalar tensor, .*; 'a' returned {found}"):
        loss(make_net(), make_data(4)[0])


def test_a_term_of_one_entry_is_a_scalar():
    net, (batch,) = make_net(), make_data(4)
    loss = LinearLoss({"a": lambda model, batch: log_loss(model, batch).reshape(1, 1)}, {"a": 1.0})
    torch.testing.assert_close(loss(net, batch), log_loss(net, batch))


def test_a_callable_with_several_terms_stands_beside_named_ones():
    """Two augmentations and the tasks of one forward: the tasks have the names that their callable returns."""
    terms = {
        "tasks": several,
        "twice": Augmented(lambda x: 2 * x, of=log_loss),
        "zero": Augmented(lambda x: 0 * x, of=log_loss),
    }
    loss = LinearLoss(terms, {"fit": 1.0, "size": (0, 2), "twice": (0, 1), "zero": (0, 1)})
    assert loss.as_dict() == {"fit": 1.0, "size": 1.0, "twice": 0.0, "zero": 0.0}  # tasks start at 1
    model, batch = nn.Linear(2, 3), (torch.ones(3, 2), torch.tensor([0, 2, 1]))
    loss.set_weights({"twice": 0.5})
    whole = several(model, batch)
    expected = whole["fit"] + whole["size"] + 0.5 * log_loss(model, (2 * batch[0], batch[1]))
    assert loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_callable_with_one_term_under_a_misspelt_name_is_refused_at_its_first_call():
    loss = LinearLoss({"fit": log_loss, "sise": log_loss}, {"fit": 1.0, "size": (0, 1), "smooth": (0, 1)})
    with pytest.raises(InvalidInput, match=r"missing \['size', 'smooth'\], unknown \['sise'\]. Change the box"):
        loss(nn.Linear(2, 3), (torch.ones(3, 2), torch.tensor([0, 2, 1])))


def test_a_named_term_gives_one_value():
    loss = LinearLoss({"a": several}, {"a": 1.0})
    with pytest.raises(InvalidInput, match=r"must return one scalar; 'a' returned \['fit', 'size'\]. To let one"):
        loss(make_net(), make_data(4)[0])


def test_a_term_in_a_list_must_have_a_name():
    loss = LinearLoss([lambda model, batch: log_loss(model, batch)], {"a": 1.0})
    with pytest.raises(InvalidInput, match=r"must have a name; found none for function. Let it return"):
        loss(make_net(), make_data(4)[0])


@pytest.mark.parametrize(
    ("terms", "box", "message"),
    [
        (
            [several],
            {"fit": 1.0},
            r"the names \['fit'\] of the box, each once; found .* missing \[\], unknown \['size'\]",
        ),
        ([several], {"fit": 1.0, "size": 1.0, "third": 1.0}, r"missing \['third'\], unknown \[\]"),
        ([several, lambda m, b: {"fit": m(b[0]).mean()}], {"fit": 1.0, "size": 1.0}, r"found \['fit', 'size', 'fit'\]"),
        ([lambda model, batch: {}], {"fit": 1.0}, r"found \[\]: missing \['fit'\]"),
    ],
)
def test_names_that_differ_from_the_box_are_refused_at_every_call(terms, box, message):
    """Also at the second: the first one has left no trace."""
    loss = LinearLoss(terms, box)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=message):
            loss(make_net(), make_data(4)[0])


def test_a_term_must_keep_its_names():
    names = iter("ab")
    loss = LinearLoss([lambda model, batch: {next(names): log_loss(model, batch)}], {"a": 1.0})
    net, (batch,) = make_net(), make_data(4)
    loss(net, batch)
    with pytest.raises(InvalidInput, match=r"must return the same names every time; found \['b'\] after \['a'\]"):
        loss(net, batch)


def test_a_penalty_needs_a_model_that_is_trained():
    with pytest.raises(InvalidInput, match="must have parameters that are trained"):
        make_loss(weights={"l2": 0.0625})(make_net().requires_grad_(False), make_data(4)[0])


def test_normalizing_needs_weights_that_are_not_negative():
    terms = {"fit": lambda m, b: m(b).mean(), "aux": lambda m, b: m(b).square().mean()}
    with pytest.raises(InvalidInput, match="With normalize=True the weights of data terms must not be negative"):
        LinearLoss(terms, {"fit": 1.0, "aux": (-1.0, 1.0)}, normalize=True)
