"""What wraps a model is seen through. `observing/test_processes.py`, which starts processes, tests sharded models."""

from copy import deepcopy

import torch
from torch import nn

from tests.torch.reference import make_net
from tuneloss.torch.shards import gathered, is_sharded, local, local_part
from tuneloss.torch.wrappers import bare, clean_name


def test_wrappers_leave_no_trace_in_names():
    net = make_net()
    wrapped = nn.DataParallel(torch.compile(deepcopy(net), backend="eager"))
    assert [clean_name(name) for name, _ in bare(wrapped).named_parameters()] == [n for n, _ in net.named_parameters()]


def test_a_plain_model_is_bare_and_not_sharded():
    net = make_net()
    assert bare(net) is net
    assert not is_sharded(net)


def test_a_plain_parameter_is_its_own_part():
    """Detached and not copied, unless its gradient is asked for."""
    weight = make_net()[0].weight
    assert local_part(weight) is weight
    for part in (local(weight), gathered(weight)):
        assert part.data_ptr() == weight.data_ptr()
        assert not part.requires_grad
