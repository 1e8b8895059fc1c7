"""Observations: the gram, the JSON, and every way to get one wrong."""

import json
import math
import tracemalloc

import numpy as np
import pytest

from tuneloss import Box, Observation, learn_loss
from tuneloss.errors import InvalidInput, NotFinite


def test_the_gram_is_that_of_jacobian_and_gradient():
    rng = np.random.default_rng(0)
    gradient, jacobian = rng.normal(size=9), rng.normal(size=(9, 3))
    both = np.column_stack([jacobian, gradient])
    found = Observation.from_gradients(1.0, np.ones(3), gradient, jacobian).gram
    np.testing.assert_allclose(found, both.T @ both)


def test_a_long_jacobian_is_read_in_blocks_without_a_copy():
    """In float32 too: the sums are in float64, and no array of n x k numbers is made."""
    rng = np.random.default_rng(0)
    gradient, jacobian = rng.normal(size=10_000), rng.normal(size=(10_000, 20)).astype(np.float32)
    tracemalloc.start()
    found = Observation.from_gradients(1.0, np.ones(20), gradient, jacobian).gram
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    exact = jacobian.astype(np.float64)
    np.testing.assert_allclose(found[:20, :20], exact.T @ exact, rtol=1e-12)
    np.testing.assert_allclose(found[:20, 20], exact.T @ gradient, rtol=1e-9)
    assert peak < exact.nbytes


@pytest.mark.parametrize("gram", [None, [[2.0, 1 / 3], [1 / 3, 7.0]]])
def test_json_round_trip_is_exact(gram):
    """Every number comes back bit by bit."""
    o = Observation(0.1, {"a": 1 / 3}, gram, metric=0.2)
    again = Observation.from_dict(json.loads(json.dumps(o.to_dict(), allow_nan=False)))
    assert again.to_dict() == o.to_dict()
    assert (again.error, again.metric, again.names) == (0.1, 0.2, ("a",))


def test_from_dict_takes_the_two_numbers_that_are_needed():
    o = Observation.from_dict({"error": 1, "features": [2, 3]})
    assert (o.error, o.gram, o.metric, o.names) == (1.0, None, None, None)


