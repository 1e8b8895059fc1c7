"""Which parameters a penalty is of."""

import pytest
import torch
from torch import nn

from tests.torch.reference import Tied
from tuneloss.errors import InvalidInput
from tuneloss.torch import by_layer
from tuneloss.torch.terms.selection import in_groups, matches
from tuneloss.torch.wrappers import trainable


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
