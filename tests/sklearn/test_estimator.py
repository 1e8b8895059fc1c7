"""TunedLogisticRegression keeps scikit-learn's contract, and what its docstring says."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tuneloss.sklearn import TunedLogisticRegression, estimator
from tuneloss.sklearn.online import online_search, repeated
from tuneloss.sklearn.softmax import NAMES


@parametrize_with_checks(
    [
        TunedLogisticRegression(),
        TunedLogisticRegression(cv=2, terms=("l2", "dropout")),
        TunedLogisticRegression(strategy="online", cv=2),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return train_test_split(x / 16, y, train_size=600, random_state=0)


@pytest.fixture(scope="module")
def tuned(digits):
    x, _, y, _ = digits
    return TunedLogisticRegression(random_state=0).fit(x, y)


def test_it_says_what_it_did(digits, tuned):
    """Weights, the runs that led to them, and a model that is a minimum of the loss with these weights."""
    _, x_test, _, y_test = digits
    assert set(tuned.loss_weights_) == {"l1", "l2", "uniform", "dropout", "logloss"}
    assert tuned.loss_weights_["logloss"] == 1
    assert tuned.coef_.shape == (10, 64)
    assert tuned.intercept_.shape == (10,)
    best = tuned.history_[tuned.best_run_]
    assert best["validation_loss"] <= min(run["validation_loss"] for run in tuned.history_) + 0.02
    assert len(tuned.history_) <= tuned.max_runs
    np.testing.assert_allclose(tuned.predict_proba(x_test).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(tuned.predict_log_proba(x_test)), tuned.predict_proba(x_test))
    assert tuned.score(x_test, y_test) > 0.93


def test_it_beats_no_regularization(digits, tuned):
    x, x_test, y, y_test = digits
    plain = LogisticRegression(C=np.inf, max_iter=5000).fit(x, y)
    assert log_loss(y_test, tuned.predict_proba(x_test)) < 0.7 * log_loss(y_test, plain.predict_proba(x_test))


def test_l2_alone_is_scikit_learns_model_at_the_weight_it_chose(digits):
    x, x_test, y, _ = digits
    model = TunedLogisticRegression(terms=("l2",), tol=1e-8, random_state=0).fit(x, y)
    theirs = LogisticRegression(C=1 / (2 * model.loss_weights_["l2"]), tol=1e-8, max_iter=5000).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(x_test), theirs.predict_proba(x_test), atol=1e-3)


def test_only_the_terms_asked_for_get_a_weight(digits):
    x, _, y, _ = digits
    model = TunedLogisticRegression(terms=("l2", "dropout"), random_state=0).fit(x, y)
    assert all(run["weights"]["l1"] == run["weights"]["uniform"] == 0 for run in model.history_)
    assert any(run["weights"]["dropout"] > 0 for run in model.history_)


@pytest.mark.parametrize("strategy", ["runs", "online"])
def test_sparse_inputs_give_the_same_model(strategy):
    x, y = load_iris(return_X_y=True)
    dense, thin = (
        TunedLogisticRegression(strategy=strategy, random_state=0).fit(form(x), y)
        for form in (np.asarray, sparse.csr_matrix)
    )
    np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-5)
    np.testing.assert_array_equal(dense.predict(sparse.csr_matrix(x)), dense.predict(x))


def test_sample_weights_are_repeats_for_splits_of_our_own():
    """Also where tuneloss makes the split, which scikit-learn's check replaces by one of its own."""
    x, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    for cv in (None, 3):
        model = TunedLogisticRegression(cv=cv, random_state=0)
        weighted = clone(model).fit(x, y, sample_weight=weight)
        repeated = clone(model).fit(x.repeat(weight, axis=0), y.repeat(weight))
        np.testing.assert_allclose(weighted.predict_proba(x), repeated.predict_proba(x), atol=1e-6)


