"""LogisticRegressionCV to compare with, whichever scikit-learn is installed."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from tuneloss.sklearn.l2_cv import l2_cv


@pytest.mark.filterwarnings("ignore:scipy.optimize:DeprecationWarning")  # of an old scikit-learn with a new SciPy
def test_it_is_l2_alone_without_a_warning():
    """It is the model with that one penalty at the strength that was chosen, which is none of the extremes."""
    x, y = load_iris(return_X_y=True)
    found = l2_cv(cv=3, tol=1e-8).fit(x, y)
    strength = float(np.ravel(found.C_)[0])
    assert 1e-4 < strength < 1e4
    alone = LogisticRegression(C=strength, tol=1e-8, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(found.predict_proba(x), alone.predict_proba(x), atol=1e-4)
