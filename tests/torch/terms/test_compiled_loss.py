"""A whole training step under torch.compile: the loss has its present weights, and knows the learned penalty."""

import pytest
import torch
from torch import nn

from tuneloss.torch import L2, ConvexPiecewiseLinear, LinearLoss

pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # of torch's own, while it traces


def log_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.fixture
def scene():
    torch.manual_seed(0)
    return nn.Linear(6, 3), (torch.randn(8, 6), torch.randint(3, (8,)))


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_step_has_the_weights_of_now(scene, backend):
    """Given to the constructor, set later, and loaded."""
    model, batch = scene
    loss = LinearLoss({"fit": log_loss, "l2": L2()}, {"fit": 1.0, "l2": (0, 1)}, weights={"fit": 1.0, "l2": 0.1})
    compiled = torch.compile(lambda: loss(model, batch), backend=backend)
    assert compiled().item() == pytest.approx(loss(model, batch).item(), rel=1e-5)
    for weight in (0.7, 0.0):
        loss.set_weights({"l2": weight})
        assert compiled().item() == pytest.approx(loss(model, batch).item(), rel=1e-5)
        compiled()
        assert loss.last["fit"].item() == pytest.approx(log_loss(model, batch).item(), rel=1e-5)
        assert loss.last["l2"].isnan() == (weight == 0)
    loss.load_state_dict({**loss.state_dict(), "weights": torch.tensor([1.0, 0.3])})
    assert compiled().item() == pytest.approx(loss(model, batch).item(), rel=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_step_with_a_learned_penalty(scene, backend):
    model, batch = scene
    learned = ConvexPiecewiseLinear([-0.2, 0.0, 0.2])
    loss = LinearLoss({"fit": log_loss, "r": learned}, {"fit": 1.0, "r": (0, 1)})
    loss.set_weights({"r": 0.05})
    compiled = torch.compile(lambda: loss(model, batch), backend=backend)
    for weight in (0.05, 0.2):
        loss.set_weights({"r": weight})
        found, right = compiled(), loss(model, batch)
        assert found.item() == pytest.approx(right.item(), rel=1e-5)
        grads = [torch.autograd.grad(value, model.weight)[0] for value in (found, right)]
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)