def test_the_order_of_examples_does_not_matter():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    plain, shuffled = (TunedLogisticRegression(random_state=0).fit(x[i], y[i]) for i in (np.arange(len(y)), order))
    np.testing.assert_allclose(plain.predict_proba(x), shuffled.predict_proba(x), atol=1e-6)


def test_folds_fitted_at_once_give_the_same_model(digits):
    x, _, y, _ = digits
    one, two = (TunedLogisticRegression(cv=3, n_jobs=n, random_state=0).fit(x, y) for n in (None, 2))
    np.testing.assert_allclose(one.coef_, two.coef_)


def test_validation_examples_of_ones_own(digits):
    """They decide the weights, as one explicit split does, and are trained on in the end."""
    x, _, y, _ = digits
    own = TunedLogisticRegression().fit(x[:400], y[:400], X_val=x[400:], y_val=y[400:])
    split = TunedLogisticRegression(cv=[(np.arange(400), np.arange(400, 600))]).fit(x, y)
    np.testing.assert_allclose(own.coef_, split.coef_)
    assert own.loss_weights_ == split.loss_weights_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fraction_that_is_asked_for_is_taken(digits):
    """A given split is used, however few examples it has. Without one, few examples give 5 folds and many give one
    split. If a fifth has fewer than 20 examples per class, several of the 5 folds are used."""
    x, _, y, _ = digits
    seen = []

    def on_run(run, folds):
        seen.append([len(fold.targets) for fold in folds])

    TunedLogisticRegression(validation_fraction=0.3, random_state=0)._fit(x, y, on_run=on_run)
    assert len(seen[0]) == 1
    assert seen[0][0] == pytest.approx(0.3 * 600, abs=10)
    for labels, repeats, folds in ((y, 4, 5), (y, 5, 1), (np.arange(600) % 40, 5, 2), (np.arange(600) % 61, 5, 3)):
        seen.clear()  # of 600 examples: a fifth of 3000 is enough for 30 classes
        model = TunedLogisticRegression(max_runs=3, max_iter=5, random_state=0)
        model._fit(x, labels, sample_weight=np.full(600, repeats), on_run=on_run)
        assert len(seen[0]) == folds


def test_a_pipeline_transforms_validation_examples_if_told_to(digits):
    x, _, y, _ = digits
    x, x_val, y, y_val = 50 * x[:400], 50 * x[400:], y[:400], y[400:]
    scaler = StandardScaler().fit(x)
    by_hand = TunedLogisticRegression().fit(scaler.transform(x), y, X_val=scaler.transform(x_val), y_val=y_val)
    with config_context(enable_metadata_routing=True):
        tuned = TunedLogisticRegression().set_fit_request(X_val=True, y_val=True)
        model = make_pipeline(StandardScaler(), tuned, transform_input=["X_val"])
        model.fit(x, y, X_val=x_val, y_val=y_val)
    np.testing.assert_allclose(model[-1].coef_, by_hand.coef_)


def test_what_a_history_holds_is_as_documented(digits):
    """An observation's error is the mean validation log loss; its features are sums over the models of all folds."""
    x, _, y, _ = digits
    models = []

    def on_run(run, folds):
        models.append([fit.params for fit in run.fits])

    history = TunedLogisticRegression(random_state=0)._fit(x, y, on_run=on_run).history_
    for run, params in zip(history, models, strict=True):
        assert run["observation"].error == pytest.approx(run["validation_loss"])
        squares = sum(np.square(one[:, :-1]).sum() for one in params)
        assert run["observation"].features[NAMES.index("l2")] == pytest.approx(squares)


def test_any_splitter_will_do(digits):
    x, _, y, _ = digits
    for cv in (StratifiedKFold(2), ShuffleSplit(1, random_state=0)):
        assert TunedLogisticRegression(cv=cv).fit(x, y).score(x, y) > 0.9


