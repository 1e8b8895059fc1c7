"""The example of TunedLogisticRegression's search: its points lie on its curve, by another solver."""

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

from tuneloss.sklearn import TunedLogisticRegression
from tuneloss.sklearn.paths import is_l2_only


def test_fits_with_l2_alone_lie_on_the_curve_of_another_solver(example):
    x, y = load_iris(return_X_y=True)
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(x, y))
    model = TunedLogisticRegression(cv=folds, tol=1e-7).fit(x, y)
    plain = [run for run in model.history_ if is_l2_only(run["weights"])]
    assert 3 <= len(plain) < len(model.history_)
    plain.sort(key=lambda run: -run["weights"]["l2"])
    found = example.l2_alone(x, y, folds, np.array([run["weights"]["l2"] for run in plain]))
    np.testing.assert_allclose(found, [run["validation_loss"] for run in plain], rtol=0.01)


def test_it_writes_a_figure_and_a_table(example, tmp_path):
    table = example.main(["--out", str(tmp_path)])
    assert (tmp_path / "images" / "sklearn_search.png").read_bytes().startswith(b"\x89PNG")
    losses = [float(line.split("|")[-2]) for line in table.splitlines()[2:]]
    (chosen,) = (i for i, line in enumerate(table.splitlines()[2:]) if "(chosen)" in line)
    assert losses[chosen] <= 1.02 * np.min(losses)
