"""Products with the jacobian of a model's outputs, by forward mode and by double backward, against autograd."""

import pytest
import torch
from torch import nn

from tuneloss.torch.observing import jacobian
from tuneloss.torch.observing.jacobian import Call, Jacobian


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def convolutional():
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


class TwoOutputs(nn.Module):
    """Two outputs of shapes of their own, from layers that share a matrix, and a number that is no tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x, *, times=1.0):
        self.hidden = self.first(x).sin()
        return {"hidden": self.hidden.sum(1), "step": 7, "scores": times * self.last(self.hidden)}


class Recurrent(nn.Module):
    """A GRU and a linear layer."""

    def __init__(self):
        super().__init__()
        self.gru, self.last = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.gru(x.unflatten(1, (3, 2)))[0][:, -1])


class Changing(nn.Module):
    """A model whose second forward differs from the first."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.forwards, self.change = mlp(), [], change

    def forward(self, x):
        self.forwards.append(1)
        return self.inner(x) if len(self.forwards) == 1 else self.change(self.inner(x))


def with_dropout():
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))


def with_batch_norm():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def make(build, **kwargs):
    """A model in training mode, one call of it, its parameters, and the dense jacobian (outputs, params)."""
    torch.manual_seed(0)
    model, x = build().double(), torch.randn(7, 6).double()
    returned = model(x, **kwargs)
    outputs = {0: returned["hidden"], 2: returned["scores"]} if isinstance(returned, dict) else {0: returned}
    params = list(model.parameters())
    values = [z for output in outputs.values() for z in output.flatten()]
    rows = [torch.autograd.grad(z, params, retain_graph=True, materialize_grads=True) for z in values]
    return model, Call((x,), kwargs, outputs), params, torch.stack([flat(row, 0) for row in rows])


def flat(parts, start=1):
    return torch.cat([part.flatten(start) for part in parts], dim=start)


def assert_products_are_right(model, call, params, dense):
    """J v of five random vectors, and J' u of four."""
    jac = Jacobian(model, [call], range(len(call.outputs)), params)
    torch.manual_seed(1)
    v = [torch.randn(5, *p.shape).double() for p in params]
    u = [torch.randn(4, *z.shape).double() for z in call.outputs.values()]
    torch.testing.assert_close(flat(jac.changes(v)), flat(v) @ dense.T)
    torch.testing.assert_close(flat(jac.pulled(u)), flat(u) @ dense)


@pytest.fixture
def slow_ways(monkeypatch):
    """One entry per jacobian that took two passes backward."""
    taken = []
    original = jacobian._double_backward
    monkeypatch.setattr(jacobian, "_double_backward", lambda *args: taken.append(1) or original(*args))
    return taken


@pytest.mark.parametrize(
    ("build", "kwargs"), [(mlp, {}), (convolutional, {}), (Recurrent, {}), (TwoOutputs, {"times": 2.0})]
)
@pytest.mark.parametrize("forward", [True, False])
def test_products_are_those_of_the_dense_jacobian(monkeypatch, slow_ways, build, kwargs, forward):
    """Either way, also with two outputs, a shared parameter and keyword arguments."""
    if not forward:
        monkeypatch.setattr(jacobian, "_forward_mode", lambda *args: None)
    assert_products_are_right(*make(build, **kwargs))
    assert len(slow_ways) == (not forward)


@pytest.mark.parametrize(
    "build",
    [
        with_dropout,
        with_batch_norm,
        lambda: Changing(lambda z: 1.01 * z),
        lambda: Changing(lambda z: z[:, :2]),
    ],
    ids=["dropout", "batch norm", "other values", "another shape"],
)
def test_what_forward_mode_cannot_repeat_takes_two_passes_backward(slow_ways, build):
    """Dropout draws anew, batch norm changes its statistics, and another output is noticed."""
    assert_products_are_right(*make(build))
    assert slow_ways == [1]


def test_inputs_that_depend_on_parameters_take_two_passes_backward(slow_ways):
    """A second call would see them as constants."""
    model, call, params, _ = make(mlp)
    (x,) = call.args
    inputs = x * model[0].bias.sum()
    output = model(inputs)
    rows = [torch.autograd.grad(z, params, retain_graph=True) for z in output.flatten()]
    assert_products_are_right(model, Call((inputs,), {}, {0: output}), params, torch.stack([flat(r, 0) for r in rows]))
    assert slow_ways == [1]


@pytest.mark.parametrize("forward", [True, False])
def test_some_parameters_give_their_columns(monkeypatch, slow_ways, forward):
    """The others are constants, and leave no graph behind."""
    if not forward:
        monkeypatch.setattr(jacobian, "_forward_mode", lambda *args: None)
    model, call, params, dense = make(convolutional)
    columns = flat([torch.full((1, p.numel()), i < 2) for i, p in enumerate(params)])[0]
    assert_products_are_right(model, call, params[:2], dense[:, columns])
    vectors = [torch.ones(3, *p.shape).double() for p in params[:2]]
    assert not any(change.requires_grad for change in Jacobian(model, [call], [0], params[:2]).changes(vectors))


def test_many_products_are_computed_in_parts():
    model, call, params, dense = make(mlp)
    n = sum(p.numel() for p in params)
    assert n > 2 * jacobian.AT_ONCE
    parts = torch.eye(n).double().split([p.numel() for p in params], dim=1)
    vectors = [part.reshape(-1, *p.shape) for part, p in zip(parts, params, strict=True)]
    (changes,) = Jacobian(model, [call], [0], params).changes(vectors)
    torch.testing.assert_close(changes.flatten(1).T, dense)


def test_attributes_of_the_model_stay_as_they_are():
    """Also activations that a forward keeps: those of a differentiated forward are of no use afterwards."""
    model, call, params, dense = make(TwoOutputs)
    hidden = model.hidden
    assert_products_are_right(model, call, params, dense)
    assert model.hidden is hidden


def test_without_outputs_every_product_is_0():
    jac = Jacobian(mlp(), [], [], list(mlp().parameters()))
    assert list(jac.changes([])) == list(jac.pulled([])) == []
