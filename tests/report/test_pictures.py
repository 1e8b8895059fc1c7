"""Figures of numbers that axes cannot show are replaced by words, and no others are."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tuneloss.report.axes import panel
from tuneloss.report.pictures import LARGEST, TOO_EXTREME, save, to_svg

NUMBERS = st.floats(-LARGEST, LARGEST) | st.sampled_from([0.0, 5e-324, 1e-300, LARGEST, -LARGEST])


@settings(max_examples=30, deadline=None)
@example(values=[9.99999999999997e99], is_log=True)
@given(values=st.lists(NUMBERS, min_size=1, max_size=3), is_log=st.booleans())
def test_numbers_within_bounds_are_drawn_without_a_warning(values, is_log):
    """Warnings are errors here. On a logarithmic axis, as far as they are above 0 and not too near to it."""
    figure, axes = panel()
    if is_log:
        values = [max(abs(value), 1 / LARGEST) for value in values]
        axes.set_yscale("log")
    axes.plot(values, "o-")
    axes.margins(y=0.3)
    assert TOO_EXTREME not in to_svg(figure, "a")


@pytest.mark.parametrize(
    ("values", "is_log"),
    [([1e101, 1], False), ([-1e308, 1e308], False), ([1.7e308], False), ([1e-101, 1], True), ([5e-324, 1e300], True)],
)
def test_numbers_beyond_them_are_not_drawn_and_that_is_said(tmp_path, values, is_log):
    figure, axes = panel()
    axes.plot(values, "o-")
    if is_log:
        with np.errstate(all="ignore"):
            axes.set_yscale("log")
    assert TOO_EXTREME in to_svg(figure, "a")
    save(figure, tmp_path / "a.png")


def test_what_is_missing_is_no_extreme():
    figure, axes = panel()
    axes.plot([np.nan, 1.0, np.inf])
    assert TOO_EXTREME not in to_svg(figure, "a")
