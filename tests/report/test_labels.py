"""Names as labels of figures: whatever their letters and their length, without a warning."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font

from tuneloss import Box, Observation
from tuneloss.report import labels
from tuneloss.report.axes import WeightRange, draw_weight, panel
from tuneloss.report.labels import WIDEST, as_label, drawable
from tuneloss.report.pictures import save
from tuneloss.report.runs_info import runs_info
from tuneloss.report.runs_page import runs_page
from tuneloss.report.weights_table import contribution_bars
from tuneloss.tuning.run import Header, Run

CHINESE, WORDS = (
    "学習率",
    ["学習率", "정규화", "مرحبا", "हिन्दी", "👍🏽", "a" * 5000, "学" * 500, "_hidden", "", "$\\frac", "a\nb"],
)


@given(st.text(st.characters()))
def test_a_label_has_one_line_of_some_width(name):
    label = as_label(name)
    assert sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in label.replace("\\$", "$")) <= WIDEST + 1
    assert label.isprintable() or not re.search(r"[\x00-\x1f\ud800-\udfff]", label)
    assert not label.startswith("_")


def test_a_long_name_keeps_its_start_and_its_end():
    assert as_label("encoder.layer." + "0." * 50 + "weight") == "encoder.layer….0.0.0.weight"
    assert as_label("short") == "short"


@pytest.mark.parametrize("name", WORDS)
def test_any_name_makes_pages_and_pictures_without_a_warning(tmp_path, name):
    """Warnings are errors here. Where the page shows a name, its letters stay, for the fonts of whoever reads it."""
    box = Box.from_dict({name: (0.1, 10.0), "fit": 1.0})
    runs = [Run(i, {name: 1.0 + i, "fit": 1.0}, Observation(1.0 + i, [1.0, i]), info={name: 1.0}) for i in range(2)]
    page = runs_page(runs_info(Header(box, name), runs))
    figure, axes = panel()
    draw_weight(axes, WeightRange(name, 0.1, 10.0, True, {name: np.ones((2, 3)), f"{name}2": np.ones((2, 3))}))
    axes.legend()
    save(figure, tmp_path / "weight.png")
    if name == CHINESE:
        assert f"<b>weight of {CHINESE}</b>" in page
        assert f"<div>{CHINESE}</div>" in page  # beside its bar


def test_terms_with_long_names_have_bars_of_their_own():
    names = ["a" * 50 + letter + "a" * 50 for letter in "bcd"]
    box = Box.from_dict({**dict.fromkeys(names, (0.1, 10.0)), "fit": 1.0})
    weights = {**dict.fromkeys(names, 1.0), "fit": 1.0}
    bars = contribution_bars(runs_info(Header(box, "a"), [Run(0, weights, Observation(1.0, [1.0, 2.0, 3.0, 4.0]))]))
    assert re.findall(r"width:([\d.]+)%", bars) == ["100.0", "75.0", "50.0", "25.0"]
    assert all(name in bars for name in names)


def labelled(text):
    figure = Figure()
    return figure, figure.subplots().set_title(text)


def test_where_no_font_has_the_letters_a_picture_shows_their_codes(tmp_path, monkeypatch):
    """And only it: the figure is as before."""
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "DejaVu" in font.name])
    labels._font_with.cache_clear()
    figure, title = labelled(f"a {CHINESE}")
    with drawable(figure):
        assert title.get_text() == r"a \u5b66\u7fd2\u7387"
    assert title.get_text() == f"a {CHINESE}"
    save(figure, tmp_path / "a.png")
    labels._font_with.cache_clear()


def test_where_a_font_has_the_letters_a_picture_is_drawn_in_it(tmp_path):
    """With a letter that another of matplotlib's own fonts has."""
    default, other = (get_font(fontManager.findfont(name)) for name in ("DejaVu Sans", "STIXGeneral"))
    letter = next(chr(c) for c in sorted(other.get_charmap()) if c > 0x2000 and not default.get_char_index(c))
    figure, title = labelled(f"a {letter}")
    with drawable(figure):
        assert title.get_text() == f"a {letter}"
        found = get_font(fontManager.findfont(title.get_fontfamily()[-1]))
        assert found.get_char_index(ord(letter))
    save(figure, tmp_path / "a.png")
