"""The embedded set "sparse": what it is, and what tuning gains there."""

import numpy as np
import pytest

from tuneloss.data import read_dataset
from tuneloss.data.sparse_table import make_sparse_table
from tuneloss.sklearn.comparison import L2_PATH, TUNED, compare_models, hold_out
from tuneloss.sklearn.scores import LOG_LOSS


def test_the_embedded_set_is_that_of_seed_0():
    found, expected = read_dataset("sparse"), make_sparse_table(0)
    np.testing.assert_array_equal(found.x, expected.x)
    assert (found.y == expected.y).all()
    assert not np.array_equal(make_sparse_table(1).x, expected.x)


@pytest.mark.parametrize("seed", range(5))
def test_the_tuned_model_has_far_lower_log_loss_than_the_l2_path(seed):
    """At least 30% lower for each seed of the generator, and beyond the bootstrap interval."""
    comparison = compare_models(hold_out(make_sparse_table(seed), seed=seed), seed)
    assert comparison.scores[TUNED][LOG_LOSS] < 0.7 * comparison.scores[L2_PATH][LOG_LOSS]
    assert comparison.differences[L2_PATH][1] < -0.1
