"""The programs of the page on Lightning and skorch do what the page says."""

import re

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("skorch")

import torch
from sklearn.base import clone
from torch.utils.data import DataLoader, TensorDataset

from tests.test_docs import DOCS, run
from tuneloss.torch import OnlineTuner

PAGE = (DOCS / "lightning.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The names that the programs define."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("lightning"))
        torch.manual_seed(0)
        names, _ = run("lightning.md")
    return names


def test_the_first_program_has_at_most_25_lines():
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(first.splitlines()) <= 25


def test_the_best_checkpoint_is_that_of_the_least_error(names):
    tuner = names["callbacks"][0].tuner
    assert len(tuner.history) <= 20
    assert names["best"].best_model_score.item() == pytest.approx(tuner.best.error)
    assert set(tuner.loss.as_dict()) == {"logloss", "smooth", "l2"}


def test_the_tests_that_the_page_names_exist():
    tests = (DOCS.parent / "tests" / "integrations" / "test_lightning.py").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) == 9
    assert all(f"def {name}(" in tests for name in named)


def test_the_classifier_of_skorch_learns_what_a_plain_loop_learns(names):
    """For 5 epochs, bit by bit; a clone of a fitted classifier is a new one."""
    x, y = names["x"][:520].float() / 16, names["y"][:520]
    classifier = clone(names["classifier"]).set_params(max_epochs=5)
    torch.manual_seed(0)
    classifier.fit(x.numpy(), y.numpy())
    torch.manual_seed(0)
    net, loss = names["Net"](), names["LinearLoss"](**classifier.get_params_for("criterion"))
    split = classifier.get_split_datasets(x.numpy(), y.numpy())
    train, validation = (TensorDataset(x[part.indices], y[part.indices]) for part in split)
    train, validation = DataLoader(train, batch_size=20), DataLoader(validation, batch_size=20)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    tuner = OnlineTuner(net, loss, names["log_loss"], train, validation)
    for _ in range(5):
        for batch in train:
            optimizer.zero_grad()
            loss(net, batch).backward()
            optimizer.step()
        tuner.step()
    assert classifier.history[:, "tuneloss/error"] == [record.error for record in tuner.history]
    assert classifier.history[:, "tuneloss/weight/smooth"] == [record.weights["smooth"] for record in tuner.history]
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), classifier.module_.parameters(), strict=True))


def test_the_classifier_of_skorch_is_a_classifier(names):
    x, y = names["x"][520:].float().numpy() / 16, names["y"][520:].numpy()
    classifier = names["classifier"]
    assert len(names["errors"]) == 20
    assert classifier.predict_proba(x).sum(1) == pytest.approx(1, rel=1e-5)
    assert classifier.score(x, y) > 0.85
