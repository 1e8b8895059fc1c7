"""The packed history gives back the records that it was given."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneloss.tuning.history import History, StepRecord

NAMES = ("l1", "l2", "fit")
numbers = st.floats(allow_nan=False, allow_infinity=False)
by_name = st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))


@st.composite
def records(draw):
    is_learned = draw(st.booleans())
    return StepRecord(
        step=draw(st.integers(1, 2**40)),
        error=draw(numbers),
        metric=draw(st.none() | numbers),
        features=draw(by_name),
        weights=draw(by_name),
        learned=draw(by_name) if is_learned else None,
        scale=draw(numbers) if is_learned else None,
        cost=draw(numbers | st.just(math.inf)) if is_learned else None,
        argmin=draw(st.integers(0, 2**40)) if is_learned else None,
        note=draw(st.text(max_size=5)),
        seconds=draw(numbers),
        kept=draw(numbers) if is_learned else None,
        n_counted=draw(st.integers(0, 2**40)) if is_learned else None,
        least_scale=draw(st.none() | numbers) if is_learned else None,
        cosine_before=draw(st.none() | numbers) if is_learned else None,
        cosine_after=draw(st.none() | numbers) if is_learned else None,
    )


@given(st.lists(records(), max_size=6))
def test_records_come_back_as_they_were(steps):
    """Every field, its type included, by index, by slice and by iteration."""
    history = History(NAMES, steps)
    assert list(history) == history[:] == steps
    assert len(history) == len(steps)
    if steps:
        assert history[-1] == steps[-1]
        types = {name: type(value) for name, value in steps[0].to_dict().items()}
        assert {name: type(value) for name, value in history[0].to_dict().items()} == types
    with pytest.raises(IndexError):
        history[len(steps)]


def test_a_record_that_an_interrupt_cut_short_leaves_no_trace():
    by_name = dict.fromkeys(NAMES, 0.5)
    first, second = (StepRecord(i, 1.0, None, by_name, by_name, None, None, None, None, "", 0.1) for i in (1, 2))
    history = History(NAMES, [first])
    history._numbers.extend([7.0] * 20)  # its numbers are in, its note is not
    assert list(history) == [first]
    history.append(second)
    assert list(history) == [first, second]


def test_a_step_takes_the_room_of_its_numbers():
    """8 bytes per number, and one reference to a note that steps share."""
    by_name = dict.fromkeys(NAMES, 0.5)
    record = StepRecord(1, 1.0, None, by_name, by_name, by_name, 1.0, 1.0, 0, "the same note", 0.1)
    history = History(NAMES, [record] * 10_000)
    assert len(history._numbers) == 10_000 * (12 + 3 * len(NAMES))
    assert sys.getsizeof(history._numbers) < 1.2 * 8 * len(history._numbers)
    assert len({id(note) for note in history._notes}) == 1