def test_names_of_columns_are_kept():
    frame, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), TunedLogisticRegression(random_state=0))
    labels = np.array(["malignant", "benign"])[y]
    model.fit(frame, labels)
    assert list(model[-1].feature_names_in_) == list(frame.columns)
    assert list(model.classes_) == ["benign", "malignant"]
    assert model[-1].coef_.shape == (1, 30)
    assert model.score(frame, labels) > 0.97
    scaled = model[0].transform(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        model[-1].predict(scaled.rename(columns=str.upper))


def test_it_works_inside_scikit_learns_searches():
    x, y = load_iris(return_X_y=True)
    assert cross_val_score(TunedLogisticRegression(random_state=0), x, y, cv=3).mean() > 0.9
    grid = GridSearchCV(TunedLogisticRegression(random_state=0), {"terms": [("l2",), ("l1", "l2")]}, cv=2).fit(x, y)
    assert grid.best_estimator_.get_params()["terms"] in (("l2",), ("l1", "l2"))
    assert isinstance(pd.DataFrame(grid.best_estimator_.history_), pd.DataFrame)


def test_the_last_fit_has_l1_and_l2_grown_with_the_root_of_the_examples():
    """With half of them for validation it has twice as many; dropout keeps its weight."""
    x, y = load_breast_cancer(return_X_y=True)
    x, order = StandardScaler().fit_transform(x), np.random.default_rng(1).permutation(len(y))
    model = TunedLogisticRegression(cv=[np.array_split(order, 2)], random_state=0).fit(x, y)
    searched = model.history_[model.best_run_]["weights"]
    assert min(searched["l1"], searched["l2"], searched["dropout"]) > 0
    grown = {"l1": 2**0.5 * searched["l1"], "l2": 2**0.5 * searched["l2"]}
    assert model.loss_weights_ == pytest.approx(searched | grown, rel=0.01)


def test_online_learns_a_convex_regularizer(digits):
    x, x_test, y, y_test = digits
    model = TunedLogisticRegression(strategy="online", random_state=0).fit(x, y)
    knots, values = model.regularizer_
    assert (np.diff(np.diff(values) / np.diff(knots)) >= -1e-9).all()
    assert log_loss(y_test, model.predict_proba(x_test)) < 0.25


def test_online_ends_with_the_same_run_on_all_data(monkeypatch, digits):
    """The losses up to the best epoch, with the root of the growth times L2 and the regularizer."""
    seen = {}

    def searched(*given):
        found = online_search(*given)
        seen["runs"], seen["losses"] = found.runs, found.losses
        return found

    def replayed(data, losses, *rest):
        seen["replayed"] = losses
        return repeated(data, losses, *rest)

    monkeypatch.setattr(estimator, "online_search", searched)
    monkeypatch.setattr(estimator, "repeated", replayed)
    x, _, y, _ = digits
    model = TunedLogisticRegression(strategy="online", cv=3, random_state=0).fit(x[:300], y[:300])
    assert len(seen["replayed"]) == model.best_run_ + 1 > 1
    assert model.best_run_ + 1 < len(seen["runs"])  # not all of it
    for own, searched_loss in zip(seen["replayed"], seen["losses"], strict=False):
        expected = searched_loss.weights | {"l2": 1.5**0.5 * searched_loss.weights["l2"]}
        assert own.weights == pytest.approx(expected, rel=0.02)
        np.testing.assert_allclose(own.regularizer.right, 1.5**0.5 * searched_loss.regularizer.right, rtol=0.02)
    w = np.linspace(-9, 9, 37)
    points, values = model.regularizer_
    inside = (w >= points[0]) & (w <= points[-1])
    np.testing.assert_allclose(np.interp(w, points, values)[inside], own.regularizer(w)[inside], atol=1e-9)
    for end, beyond in ((slice(2), points[0] - 5), (slice(-2, None), points[-1] + 5)):
        line = np.polynomial.Polynomial.fit(points[end], values[end], 1)
        assert line(beyond) == pytest.approx(float(own.regularizer(np.array([beyond]))[0]))


def test_a_fit_that_is_stopped_early_says_so(digits):
    x, _, y, _ = digits
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 iterations") as warned:
        TunedLogisticRegression(max_iter=3, random_state=0).fit(x, y)
    assert warned[0].filename == __file__  # it points at the caller
    with pytest.warns(ConvergenceWarning, match="its first part, with L2 alone, ended after 3"):
        TunedLogisticRegression(strategy="online", cv=2, max_iter=3, random_state=0).fit(x[:200], y[:200])


def test_without_intercept(digits):
    x, _, y, _ = digits
    for strategy in ("runs", "online"):
        model = TunedLogisticRegression(fit_intercept=False, strategy=strategy, random_state=0).fit(x, y)
        np.testing.assert_array_equal(model.intercept_, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": ("l2", "l3")}, r"`terms` must be some of \['l1', 'l2', 'uniform', 'dropout'\]"),
        ({"terms": "l2"}, "`terms` must be some of"),
        ({"terms": ("l1",)}, '"l2" among them'),
        ({"terms": None}, "found None"),
        ({"strategy": "grid"}, '`strategy` must be "runs" or "online"; found \'grid\''),
        ({"validation_fraction": 1.0}, "`validation_fraction` must be None or between 0 and 1; found 1.0"),
        ({"validation_fraction": "0.2"}, "must be None or between 0 and 1; found '0.2'"),
        ({"validation_fraction": 0.2, "cv": 5}, "`validation_fraction` and `cv` are two ways to split; found both"),
        ({"cv": 1}, "`cv` must be at least 2 folds"),
        ({"tol": 0}, "`tol` must be a number > 0; found 0"),
        ({"max_runs": 2}, "`max_runs` must be a whole number, at least 3; found 2"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        TunedLogisticRegression(**options).fit(x, y)


def test_data_that_cannot_be_learned_from_are_refused():
    x, y = load_iris(return_X_y=True)
    model = TunedLogisticRegression()
    with pytest.raises(ValueError, match="found one class, \\[0\\]"):
        model.fit(x[:50], y[:50])
    with pytest.raises(ValueError, match="found one class"):
        model.fit(x, y, sample_weight=(y == 1).astype(float))
    with pytest.raises(ValueError, match="needs examples to validate with"):
        TunedLogisticRegression(cv=[]).fit(x, y)
    with pytest.raises(ValueError, match="must be 150 finite numbers >= 0"):
        model.fit(x, y, sample_weight=-np.ones(150))
    with pytest.raises(ValueError, match="must not be zero for all"):
        model.fit(x, y, sample_weight=np.zeros(150))
    with pytest.raises(ValueError, match="`X_val` and `y_val` go together"):
        model.fit(x, y, X_val=x)
    with pytest.raises(ValueError, match="examples of class 0 to train on"):
        TunedLogisticRegression(cv=[([], np.arange(150))]).fit(x, y)
    with pytest.raises(ValueError, match="examples of class 0 to train on"):
        TunedLogisticRegression(cv=KFold(3)).fit(x, y)
    with pytest.raises(ValueError, match="examples to validate with, of positive weight"):
        TunedLogisticRegression(cv=[(np.arange(150), [])]).fit(x, y)
    with pytest.raises(ValueError, match=r"examples to validate with, of positive weight; .* a larger fraction"):
        TunedLogisticRegression(validation_fraction=0.05).fit(x[:50], np.arange(50) % 10)
    with pytest.raises(ValueError, match="`sample_weight_val` is for"):
        model.fit(x, y, sample_weight_val=np.ones(3))
    with pytest.raises(ValueError, match=r"only classes that `y` has; found \[7\]"):
        model.fit(x, y, X_val=x[:2], y_val=[0, 7])
    with pytest.raises(ValueError, match="labels like those of `y`"):
        model.fit(x, y, X_val=x[:2], y_val=["0", "1"])
    with pytest.raises(NotFittedError):
        TunedLogisticRegression().predict(x)


@pytest.mark.parametrize("levels", [(2,), (4,), (2, 2), (3, 2)])
@pytest.mark.parametrize("n", [300, 4000])
def test_a_table_with_few_different_rows_is_learned(levels, n):
    """As well as by a path of L2 fits, where whole cells of the table in one fold would teach nothing."""
    rng = np.random.default_rng(0)
    cells = np.column_stack([rng.integers(0, level, size=n) for level in levels])
    x = np.hstack([np.eye(level)[cells[:, j]] for j, level in enumerate(levels)])
    y = (rng.random(n) < 1 / (1 + np.exp(-(3.0 * (cells[:, 0] == 0) - 1.5)))).astype(int)
    tuned = TunedLogisticRegression(random_state=0).fit(x, y)
    plain = LogisticRegression(C=1e3).fit(x, y)
    assert log_loss(y, tuned.predict_proba(x)) < log_loss(y, plain.predict_proba(x)) + 0.01


@pytest.mark.parametrize("strategy", ["runs", "online"])
@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1e5])
def test_the_unit_of_all_inputs_does_not_matter(unit, strategy):
    x, y = load_iris(return_X_y=True)
    model = TunedLogisticRegression(strategy=strategy, random_state=0).fit(unit * x, y)
    assert model.score(unit * x, y) > 0.94


def test_one_large_input_of_noise_does_not_hide_the_others():
    x, y = load_iris(return_X_y=True)
    salary = 2e4 * np.random.default_rng(0).normal(size=(150, 1))
    assert TunedLogisticRegression(random_state=0).fit(np.hstack([x, salary]), y).score(np.hstack([x, salary]), y) > 0.9


def test_inputs_far_from_zero():
    """A common offset of a hundred million, as of times in seconds."""
    x, y = load_iris(return_X_y=True)
    assert TunedLogisticRegression(random_state=0).fit(x + 1e8, y).score(x + 1e8, y) > 0.94


def test_constant_inputs_give_the_shares_of_the_classes():
    y = np.array([0] * 30 + [1] * 10)
    model = TunedLogisticRegression(random_state=0).fit(np.ones((40, 3)), y)
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 3))), [[0.75, 0.25]], atol=1e-3)


