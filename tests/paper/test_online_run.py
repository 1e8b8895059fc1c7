"""Figure 3: the trainer and the tuner share one model; the learned penalty is the one that is trained with."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

torch = pytest.importorskip("torch")

from tuneloss.paper import online_run  # noqa: E402
from tuneloss.paper.datasets import digits  # noqa: E402
from tuneloss.paper.online_run import (  # noqa: E402
    ONLINE,
    OnlineRun,
    drawn_regularizer,
    kept_epochs,
    learned_loss,
    log_loss,
    shared_model,
    train_epoch,
)
from tuneloss.paper.trainer import AdaGrad  # noqa: E402
from tuneloss.paper.tuner_runs import loss_and_error  # noqa: E402
from tuneloss.tuning import OnlinePolicy  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """On small matrices more threads wait for each other, the more so on a busy machine."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


@pytest.fixture
def trainer():
    return AdaGrad(digits(0, n_train=60), np.random.default_rng(0))


def test_the_model_is_the_trainers_params(trainer):
    """After an epoch torch's log loss is NumPy's, without a copy."""
    split, model = digits(0, n_train=60), shared_model(trainer)
    train_epoch(trainer, learned_loss())
    batch = torch.tensor(split.test_x, dtype=torch.float32), torch.tensor(split.test_y)
    expected, _ = loss_and_error(trainer.params.T.astype(float), split.test_x, split.test_y)
    assert log_loss(model, batch).item() == pytest.approx(expected, rel=1e-5)


def test_an_epoch_follows_the_learned_penalty(trainer):
    """A steep penalty pulls the params to 0; the regularizer in the record is the sum of its hinges."""
    model, loss = shared_model(trainer), learned_loss()
    train_epoch(trainer, loss)
    before = model.weight.abs().sum().item()
    loss.place_knots(model)
    _, term, places = loss.layout.penalties[0]
    weights = torch.zeros(len(places))
    knots = term.knots[0]
    right, left = int((knots.abs()).argmin()), int((knots.abs()).argmin())
    weights[right] = weights[50 + left] = 5.0
    loss.set_weights({f"learned/{label}": float(w) for label, w in zip(term.labels(), weights, strict=True)})
    drawn = drawn_regularizer(loss)
    np.testing.assert_allclose(drawn["values"], 5 * np.abs(np.array(drawn["knots"]) - float(knots[right])), atol=2e-3)
    for _ in range(5):
        train_epoch(trainer, loss)
    assert model.weight.abs().sum().item() < 0.7 * before


def test_the_weights_of_a_record_are_those_that_its_best_epoch_was_trained_with(monkeypatch):
    """Of eight epochs, each with weights of its own, the fifth is made to look best."""
    trained_with = []

    def noted(trainer, loss):
        trained_with.append({name: float(f"{weight:.4g}") for name, weight in loss.as_dict().items()})
        train_epoch(trainer, loss)

    measure = online_run.measure
    monkeypatch.setattr(online_run, "train_epoch", noted)
    monkeypatch.setattr(
        online_run, "measure", lambda *args: measure(*args) | {"validation_loss": 1 + abs(len(trained_with) - 5)}
    )
    monkeypatch.setitem(ONLINE, "tuneloss", OnlinePolicy(start="now"))
    (record,) = OnlineRun("figure3", "digits", "tuneloss", 0, 8).run()
    assert record["best_epoch"] == 5
    assert record["weights"] == trained_with[4]
    assert record["weights"] not in trained_with[:4] + trained_with[5:]


def test_a_run_is_a_function_of_its_seed():
    first, again, other = (OnlineRun("figure3", "digits", "tuneloss", seed, 2).run()[0] for seed in (1, 1, 2))
    assert first["curves"] == again["curves"] != other["curves"]


def test_kept_epochs_hold_the_first_and_the_last():
    assert kept_epochs(3) == [1, 2, 3]
    assert kept_epochs(1000)[:20] == list(range(1, 21))
    assert kept_epochs(1000)[-1] == 1000
    assert len(kept_epochs(1000)) < 100
