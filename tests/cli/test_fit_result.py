"""What `tuneloss fit` prints about its models."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tuneloss.cli import app
from tuneloss.cli.fit_result import verdict
from tuneloss.sklearn.comparison import ModelComparison
from tuneloss.sklearn.estimator import TunedLogisticRegression


def fit(*arguments):
    done = CliRunner().invoke(app, ["fit", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def compared(tuned, rival, difference):
    scores = {"majority class": {"test log loss": 9.0}, "plain": {"test log loss": rival}}
    differences = {"majority class": (-9.0, -8.0), "plain": difference}
    return ModelComparison(
        TunedLogisticRegression(), [], scores | {"tuned": {"test log loss": tuned}}, differences=differences
    )


@pytest.mark.parametrize(
    ("tuned", "rival", "difference", "words"),
    [
        (0.3, 0.4, (-0.2, -0.1), 'better than the best other model, "plain": test log loss 0.3000 against 0.4000, 25%'),
        (0.3, 0.4, (-0.2, 0.1), "cannot be told apart on these rows: test log loss 0.3000 against 0.4000, and the"),
        (0.4, 0.3, (-0.2, 0.3), "difference is -0.2000 to 0.3000. The plain model does as well."),
        (0.4, 0.3, (0.05, 0.2), 'A plain model is better: "plain" has test log loss 0.3000, the tuned model 0.4000.'),
    ],
)
def test_the_verdict_follows_the_interval_of_the_difference(tuned, rival, difference, words):
    assert words in verdict(compared(tuned, rival, difference))


def test_on_wine_a_plain_model_is_better_and_the_result_says_so(tmp_path):
    printed = " ".join(fit("wine", "--out", tmp_path).split())
    assert 'A plain model is better: "no regularizer" has test log loss 0.00' in printed
    assert "ROC AUC" not in printed  # three classes
    for words in ("Scores on the 45 test rows", "majority class", "class_2 12", "flavanoids", "95% intervals of"):
        assert words in printed


def test_json_has_all_numbers(tmp_path):
    found = json.loads(fit("breast_cancer", "--out", tmp_path, "--json"))
    assert list(found["models"]) == ["majority class", "no regularizer", "L2 path (LogisticRegressionCV)", "tuned"]
    for name, scores in found["models"].items():
        for measure, (low, high) in found["intervals"][name].items():
            assert low <= scores[measure] <= high
    assert found["models"]["majority class"]["test error"] == pytest.approx(53 / 142)
    assert found["models"]["majority class"]["test ROC AUC"] == 0.5
    assert {name: scores["rows"] for name, scores in found["classes"].items()} == {"benign": 89, "malignant": 53}
    assert found["coefficients"][0].keys() == {"input", "class", "value"}
    assert found["verdict"].startswith("The tuned model")


def test_a_table_of_many_classes_has_no_line_per_class(tmp_path):
    rng, kinds = np.random.default_rng(0), np.repeat(np.arange(21), 5)
    pd.DataFrame({"x": kinds + rng.normal(size=105), "kind": kinds}).to_csv(tmp_path / "t.csv", index=False)
    assert "precision" not in fit(tmp_path / "t.csv", "--target", "kind", "--out", tmp_path / "out")
