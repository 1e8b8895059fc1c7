"""Charts of a page: everything that can be drawn is drawn where it belongs, and its value is at hand."""

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from tuneloss.report.charts import LARGEST, TOO_EXTREME, WIDTH, Axis, Chart, Series, bars, chart_figure, chart_grid
from tuneloss.report.ticks import linear_ticks, log_ticks, whole_ticks
from tuneloss.report.words import weight_text

NUMBERS = st.floats(-LARGEST, LARGEST) | st.sampled_from([math.nan, math.inf, 0.0, 5e-324])


@given(values=st.lists(NUMBERS, min_size=1, max_size=5), log=st.booleans(), level=NUMBERS)
def test_any_numbers_make_a_chart_whose_coordinates_are_finite(values, log, level):
    series = [Series("a", range(len(values)), values)]
    figure = chart_figure(Chart("a", series, "run", log=log, levels={"b": level}))
    assert "nan" not in figure
    assert "inf" not in figure
    drawn = len(re.findall(r'<circle class="c0" [^>]*r="2.2"/>', figure))
    assert drawn == sum(map(math.isfinite, values)) or TOO_EXTREME in figure or "Nothing to draw." in figure


def test_each_value_is_under_the_pointer_with_the_names_of_its_lines():
    lines = [Series("tuned", [1, 2], [0.5, 0.25], strong=frozenset({1})), Series("plain", [1, 2], [0.5, 0.4], color=1)]
    figure = chart_figure(Chart("error", lines, "epoch", levels={"start": 0.5}))
    texts = re.findall(r'<g class="tip">.*?<text[^>]*>([^<]*)</text></g>', figure)
    assert texts == ["epoch 1: tuned 0.5000, plain 0.5000", "epoch 2: tuned 0.2500, plain 0.4000"]
    assert re.findall(r'class="key [^"]*">([^<]*)<', figure) == ["tuned", "plain", "start"]
    assert len(re.findall(r'r="4.5"', figure)) == 1


def test_a_long_line_is_thinned_and_numbers_beyond_bounds_are_not_drawn():
    line = Series("a", range(10_000), [math.sin(i / 100) for i in range(10_000)])
    assert len(chart_figure(Chart("a", [line], "step"))) < 60_000
    assert TOO_EXTREME in chart_figure(Chart("a", [Series("a", [1, 2], [1.0, 1e101])], "run"))
    assert TOO_EXTREME in chart_figure(Chart("a", [Series("a", [1, 2], [1.0, 1e-101])], "run", log=True))
    assert "Nothing to draw." in chart_figure(Chart("a", [Series("a", [1], [math.nan])], "run"))
    assert chart_grid([None]) == ""


def test_an_axis_places_its_ends_and_its_middle():
    assert [Axis(1, 100, 0, 10, log=True).place(v) for v in (1, 10, 100)] == [0, 5, 10]
    assert [Axis(0, 4, 10, 0).place(v) for v in (0, 1, 4)] == [10, 7.5, 0]


def test_bars_start_at_zero_and_those_below_it_go_to_the_left():
    html = bars({"up": 1.0, "down": -0.5, "none": math.nan}, ["1", "-0.5", "-"])
    places = re.findall(r'margin-left:([\d.]+)%;width:([\d.]+)%" class="(\w*)"', html)
    assert places == [("50.0", "50.0", ""), ("25.0", "25.0", "below"), ("50.0", "0.0", "")]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_within_the_axis(low, size):
    high = low + size
    ticks = linear_ticks(low, high)
    assert 1 <= len(ticks) <= 5
    assert all(low - 1e-6 * size <= tick <= high + 1e-6 * size for tick in ticks)
    nearly = 1e-6 * size
    assert all(low - nearly <= tick <= high + nearly and tick == int(tick) for tick in whole_ticks(low, high))
    assert len(whole_ticks(low, high)) <= 6


@given(st.floats(-50, 50), st.floats(0.01, 50))
def test_ticks_of_a_logarithmic_axis_are_few_and_within_it(power, decades):
    low, high = 10.0**power, 10.0 ** (power + decades)
    ticks = log_ticks(low, high)
    assert len(ticks) <= 8
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)


def test_values_of_weights_have_the_digits_of_tables_and_long_lines_stay_inside():
    chart = Chart("a", [Series("a" * 15, [1, 9], [0.1, 10.0])], "run", text=weight_text)
    assert re.findall(r">run \d: ([^<]*)</text>", chart_figure(chart)) == ["0.1", "10"]
    long = Chart("a", [Series(letter * 12, [1, 9], [1.0, 2.0]) for letter in "ab"], "run")
    middles = [float(x) for x in re.findall(r'x="([\d.]+)" y="11"', chart_figure(long))]
    assert min(middles) > 100
    assert max(middles) < WIDTH - 100
