"""Which parameters a penalty is of."""

import pytest
import torch
from torch import nn

from tests.torch.reference import log_loss
from tuneloss.errors import InvalidInput
from tuneloss.torch import L2, LinearLoss, OnlineTuner, by_layer, observe
from tuneloss.torch.terms.selection import in_groups, matches, trainable


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.frozen = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight
        self.frozen.requires_grad_(False)


def test_a_tied_parameter_is_trained_once_and_a_frozen_one_not_at_all():
    assert list(trainable(Tied())) == ["encoder.weight", "encoder.bias", "decoder.bias"]


def test_wrappers_leave_no_trace_in_names():
    """A compiled model, and one with a compiled part, have the names of the plain one."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    plain = trainable(net)
    assert trainable(torch.compile(net, backend="eager")) == plain
    net[1] = torch.compile(net[1], backend="eager")
    assert trainable(net) == plain


def test_a_model_without_trained_parameters_is_refused():
    with pytest.raises(InvalidInput, match=r"must have parameters that are trained .* found none. Unfreeze some"):
        trainable(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(InvalidInput, match="must have parameters that are trained"):
        trainable(nn.ReLU())


class Complex(nn.Module):
    """A real output of a complex matrix."""

    def __init__(self):
        super().__init__()
        self.mix, self.last = nn.Parameter(torch.randn(4, 4, dtype=torch.cfloat)), nn.Linear(4, 3)

    def forward(self, x):
        return self.last((x.to(self.mix.dtype) @ self.mix).abs())


def test_complex_parameters_are_refused_unless_they_are_frozen():
    net = Complex()
    with pytest.raises(InvalidInput, match=r"must be real; found complex ones: \['mix'\]. Keep real and imaginary"):
        trainable(net)
    net.mix.requires_grad_(False)
    assert list(trainable(net)) == ["last.weight", "last.bias"]


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("door", [observe, OnlineTuner])
def test_a_complex_model_is_refused_at_every_door(door):
    """Without a penalty too: the gram would have only the real parts."""
    data = [(torch.randn(5, 4), torch.randint(3, (5,)))]
    loss = LinearLoss({"fit": log_loss}, {"fit": 1.0})
    with pytest.raises(InvalidInput, match=r"must be real; found complex ones: \['mix'\]"):
        door(Complex(), loss, log_loss, data, data)


@pytest.mark.parametrize("model", [None, nn.Linear, [nn.Linear(2, 2)], iter([])], ids=["None", "class", "list", "iter"])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(InvalidInput, match=f"`model` must be a torch.nn.Module; found a {type(model).__name__}. Give"):
        trainable(model)


LAZY = {
    r"'0\.weight', '0\.bias'": lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3)),
    r"'1\.running_mean'": lambda: nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d(affine=False), nn.Linear(4, 3)),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("door", [observe, OnlineTuner])
@pytest.mark.parametrize("names", LAZY)
def test_a_lazy_model_is_refused_until_it_was_called(door, names):
    """Parameters and buffers: observing would give them their shapes."""
    net, data = LAZY[names](), [(torch.randn(5, 4), torch.randint(3, (5,)))]
    loss = LinearLoss({"fit": log_loss, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)})
    with pytest.raises(
        InvalidInput, match=f"must have shapes; found lazy ones .*{names}.*Call the model once on a batch"
    ):
        door(net, loss, log_loss, data, data)
    net(data[0][0])
    door(net, loss, log_loss, data, data)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_model_has_no_penalty_and_no_layers_yet():
    net, batch = nn.Sequential(nn.LazyLinear(3)), (torch.randn(5, 4), torch.randint(3, (5,)))
    loss = LinearLoss({"fit": log_loss, "l2": L2()}, {"fit": 1.0, "l2": (0.1, 1)})
    with pytest.raises(InvalidInput, match="found lazy ones that have none yet"):
        loss(net, batch)
    with pytest.raises(InvalidInput, match="found lazy ones that have none yet"):
        by_layer(net)


def test_what_is_selected_if_nothing_is_said_is_what_weight_decay_is_of():
    """Matrices and kernels; neither biases nor the scales of norms."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2), nn.LayerNorm(2))
    assert [name for name, p in net.named_parameters() if matches(None, name, p)] == ["0.weight", "3.weight"]


@pytest.mark.parametrize("select", ["encoder.*", ["encoder.w*", "encoder.bias"], lambda name, p: "encoder" in name])
def test_patterns_and_functions_select_alike(select):
    params = trainable(Tied())
    assert [n for n, p in params.items() if matches(select, n, p)] == ["encoder.weight", "encoder.bias"]


def test_a_name_selects_itself_even_if_it_looks_like_a_pattern():
    net = nn.ModuleDict({"a[0]": nn.Linear(2, 2)})
    assert in_groups(by_layer(net), trainable(net)) == {"a[0].weight": 0}


def test_layers_share_out_all_matrices():
    """Each is in one layer's group; a parameter of the model itself is a layer of its own."""
    net = Tied()
    net.table = nn.Parameter(torch.zeros(3, 3))
    groups = by_layer(net)
    assert groups == {"table": ["table"], "encoder": ["encoder.weight"]}
    assert set(in_groups(groups, trainable(net))) == {n for n, p in trainable(net).items() if p.ndim >= 2}


def test_a_group_without_parameters_is_refused():
    with pytest.raises(InvalidInput, match=r"found none for 'head' \(head.*\) among \['encoder.weight'"):
        in_groups({"head": "head.*"}, trainable(Tied()))
    with pytest.raises(InvalidInput, match=r"found none for 'all' \(matrices and kernels\)"):
        in_groups({"": None}, trainable(nn.LayerNorm(3)))


def test_a_parameter_in_two_groups_is_refused():
    with pytest.raises(InvalidInput, match=r"found \['encoder.weight', 'encoder.bias'\] in two. .* patterns of 'b'"):
        in_groups({"a": "encoder.*", "b": "e*"}, trainable(Tied()))
