"""The largest coefficients by name."""

import numpy as np

from tuneloss.sklearn.coefficients import Coefficient, largest_coefficients


def test_coefficients_are_sorted_by_size_and_zeros_are_left_out():
    coef = np.array([[0.0, -3.0, 1.0], [2.0, 0.0, 0.5]])
    found = largest_coefficients(coef, ["a", "b", "c"], np.array([7, 8]), most=3)
    assert found == [Coefficient("b", "7", -3.0), Coefficient("a", "8", 2.0), Coefficient("c", "7", 1.0)]
    assert len(largest_coefficients(coef, ["a", "b", "c"], np.array([7, 8]))) == 4


def test_with_two_classes_coefficients_belong_to_the_second():
    found = largest_coefficients(np.array([[0.0, -3.0]]), ["a", "b=x"], np.array(["no", "yes"]))
    assert found == [Coefficient("b=x", "yes", -3.0)]
