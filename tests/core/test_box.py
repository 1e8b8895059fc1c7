"""Boxes: what they hold, and every way to get one wrong."""

import json
import math

import numpy as np
import pytest

from tuneloss import Box

PAPER = {"l1": (0.1, 100), "l2": (0.1, math.inf), "uniform": (0, 0.1), "logloss": 1.0}


def test_from_dict_pins_numbers_and_keeps_names():
    box = Box.from_dict(PAPER)
    assert box.names == ("l1", "l2", "uniform", "logloss")
    np.testing.assert_array_equal(box.lower, [0.1, 0.1, 0.0, 1.0])
    np.testing.assert_array_equal(box.upper, [100, math.inf, 0.1, 1.0])
    np.testing.assert_array_equal(box.pinned, [False, False, False, True])
    assert Box.from_dict({**PAPER, "l2": (0.1, None)}) == box


@pytest.mark.parametrize("box", [Box.from_dict(PAPER), Box.simplex(["a", "b"]), Box(1.0, 2.0)], ids=repr)
def test_state_round_trips_through_json(box):
    """Infinity included, in JSON that other languages read."""
    again = Box.from_state_dict(json.loads(json.dumps(box.state_dict(), allow_nan=False)))
    assert again == box
    assert hash(again) == hash(box)


def test_equal_boxes_have_one_hash_whatever_the_sign_of_zero():
    plus, minus = (Box([zero, 1.0], [2.0, 1.0]) for zero in (0.0, -0.0))
    assert plus == minus
    assert hash(plus) == hash(minus)


def test_different_boxes_differ():
    assert Box(1.0, 2.0) != Box(1.0, 3.0)
    assert Box(1.0, 2.0) != Box(1.0, 2.0, ["other"])
    assert Box.simplex(["a", "b"]) != Box([0, 1], [1, 1], ["a", "b"])


def test_weights_by_name_and_back():
    box = Box.from_dict(PAPER)
    values = np.array([0.1, 5.0, 0.05, 1.0])
    np.testing.assert_array_equal(box.as_array(dict(reversed(box.as_dict(values).items()))), values)


def test_numbers_of_numpy_are_numbers():
    box = Box.from_dict({"a": (np.float32(0.5), np.int64(2)), "b": np.float64(1), "c": np.array([1.0, 2.0])})
    np.testing.assert_array_equal(box.lower, [0.5, 1.0, 1.0])


@pytest.mark.parametrize("box", [Box.from_dict(PAPER), Box.simplex(["a", "b", "c"])], ids=repr)
def test_a_trip_through_float32_stays_inside(box):
    weights = box.lower + 0.1 if not box.is_simplex else np.array([0.1, 0.2, 0.7])
    weights = np.minimum(weights, box.upper)
    found = box.as_array(weights.astype(np.float32))
    assert (found >= box.lower).all()
    assert (found <= box.upper).all()


def test_bounds_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        Box(1.0, 2.0).lower[0] = 0.0


WRONG = [
    (lambda: Box([1.0, 5.0], [2.0, 4.0]), r"lower <= upper; found lower 5.0 > upper 4.0 for 'weight_1'. Swap them"),
    (lambda: Box([0.0, -1.0], [1.0, 1.0]), r"must not contain the zero vector.*found Box\(.*Pin one weight"),
    (lambda: Box.from_dict({"a": 0.0}), "must not contain the zero vector"),
    (lambda: Box([1.0], [1.0, 2.0]), r"one length k >= 1; found shapes \(1,\) and \(2,\)"),
    (lambda: Box([], []), "one length k >= 1"),
    (lambda: Box([1.0], [1.0], ["a", "b"]), "and 2 names"),
    (lambda: Box([1.0, 1.0], [1.0, 1.0], ["a", "a"]), r"different strings; found \['a', 'a'\]"),
    (lambda: Box(math.nan, 1.0), r"must be numbers, with a finite lower one; found \(nan, 1.0\)"),
    (lambda: Box([1e-299, 1.0], [1.0, 1.0]), "0, infinite, or of a size from 1e-100 to 1e.100; found .*Multiply those"),
    (lambda: Box([0.0, 1.0], [1e200, 1.0]), "0, infinite, or of a size from 1e-100 to 1e.100; found"),
    (lambda: Box([-1e-200, 1.0], [1.0, 1.0]), "0, infinite, or of a size from 1e-100 to 1e.100; found"),
    (lambda: Box(-math.inf, 1.0), "Only an upper bound may be infinite"),
    (lambda: Box.from_dict({"a": (1, 2, 3)}), r"\(lower, upper\) or one number .* found \(1, 2, 3\) for 'a'"),
    (lambda: Box.from_dict({"a": "1"}), "found '1' for 'a'"),
    (lambda: Box.from_dict(PAPER).as_array({"l1": 1.0, "typo": 1.0}), r"missing \['l2', .*unknown \['typo'\]"),
    (lambda: Box.from_dict(PAPER).as_array([1.0, 1.0]), r"must be 4 numbers, as in Box.*found shape \(2,\)"),
    (lambda: Box(1.0, 2.0).as_array([math.nan]), "`weights` must be finite"),
    (lambda: Box(1.0, 2.0).as_array([3.0]), r"must lie in Box\(weight_0=\[1, 2\]\); found"),
    (lambda: Box.simplex(["a", "b"]).as_array([0.5, 0.4]), "must lie in Box"),
    (lambda: Box("a", 1.0), "`lower` must be real numbers in a rectangular array; found <U1 values"),
    (lambda: Box(None, 1.0), "`lower` must be real numbers .* found text, None or unequal rows"),
    (lambda: Box([1.0, 2.0], [1.0, 2.0], "ab"), "Names must be a list of strings; found 'ab'"),
    (lambda: Box([0.5, 0.5], [1.0, 1.0], is_simplex=True), "Use `Box.simplex"),
    (lambda: Box.simplex(3), "must be a list of strings; found 3"),
    (lambda: Box.from_dict([1.0]), r"takes \{name: \(lower, upper\)\}; found list"),
    (lambda: Box.from_dict({"a": (None, 1.0)}), "or one number for each name"),
    (lambda: Box.from_state_dict({}), r"A box's state must be as documented.*KeyError: 'names'|'upper'"),
    (lambda: Box(1.0, 2.0).as_array(["x"]), "`weights` must be real numbers"),
    (lambda: Box(1.0, 2.0).as_array({1: 1.0}), r"unknown \[1\]"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_refuses(make, message):
    """What must hold, what was found, what to do."""
    with pytest.raises(ValueError, match=message):
        make()
