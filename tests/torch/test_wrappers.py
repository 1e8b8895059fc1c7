"""What wraps a model is seen through, and terms share one forward.

`observing/test_processes.py`, which starts processes, tests sharded models.
"""

from copy import deepcopy

import torch
from torch import nn

from tests.torch.reference import Counted, make_data, make_net
from tuneloss.torch import LinearLoss
from tuneloss.torch.wrappers import SharedForward, bare, clean_name, gathered, is_sharded, local, local_part


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


def test_the_same_call_on_the_same_tensors_is_made_once():
    model, ((x, _),) = Counted(make_net()), make_data(4)
    shared = SharedForward(model)
    assert shared(x) is shared(x)
    assert model.forwards == 1
    shared(x.clone())
    assert model.forwards == 2


def test_what_changes_the_answer_is_another_call():
    """Mode, gradients, autocast, and arguments by name."""
    model, ((x, _),) = Counted(make_net()), make_data(4)
    shared = SharedForward(model)
    shared(x)
    with torch.no_grad():
        assert not shared(x).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        shared(x)
    shared.eval()
    shared(x)
    shared(input=x)
    assert model.forwards == 5
    shared(input=x)
    assert model.forwards == 5


def test_the_stand_in_is_the_model_in_all_else():
    net = make_net()
    shared = SharedForward(net)
    assert shared[0] is net[0]
    assert len(shared) == 4
    assert list(shared) == list(net)
    assert list(shared.parameters()) == list(net.parameters())
    shared.mark = 3
    assert net.mark == 3
    assert bool(SharedForward(nn.Sequential()))


def test_a_term_may_use_parts_of_the_model():
    net, (batch,) = make_net(), make_data(4)
    loss = LinearLoss({"first": lambda model, batch: model[0](batch[0]).square().mean()}, box={"first": 1.0})
    torch.testing.assert_close(loss(net, batch), net[0](batch[0]).square().mean())
