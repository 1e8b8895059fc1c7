"""The page of an online run explains the weights that are used: by the step that set them, not by another one."""

import re

import numpy as np
import pytest

from tuneloss.report.online_explanation import setting_run, term_cosines
from tuneloss.report.run_charts import progress_charts
from tuneloss.report.runs_info import read_runs
from tuneloss.report.runs_page import runs_page
from tuneloss.report.words import weight_text

torch = pytest.importorskip("torch")


@pytest.fixture
def tuner():
    """Eight epochs of a small model, with a metric."""
    from tuneloss.torch import L2, LinearLoss, OnlineTuner, UniformLabels

    torch.manual_seed(0)
    x, y = torch.randn(80, 6), torch.randint(0, 3, (80,))
    train, validation = [(x[:40], y[:40])], [(x[40:], y[40:])]
    model = torch.nn.Linear(6, 3)

    def log_loss(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    def wrong(model, batch):
        return (model(batch[0]).argmax(1) != batch[1]).double().mean()

    terms = {"logloss": log_loss, "l2": L2(), "uniform": UniformLabels()}
    loss = LinearLoss(terms, box={"logloss": 1.0, "l2": (0.0, 1.0), "uniform": (0.0, 1.0)})
    tuner = OnlineTuner(model, loss, log_loss, train, validation, metric=wrong)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(8):
        optimizer.zero_grad()
        loss(model, train[0]).backward()
        optimizer.step()
        tuner.step()
    return tuner


def test_the_step_that_is_explained_set_the_weights_of_the_loss(tuner, tmp_path):
    info = read_runs(tuner.write_journal(tmp_path / "run.jsonl"))
    run = setting_run(info)
    assert run.step.next_weights(run.weights) == pytest.approx(tuner.loss.as_dict(), rel=1e-5)
    page = runs_page(info)
    assert f"set by the step after epoch {run.step.number}" in page
    assert "only gradients count, of the last 3 epochs" in page
    texts = [weight_text(weights["l2"]) for weights in (run.weights, run.step.learned, tuner.loss.as_dict())]
    assert f"<tr><td>L2</td><td>{'</td><td>'.join(texts)}</td></tr>" in page
    assert info.learned is None  # nothing is learned anew
    assert not re.search(r"\bruns?\b \d", page)  # epochs are called epochs


def test_the_metric_is_drawn_first_and_the_error_on_its_own_axes(tuner, tmp_path):
    charts = progress_charts(read_runs(tuner.write_journal(tmp_path / "run.jsonl")))
    assert [chart.title for chart in charts] == ["metric", "validation error"]
    assert list(charts[0].series[0].y) == [record.metric for record in tuner.history]
    assert list(charts[1].series[0].y) == [record.error for record in tuner.history]


def test_weights_that_no_step_set_are_said_to_be_set_by_hand(tuner, tmp_path):
    tuner.loss.set_weights({"logloss": 1.0, "l2": 0.123, "uniform": 0.456})
    info = read_runs(tuner.write_journal(tmp_path / "run.jsonl"))
    assert setting_run(info) is None
    assert "The weights were not set by a step, but by `hold` or by hand." in runs_page(info)


def test_a_restored_model_has_the_weights_of_the_step_before_it(tuner, tmp_path):
    tuner.restore_best()
    info = read_runs(tuner.write_journal(tmp_path / "run.jsonl"))
    assert info.best is not info.runs[-1]
    assert setting_run(info) is info.runs[info.runs.index(info.best) - 1]
    assert "was restored, and its weights with it." in runs_page(info)


def test_cosines_of_terms_are_those_of_their_gradients():
    jacobian, gradient = np.array([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0]]), np.array([3.0, 3.0])
    columns = np.column_stack([jacobian, gradient])
    assert term_cosines(columns.T @ columns) == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0])
