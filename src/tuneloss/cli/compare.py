"""What `tuneloss fit` does: three models on the same rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tuneloss.cli.console import progress
from tuneloss.cli.data import Data
from tuneloss.errors import InvalidInput

if TYPE_CHECKING:
    from tuneloss.sklearn import TunedLogisticRegression

PLAIN, L2_PATH, TUNED = "no regularizer", "L2 path (LogisticRegressionCV)", "tuned"
MEASURES = ("test log loss", "test error")
LEAST = float(np.finfo(float).eps)  # a probability of less counts as this, as in scikit-learn's log_loss
Quality = dict[str, float]


@dataclass(frozen=True, eq=False)
class Rows:
    """Standardised rows to train and to test; mean and scale are those of the columns before."""

    x: Any
    y: Any
    x_test: Any
    y_test: Any
    mean: Any
    scale: Any

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y))

    def __str__(self) -> str:
        sizes = f"{len(self.y)} rows to train, {len(self.y_test)} to test"
        return f"{sizes}, {self.x.shape[1]} inputs, {self.n_classes} classes"


def hold_out(data: Data, test_fraction: float, seed: int) -> Rows:
    """Hold out a part of the rows of each class to test: at least one of them, and all but two at most."""
    from sklearn.preprocessing import StandardScaler

    assert data.y is not None
    rng, test = np.random.default_rng(seed), np.zeros(len(data.y), dtype=bool)
    for label in np.unique(data.y):
        own = rng.permutation(np.flatnonzero(data.y == label))
        test[own[: min(max(round(test_fraction * len(own)), 1), len(own) - 2)]] = True
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(data.x[~test])
        x, x_test = scaler.transform(data.x[~test]), scaler.transform(data.x[test])
        squares = (scaler.var_, np.square(x), np.square(x_test))
    if not all(np.isfinite(part).all() for part in squares):
        raise InvalidInput(f"Inputs must have squares that are numbers; {data.title} has values that are too large.")
    return Rows(x, data.y[~test], x_test, data.y[test], scaler.mean_, scaler.scale_)


@dataclass(frozen=True, eq=False)
class Compared:
    """The tuned model, how well each of its runs did on the test rows, and how well each model did, in which time."""

    tuned: TunedLogisticRegression
    by_run: list[Quality]
    results: dict[str, Quality]


def compare(rows: Rows, seed: int) -> Compared:
    """Fit a model without a regularizer, the best of a path of L2, and the tuned one, with a progress bar."""
    from sklearn.linear_model import LogisticRegression

    from tuneloss.sklearn import TunedLogisticRegression
    from tuneloss.sklearn.l2_cv import l2_cv

    n_folds = int(min(5, np.unique(rows.y, return_counts=True)[1].min()))
    tuned = TunedLogisticRegression(random_state=seed)
    models = {
        PLAIN: LogisticRegression(C=np.inf, max_iter=1000),
        L2_PATH: l2_cv(cv=n_folds),
        TUNED: tuned,
    }
    by_run: list[Quality] = []
    results = {}
    with progress("fitting", 2 + tuned.max_runs) as advance:

        def on_run(run: Any, folds: Sequence[Any]) -> None:
            by_run.append(_quality_of_run(run, folds, tuned.classes_, rows))
            loss = run.error / float(run.sample_weight.sum())
            advance(2 + len(by_run), f"{TUNED}: run {len(by_run)}, validation log loss {loss:.4f}")

        tuned._on_run = on_run  # type: ignore[method-assign]
        for i, (name, model) in enumerate(models.items()):
            advance(i, name)
            start = time.perf_counter()
            with nullcontext() if name == TUNED else _quiet():
                model.fit(rows.x, rows.y)
            seconds = time.perf_counter() - start
            results[name] = _quality(model.predict_proba(rows.x_test), model.classes_, rows) | {"seconds": seconds}
        advance(2 + tuned.max_runs, "done")
    return Compared(tuned, by_run, results)


def _quality(p: Any, classes: Any, rows: Rows) -> Quality:
    """Of probabilities (N, C) of the test rows."""
    codes = np.searchsorted(classes, rows.y_test)
    loss = -np.log(np.maximum(p[np.arange(len(codes)), codes], LEAST)).mean()
    return dict(zip(MEASURES, (float(loss), float((p.argmax(axis=1) != codes).mean())), strict=True))


def _quality_of_run(run: Any, folds: Sequence[Any], classes: Any, rows: Rows) -> Quality:
    """The mean over the models of all folds."""
    from tuneloss.sklearn.softmax import predicted

    pairs = zip(folds, run.fits, strict=True)
    each = [_quality(np.exp(predicted(fold.data, one.params, rows.x_test)), classes, rows) for fold, one in pairs]
    return {name: float(np.mean([quality[name] for quality in each])) for name in MEASURES}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of the models that are compared with: one without a regularizer need not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