@pytest.mark.parametrize("weight", [1e-30, 1e-6, 1e6])
def test_tiny_and_huge_sample_weights(weight):
    x, y = load_iris(return_X_y=True)
    assert (
        TunedLogisticRegression(cv=3, random_state=0).fit(x, y, sample_weight=np.full(150, weight)).score(x, y) > 0.94
    )


def test_examples_without_weight_do_not_matter():
    x, y = load_iris(return_X_y=True)
    plain = TunedLogisticRegression(random_state=0).fit(x, y)
    more = TunedLogisticRegression(random_state=0).fit(
        np.vstack([x, x[:9] + 3]), np.append(y, np.arange(9) % 3), sample_weight=np.append(np.ones(150), np.zeros(9))
    )
    np.testing.assert_allclose(plain.coef_, more.coef_)


@pytest.mark.parametrize("max_runs", [3, 4, 5])
def test_few_runs_are_enough_for_an_answer(max_runs):
    x, y = load_iris(return_X_y=True)
    model = TunedLogisticRegression(max_runs=max_runs, random_state=0).fit(x, y)
    assert len(model.history_) <= max_runs


def test_inputs_are_not_changed_and_old_answers_are_forgotten():
    x, y = load_iris(return_X_y=True)
    twice = sparse.csr_matrix((np.ones(300), (np.repeat(np.arange(150), 2), np.repeat(y, 2))), shape=(150, 3))
    before = twice.data.copy()
    TunedLogisticRegression().fit(twice, y)
    np.testing.assert_array_equal(twice.data, before)
    model = TunedLogisticRegression(strategy="online", cv=2, random_state=0).fit(x, y)
    assert len(model.box_) > 5  # with hinges
    model.set_params(strategy="runs").fit(x, y)
    assert not hasattr(model, "regularizer_")
    assert not hasattr(model, "steps_")
    assert model.learned_.names == model.box_.names == ("l1", "l2", "uniform", "dropout", "logloss")
    model.set_params(strategy="online").fit(x, y)
    assert not hasattr(model, "learned_")
