"""Save a fitted estimator, alone or after a scaler, as a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from tuneloss.data.dataset import MAX_INPUTS
from tuneloss.errors import InvalidInput
from tuneloss.sklearn.estimator import TunedLogisticRegression
from tuneloss.sklearn.model_file import NUMBERS, write_model
from tuneloss.sklearn.preparation import Preparation
from tuneloss.sklearn.saved_model import SavedModel


def save_model(model: TunedLogisticRegression | Pipeline, path: Path | str) -> Path:
    """Save a fitted model as one file without pickle, for `load_model` and `tuneloss predict`.

    Parameters
    ----------
    model : TunedLogisticRegression or Pipeline
        The fitted estimator, or a fitted pipeline of a `StandardScaler` and this estimator.
    path : Path or str
        The file to write. An old file is replaced. The name should end with ".npz".

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If the model is something else, or if it is not fitted.

    Notes
    -----
    The inputs keep the names that they had in a DataFrame. Other inputs are called x0, x1, ... The saved model replaces
    missing numbers by the scaler's mean, or by 0 if there is no scaler.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from tuneloss.sklearn import TunedLogisticRegression, load_model, save_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), TunedLogisticRegression(random_state=0)).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     saved = load_model(save_model(model, Path(folder) / "model.npz"))
    >>> bool((saved.predict(X) == model.predict(X)).all())
    True
    """
    scaler, estimator = _parts(model)
    if not hasattr(estimator, "coef_"):
        raise InvalidInput("`model` must be fitted before it is saved; found one that is not. Call `fit` first.")
    width = estimator.coef_.shape[1]
    if width > MAX_INPUTS:
        raise InvalidInput(f"`model` must have at most {MAX_INPUTS:,} inputs to be saved; found {width:,}.")
    names = getattr(estimator if scaler is None else scaler, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(width)]
    preparation = _preparation(tuple(map(str, names)), scaler)
    about, classes = learned_loss(estimator), _as_plain(estimator.classes_)
    return write_model(SavedModel(preparation, estimator.coef_, estimator.intercept_, classes, about), Path(path))


def learned_loss(estimator: TunedLogisticRegression) -> dict[str, Any]:
    """Return the learned loss for the description in a model file: weights, and the points of a learned penalty."""
    about: dict[str, Any] = {"weights": estimator.loss_weights_}
    if hasattr(estimator, "regularizer_"):
        about["regularizer"] = [part.tolist() for part in estimator.regularizer_]
    return about


def _parts(model: Any) -> tuple[StandardScaler | None, TunedLogisticRegression]:
    """Return the scaler, if there is one, and the estimator."""
    if isinstance(model, TunedLogisticRegression):
        return None, model
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    if len(steps) == 2 and isinstance(steps[0], StandardScaler) and isinstance(steps[1], TunedLogisticRegression):
        return steps[0], steps[1]
    kinds = ", ".join(type(step).__name__ for step in steps)
    raise InvalidInput(
        "`model` must be a TunedLogisticRegression, or a pipeline of StandardScaler and TunedLogisticRegression; found "
        f"{f'a pipeline of {kinds}' if isinstance(model, Pipeline) else kinds}. For a table with categories, use "
        "`tuneloss fit`."
    )


def _preparation(names: tuple[str, ...], scaler: StandardScaler | None) -> Preparation:
    """Return the preparation that does what the scaler does."""
    zeros, ones = np.zeros(len(names)), np.ones(len(names))
    mean = zeros if scaler is None or scaler.mean_ is None else scaler.mean_
    shift = zeros if scaler is None or not scaler.with_mean else mean
    scale = ones if scaler is None or scaler.scale_ is None else scaler.scale_
    return Preparation(names, mean, (), (), (), (), shift, scale)


def _as_plain(classes: NDArray[Any]) -> NDArray[Any]:
    """Return classes as an array of numbers or of text, which a file can hold without pickle."""
    if classes.dtype.kind in NUMBERS:
        return classes
    if all(isinstance(label, str) for label in classes.tolist()):
        return classes.astype(np.str_)
    raise InvalidInput(f"Labels must be numbers or text to be saved; found {classes.tolist()[:5]}.")
