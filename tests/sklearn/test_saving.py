"""A fitted estimator is saved and loaded without pickle, and predicts as before; other models are refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from tuneloss.errors import InvalidInput
from tuneloss.sklearn import TunedLogisticRegression, load_model, save_model

X, Y = load_iris(return_X_y=True)
TUNED = TunedLogisticRegression(random_state=0, max_runs=3)


@pytest.mark.parametrize(
    "scaler",
    [None, StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False),
     StandardScaler(with_mean=False, with_std=False)],
)  # fmt: skip
@pytest.mark.parametrize("classes", [np.arange(3), np.array(["a", "学", "c"]), np.array(["a", "b", "c"], dtype=object)])
def test_the_saved_model_predicts_what_the_estimator_does(tmp_path, scaler, classes):
    """For all ways to scale, and for labels of every kind."""
    model = TUNED if scaler is None else make_pipeline(scaler, TUNED)
    model.fit(X, classes[Y])
    path = save_model(model, str(tmp_path / "model.npz"))
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype.kind != "O" for name in file.files)
    saved = load_model(path)
    np.testing.assert_allclose(saved.predict_proba(X), model.predict_proba(X), atol=1e-12)
    assert (saved.predict(X) == model.predict(X)).all()
    assert saved.names == ("x0", "x1", "x2", "x3")
    assert saved.about["weights"] == (model if scaler is None else model[-1]).loss_weights_


def test_names_of_a_frame_are_kept_and_gaps_are_filled_with_the_mean(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"))
    two = Y > 0
    model = make_pipeline(StandardScaler(with_mean=False), TUNED).fit(frame, two)
    saved = load_model(save_model(model, tmp_path / "model.npz"))
    assert saved.names == ("a", "b", "c", "d")
    shuffled = frame[list("dbca")]
    np.testing.assert_allclose(saved.predict_proba(shuffled), model.predict_proba(frame), atol=1e-12)
    gaps, filled = frame.head(1).assign(b=np.nan), frame.head(1).assign(b=frame["b"].mean())
    np.testing.assert_allclose(saved.predict_proba(gaps), model.predict_proba(filled), atol=1e-12)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (LogisticRegression(), "must be a TunedLogisticRegression, or .*; found LogisticRegression. For a table"),
        (make_pipeline(MinMaxScaler(), TUNED), "found a pipeline of MinMaxScaler, TunedLogisticRegression"),
        (make_pipeline(TUNED), "found a pipeline of TunedLogisticRegression"),
        (TunedLogisticRegression(), "must be fitted before it is saved"),
        (make_pipeline(StandardScaler(), TunedLogisticRegression()), "must be fitted before it is saved"),
    ],
)
def test_other_models_are_refused_and_nothing_is_written(tmp_path, model, said):
    with pytest.raises(InvalidInput, match=said):
        save_model(model, tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_labels_that_need_pickle_are_refused(tmp_path):
    model = TunedLogisticRegression(max_runs=3, random_state=0).fit(X, Y)
    model.classes_ = np.array([(1,), (2,), None], dtype=object)
    with pytest.raises(InvalidInput, match="Labels must be numbers or text to be saved"):
        save_model(model, tmp_path / "model.npz")


def test_more_inputs_than_a_file_may_have_are_refused(tmp_path):
    model = TunedLogisticRegression(max_runs=3, random_state=0).fit(X, Y)
    model.coef_ = np.broadcast_to(0.0, (3, 10**6 + 1))
    with pytest.raises(InvalidInput, match="at most 1,000,000 inputs to be saved; found 1,000,001"):
        save_model(model, tmp_path / "model.npz")
