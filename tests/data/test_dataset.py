"""What must hold of a data set before a classifier is fitted to it."""

import numpy as np
import pytest

from tuneloss.data import Dataset
from tuneloss.data.dataset import MAX_INPUTS, check_dataset
from tuneloss.errors import InvalidInput

LABELS = np.repeat(["a", "b"], 5)


def dataset(x=None, y=LABELS):
    x = np.arange(20.0).reshape(10, 2) if x is None else x
    return Dataset("some", tuple(f"x{j}" for j in range(min(x.shape[1], 2))), x, y)


def test_the_labels_of_good_data_are_returned():
    assert check_dataset(dataset()) is LABELS


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros((10, 0))}, r"must have rows and input columns; found shape \(10, 0\)"),
        ({"x": np.zeros((1, MAX_INPUTS + 1))}, "must have at most 1,000,000 inputs; found 1,000,001"),
        ({"x": np.full((10, 2), np.inf)}, "20 infinite values, for example in column 'x0' at row 1. Correct them"),
        ({"y": None}, "needs labels; some has none"),
        ({"y": LABELS[:5]}, "must have at least 6 rows; found 5"),
        ({"y": np.full(10, "a")}, "at least 2 classes; found only a in 10 rows"),
        ({"y": np.arange(10) / 3}, "found 10 different numbers such as 0 and 0.333333. .* not regression"),
        (
            {"y": np.repeat([1e20, 2e20], 5)},
            r"at most 9.0072e\+15 in size; found 2e\+20 and 1e\+20. Write them as text",
        ),
        ({"y": np.arange(10)}, "found 10 different values in 10 rows. Is it an identifier?"),
        ({"y": np.repeat(["a", "b"], [8, 2])}, r"found fewer for b \(2\). Merge them with other classes"),
        ({"y": np.repeat(range(7), [10] + [1] * 6)}, r"4 \(1\), 5 \(1\) and others\. Merge"),
    ],
)
def test_data_that_cannot_be_learned_from_is_refused(changed, message):
    with pytest.raises(InvalidInput, match=message):
        check_dataset(dataset(**changed))


def test_all_problems_are_listed_at_once():
    with pytest.raises(InvalidInput, match=r"some has 2 problems:\n- All inputs must be finite.*\n- Each class must"):
        check_dataset(dataset(x=np.full((10, 2), np.inf), y=np.repeat(["a", "b"], [8, 2])))


def test_missing_numbers_and_categories_alone_are_fine():
    check_dataset(dataset(x=np.full((10, 2), np.nan)))
    check_dataset(Dataset("some", (), np.zeros((10, 0)), LABELS, (), ("c",), np.full((10, 1), "a", dtype=object)))