def test_what_is_given_is_copied():
    """Changing an array afterwards does not change the observation, which itself is read-only."""
    features = np.ones(2)
    o = Observation(1.0, features)
    features[0] = 5.0
    assert o.features[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        o.features[0] = 2.0


def test_a_float32_gram_passes():
    """Rounding of single precision is not asymmetry, nor a negative eigenvalue."""
    rng = np.random.default_rng(0)
    both = rng.normal(size=(1000, 30)).astype(np.float32)
    both[:, 3] = both[:, 4]
    gram = both.T @ both
    gram[0, 1] *= np.float32(1 + 1e-6)
    Observation(1.0, np.ones(29), gram)


GRAM = np.eye(3)
WRONG = [
    (lambda: Observation(math.nan, [1.0]), "`error` must be finite; found 1 of 1 values NaN.*failed='diverged'"),
    (lambda: Observation(1.0, [1.0, math.inf]), "`features` must be finite; found 1 of 2"),
    (lambda: Observation(1.0, [1.0], [[math.nan, 0], [0, 1]]), "`gram` must be finite"),
    (lambda: Observation(1.0, [1.0], metric=math.inf), "`metric` must be finite"),
    (lambda: Observation(1.0, []), r"`features` must have shape \(k,\).*found shape \(0,\)"),
    (lambda: Observation(1.0, [[1.0]]), r"found shape \(1, 1\)"),
    (lambda: Observation(1.0, ["a"]), "`features` must be real numbers"),
    (lambda: Observation(None, [1.0]), "`error` must be real numbers .* found text, None"),
    (lambda: Observation(1.0, None), "`features` must be real numbers"),
    (lambda: Observation(1.0, [1j]), "found complex128 values"),
    (lambda: Observation(1.0, [1.0], names=[5]), r"must be a list of strings; found \[5\]"),
    (lambda: Observation.from_gradients(1.0, [1.0], [1.0], [[1.0, 2.0], [3.0]]), "`jacobian` must be real numbers"),
    (lambda: Observation.from_gradients(1.0, [1.0], [], np.zeros((0, 1))), r"found \(0,\) and \(0, 1\)"),
    (lambda: Observation.from_gradients(1.0, [1.0], [1e200], [[1.0]]), "`gram` must be finite"),
    (lambda: Observation.from_dict({"error": 1.0, "features": [1.0], "names": 5}), "must be a list of strings"),
    (lambda: Observation([1.0, 2.0], [1.0]), r"`error` must be one number; found shape \(2,\). Give a sum or a mean"),
    (lambda: Observation(1.0, [1.0], names=["a", "b"]), "`names` must be one per feature; found 2 for 1"),
    (lambda: Observation(1.0, [1.0], GRAM), r"shape \(k \+ 1, k \+ 1\) = \(2, 2\), the error last; found \(3, 3\)"),
    (lambda: Observation(1.0, [1.0], [[1.0, 0.5], [0.1, 1.0]]), "must be symmetric; found .* by 4.0e-01"),
    (lambda: Observation(1.0, [1.0], [[1.0, 2.0], [2.0, 1.0]]), "positive semidefinite; found .* of -1.0e\\+00"),
    (lambda: Observation(1.0, [1.0], [[-1.0, 0.0], [0.0, 1.0]]), "positive semidefinite"),
    (lambda: Observation(1.0, [1.0], [[0.0, 1.0], [1.0, 1.0]]), "positive semidefinite"),
    (lambda: Observation.from_gradients(1.0, [1.0], [1.0, 2.0], [[1.0]]), r"found \(2,\) and \(1, 1\)"),
    (lambda: Observation.from_gradients(1.0, [1.0], [1.0], [[math.inf]]), "`jacobian` must be finite; found 1 of 1"),
    (lambda: Observation.from_dict({"error": 1.0}), r"must have `error` and `features`.*found \['error'\]"),
    (lambda: Observation.from_dict([1.0]), "found list"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_refuses(make, message):
    """What must hold, what was found, what to do."""
    with pytest.raises(ValueError, match=message):
        make()


def test_a_missing_number_is_a_mistake_not_a_run_that_diverged():
    """`run` records NotFinite as a failed run and goes on: None must not pass for it."""
    with pytest.raises(InvalidInput) as raised:
        Observation(None, [1.0])
    assert not isinstance(raised.value, NotFinite)


def test_learn_loss_refuses_what_is_not_a_box():
    with pytest.raises(InvalidInput, match=r"`box` must be a Box; found dict. Use `Box.from_dict"):
        learn_loss([PLAIN], {"a": 1.0})


def test_a_gram_that_is_clearly_wrong_is_refused():
    """The tolerance is that of float32, a millionth."""
    with pytest.raises(InvalidInput, match="symmetric"):
        Observation(1.0, [1.0], [[1.0, 0.5], [0.5001, 1.0]])
    with pytest.raises(InvalidInput, match="positive semidefinite"):
        Observation(1.0, [1.0], [[1.0, 1.001], [1.001, 1.0]])


def test_numbers_that_are_not_finite_have_an_error_of_their_own():
    """So that a run that diverged can be told from a mistake."""
    with pytest.raises(NotFinite):
        Observation(math.inf, [1.0])


BOX = Box.from_dict({"a": (0.1, 1.0), "b": 1.0})
PLAIN, WITH_GRAM = Observation(1.0, [1.0, 1.0]), Observation(1.0, [1.0, 1.0], GRAM)
MISFITS = [
    ([], {}, "needs at least one observation; found none. Train one model first"),
    (PLAIN, {}, "must be a list of Observations; found Observation"),
    (None, {}, "must be a list of Observations; found NoneType"),
    ([PLAIN], {"epsilon": None}, "`epsilon` must be"),
    ([PLAIN], {"sample_weight": ["x"]}, "`sample_weight` must be real numbers"),
    ([PLAIN, 3.0], {}, "must be Observations; found float at index 1"),
    ([PLAIN, WITH_GRAM], {}, r"all observations have a gram or none; found 1 of 2 .*the first without: index 0"),
    ([PLAIN, Observation(1.0, [1.0, 1.0], metric=1.0)], {}, "have a metric or none"),
    ([PLAIN, Observation(1.0, [1.0])], {}, r"one feature per weight, 2 as in Box\(.*found 1 at index 1"),
    ([Observation(1.0, {"a": 1.0, "c": 1.0})], {}, r"names of observation 0 must be the box's.*unknown \['c'\]"),
    ([Observation(1.0, {"b": 1.0, "a": 1.0})], {}, r"in the box's order, \['a', 'b'\]; found \['b', 'a'\]"),
    ([PLAIN], {"objective": "best"}, "`objective` must be one of 'calibrated', 'paper'; found 'best'"),
    ([PLAIN], {"sample_weight": [0.0]}, "`sample_weight` must be 1 finite numbers >= 0, not all 0"),
    ([PLAIN], {"sample_weight": [1.0, 1.0]}, "must be 1 finite numbers"),
    ([PLAIN], {"sample_weight": [-1.0]}, "must be 1 finite numbers"),
    ([PLAIN], {"epsilon": math.inf}, "the observations have no gram"),
]


@pytest.mark.parametrize(("observations", "options", "message"), MISFITS)
def test_learn_loss_refuses(observations, options, message):
    """Observations that do not fit each other or the box."""
    with pytest.raises(ValueError, match=message):
        learn_loss(observations, BOX, **options)


def test_a_large_gram_is_packed_and_both_forms_are_read():
    """From 32 rows on: bit for bit the same, a list is read as before."""
    rows = np.random.default_rng(0).normal(size=(50, 40))
    seen = Observation(1.0, np.arange(39.0), rows.T @ rows)
    record = json.loads(json.dumps(seen.to_dict()))
    assert isinstance(record["gram"], str)
    as_list = record | {"gram": seen.gram.tolist()}
    for back in (Observation.from_dict(record), Observation.from_dict(as_list)):
        np.testing.assert_array_equal(back.gram, seen.gram)
    assert len(json.dumps(record)) < 0.5 * len(json.dumps(as_list))
    assert isinstance(Observation(1.0, [1.0], np.eye(2)).to_dict()["gram"], list)


@pytest.mark.parametrize(
    ("text", "said"), [("AAAA", "buffer"), ("no base64!", "base64"), ("A" * 32, "10 numbers.*found 3")]
)
def test_a_packed_gram_that_cannot_be_read(text, said):
    with pytest.raises(InvalidInput, match=said):
        Observation.from_dict({"error": 1.0, "features": [1.0, 2.0, 3.0], "gram": text})
