"""What wraps a model is seen through, and terms share one forward.

`observing/test_processes.py`, which starts processes, tests sharded models.
"""

from copy import deepcopy

import pytest
import torch
from torch import nn

from tests.torch.reference import Counted, Tied, log_loss, make_data, make_net
from tuneloss.errors import InvalidInput
from tuneloss.torch import L2, LinearLoss, OnlineTuner, by_layer, observe
from tuneloss.torch.wrappers import SharedForward, bare, clean_name, gathered, local, local_part, trainable


def test_wrappers_leave_no_trace_in_names():
    net = make_net()
    wrapped = nn.DataParallel(torch.compile(deepcopy(net), backend="eager"))
    assert [clean_name(name) for name, _ in bare(wrapped).named_parameters()] == [n for n, _ in net.named_parameters()]


def test_a_tied_parameter_is_trained_once_and_a_frozen_one_not_at_all():
    assert list(trainable(Tied())) == ["encoder.weight", "encoder.bias", "decoder.bias"]


def test_a_compiled_model_and_one_with_a_compiled_part_have_the_names_of_the_plain_one():
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


def test_a_plain_model_is_bare():
    net = make_net()
    assert bare(net) is net


def test_a_plain_parameter_is_its_own_part():
    """Detached and not copied, unless its gradient is asked for."""
    weight = make_net()[0].weight
    assert local_part(weight) is weight
    for part in (local(weight), gathered(weight)):
        assert part.data_ptr() == weight.data_ptr()
        assert not part.requires_grad


def test_the_same_call_by_several_terms_is_made_once():
    model, ((x, _),) = Counted(make_net()), make_data(4)
    shared = SharedForward(model)
    first = shared(x)
    shared.next_term()
    assert shared(x) is first
    assert model.forwards == 1
    shared(x.clone())
    assert model.forwards == 2


def test_two_calls_of_one_term_are_two_forwards():
    """The next term shares both, in their order; a third call is a forward of its own."""
    model, ((x, _),), forwards = make_net(), make_data(4), []
    model.register_forward_hook(lambda *args: forwards.append(1))
    shared = SharedForward(model)
    views = shared(x), shared(x)
    assert views[0] is not views[1]
    shared.next_term()
    again = shared(x), shared(x)
    assert again[0] is views[0]
    assert again[1] is views[1]
    assert len(forwards) == 2
    shared(x)
    assert len(forwards) == 3


def test_two_views_under_dropout_differ():
    """R-Drop: a term that compares two draws of the model's dropout is not 0."""
    model, (batch,) = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5)).double(), make_data(4)

    def apart(model, batch):
        return (model(batch[0]) - model(batch[0])).square().mean()

    def size(model, batch):
        return model(batch[0]).square().mean()

    loss = LinearLoss({"size": size, "apart": apart}, box={"size": 1.0, "apart": 1.0})
    loss(model, batch)
    assert loss.last["apart"] > 0.1 * loss.last["size"]


@pytest.mark.parametrize(
    "change",
    [
        lambda model, x, z: x.add_(1.0),
        lambda model, x, z: z.detach().mul_(2.0),
        lambda model, x, z: setattr(model, "mark", 3),
        lambda model, x, z: model.switch(),
        lambda model, x, z: model.register_forward_hook(lambda *args: None),
        lambda model, x, z: next(iter(model.parameters())).detach().add_(1.0),
        lambda model, x, z: next(iter(model.modules())).eval(),
    ],
    ids=["input", "output", "attribute", "method", "hook", "parameter", "mode"],
)
def test_a_changed_model_input_or_output_ends_sharing(change):
    class Switched(Counted):
        def switch(self):
            self.switched = True

    model, ((x, _),) = Switched(make_net()), make_data(4)
    shared = SharedForward(model)
    z = shared(x)
    change(shared, x, z)
    shared.next_term()
    shared(x)
    assert model.forwards == 2


def test_a_batch_that_is_a_dict_may_be_changed():
    model, ((x, _),) = Counted(make_net()), make_data(4)
    net = nn.Module()
    net.forward = lambda batch: model(batch["x"])
    shared, batch = SharedForward(net), {"x": x}
    first = shared(batch)
    shared.next_term()
    assert shared(batch) is first
    batch["x"] = 2 * x
    shared.next_term()
    torch.testing.assert_close(shared(batch), model(2 * x))


def test_what_changes_nothing_does_not_end_sharing():
    class WithCriterion(Counted):
        def criterion(self, z):
            return z.mean()

    model, ((x, _),) = WithCriterion(make_net()), make_data(4)
    shared = SharedForward(model)
    shared.criterion(shared(x))
    assert list(shared.named_parameters())
    assert shared.training
    shared.next_term()
    shared.criterion(shared(x))
    assert model.forwards == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: ({"rgb": x},), lambda x: ({"flow": x},)),
        (lambda x: ((x, x), (x,)), lambda x: ((x,), (x, x))),
        (lambda x: (x, 1), lambda x: (x, 2)),
    ],
)
def test_calls_of_another_structure_are_other_calls(one, other):
    calls = []
    model, ((x, _),) = nn.Module(), make_data(4)
    model.forward = lambda *args: calls.append(args) or x
    shared = SharedForward(model)
    for args in (one(x), other(x), one(x)):
        shared(*args)
        shared.next_term()
    assert len(calls) == 2


def test_a_compiled_step_has_no_more_graphs_with_more_terms():
    """Sharing is traced, however many terms call the model."""
    from torch._dynamo import explain

    net, (batch,) = make_net(), make_data(8)

    def graphs(n):
        terms = {f"t{i}": lambda model, batch, i=i: (model(batch[0]) * (i + 1)).square().mean() for i in range(n)}
        loss = LinearLoss(terms, dict.fromkeys(terms, 1.0))
        torch._dynamo.reset()
        return explain(lambda x, y: loss(net, (x, y)))(*batch).graph_count

    assert graphs(4) <= graphs(1)


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
    shared.next_term()
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
