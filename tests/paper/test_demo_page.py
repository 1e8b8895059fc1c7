"""The page about a demo: whole, self-contained, and true to the numbers."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.paper.records import record
from tuneloss.paper.demo import Demo, final_measures, method_records
from tuneloss.paper.demo_page import measure_figure, page, weight_ranges, words, write_page
from tuneloss.paper.statistics import curve
from tuneloss.report import colors

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Tags(HTMLParser):
    """Checks that tags nest, and collects ids and references."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.names = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def records(*, gap=0.25, repeats=2):
    """Two methods, three runs; random search's test loss is TuneLoss's plus `gap` in every repeat."""
    return [
        record(
            method, repeat, run, validation + repeat, test + repeat + gap * m, test_error=0.1, dataset="digits",
            weights={"l1": 0.1, "l2": float(run + 1), "uniform": 0.05, "dropout": 0.0, "logloss": 1.0},
        )
        for m, method in enumerate(("tuneloss", "random"))
        for repeat in range(repeats)
        for run, (validation, test) in enumerate(((0.9, 1.0), (0.5, 1.2), (0.7, 0.1)))
    ]  # fmt: skip


def demo(repeats=2):
    return Demo(runs=3, repeats=repeats)


@pytest.fixture(scope="module")
def text():
    return page(demo(), records())


@pytest.fixture(scope="module")
def tags(text):
    parser = Tags()
    parser.feed(text)
    return parser


def test_tags_nest_and_close(tags):
    """The page is well formed."""
    assert tags.open == []


def test_ids_are_unique_and_references_stay_inside_the_page(tags):
    """Inlined figures do not share ids, and nothing is loaded from elsewhere."""
    assert len(set(tags.ids)) == len(tags.ids)
    assert tags.links
    assert {link.lstrip("#") for link in tags.links} <= set(tags.ids)


def test_no_script_and_no_address_to_load(text, tags):
    """The page is static and opens without a network."""
    assert "script" not in tags.names
    assert not re.search(r"url\((?!#)|@import|src=", text)


def test_a_figure_takes_its_ink_from_the_page(text):
    """No fixed ink or grid colour is left in the inlined figures: dark pages stay readable."""
    assert colors.INK not in text
    assert colors.GRID not in text
    assert "currentColor" in text


def test_the_test_value_is_that_of_the_best_validation_loss_even_if_it_is_worse():
    """Validation of the first repeat is 0.9, 0.5, 0.7; test is 1.0, 1.2, 0.1: the second model counts."""
    final = final_measures(records())
    assert final["TuneLoss"]["test_loss"].mean == pytest.approx(1.7)
    assert final["difference"]["test_loss"].mean == pytest.approx(-0.25)
    assert final["difference"]["test_loss"].half == pytest.approx(0, abs=1e-12)


def test_the_drawn_line_is_the_mean_of_the_numbers():
    axes = measure_figure(records(), "test_loss").axes[0]
    expected = curve(method_records(records(), "tuneloss"), "test_loss").mean
    np.testing.assert_allclose(axes.lines[0].get_ydata(), expected)


def test_bands_are_drawn_only_where_there_are_repeats():
    """One repeat has no interval and gets no band."""
    assert not measure_figure(records(repeats=1), "test_loss").axes[0].collections
    assert len(measure_figure(records(repeats=2), "test_loss").axes[0].collections) == 2


def test_pinned_weights_are_left_out_and_decades_are_logarithmic():
    """Only free weights are shown; a range of a decade or more gets a log axis, unless it begins at 0."""
    weights = {weight.name: weight for weight in weight_ranges(records())}
    assert {name: weight.log for name, weight in weights.items()} == {
        "l1": True, "l2": True, "uniform": False, "dropout": False,
    }  # fmt: skip
    assert weights["l2"].values["TuneLoss"].shape == (2, 3)


def test_words_name_bounds_that_are_met():
    """A best weight at the edge of the box is said to be so, others are not."""
    sentences = " ".join(words(demo(), records()))
    assert "The best run of repeat 1 of TuneLoss is number 2, with l1 = 0.1 (at its lower bound), l2 = 2," in sentences
    assert "dropout = 0 (at its lower bound)" in sentences


@pytest.mark.parametrize(
    ("gap", "said"),
    [(0.25, "TuneLoss is lower by 0.2500"), (-0.25, "TuneLoss is higher by 0.2500"), (0.0, "within what chance")],
)
def test_words_claim_no_more_than_the_interval_allows(gap, said):
    """Better, worse, or not to be told apart: by the paired interval."""
    assert said in " ".join(words(demo(), records(gap=gap)))


def test_words_on_one_repeat_do_not_claim_a_winner():
    """One repeat cannot be told from luck, and the text says so."""
    assert "one repeat cannot tell this from luck" in " ".join(words(demo(1), records(repeats=1)))


def test_a_page_where_every_run_failed_names_no_best_run():
    failed = [{**run, "validation_loss": None, "test_loss": None, "failed": "diverged <b>"} for run in records()]
    text = page(demo(), failed)
    assert "The best run" not in text
    assert "failed: diverged &lt;b&gt;" in text


def test_the_same_records_give_the_same_page(text):
    """No dates or random ids: reports can be compared."""
    assert page(demo(), records()) == text


def test_page_and_picture_are_written(tmp_path):
    """write_page makes its folder and leaves a page and a PNG there."""
    path = write_page(demo(), records(), tmp_path / "new" / "folder")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (path.parent / "demo.png").read_bytes().startswith(b"\x89PNG")
