"""The page about a demo: whole, self-contained, and true to the numbers."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.paper.demo_records import demo_records
from tuneloss.paper.demo import BETWEEN, INSIDE, Demo
from tuneloss.paper.demo_page import measure_figure, page, step_cells, weight_ranges, write_page
from tuneloss.paper.statistics import interval
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


def demo(repeats=2):
    return Demo(runs=3, repeats=repeats)


@pytest.fixture(scope="module")
def text():
    return page(demo(), demo_records())


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
    """No fixed colour of ink, grid or lines is left in the inlined figures: dark pages stay readable."""
    assert colors.INK not in text
    assert colors.GRID not in text
    assert "currentColor" in text
    body = text.split("</style>", 1)[1].lower()
    assert not any(color.lower() in body for color in colors.SERIES)
    assert "var(--c0)" in body


def test_the_verdict_and_the_table_come_first(text):
    """A reader sees what was gained before anything else."""
    assert text.index(demo().verdict(demo_records())[0]) < text.index("3 runs, TuneLoss")
    assert text.index("1 run, tuned inside") < text.index("Between runs</h2>") < text.index("Inside one run</h2>")


def test_terms_have_the_names_of_people(text):
    """In charts, captions and tables: no name is that of a variable."""
    assert '<th scope="col">label smoothing (uniform)</th>' in text
    assert "Weight of L1." in text
    assert not re.search(r">\s*(weight of )?(l1|l2|uniform)\s*<", text)


def test_the_page_ends_with_what_to_type(text):
    """Three steps from the demo to data of one's own, each with a command or code."""
    last = text.split("<h2>")[-1]
    assert last.startswith("What to do next")
    assert last.count("<pre>") == last.count("<li>") == 3


def test_runs_are_drawn_as_the_best_so_far_and_epochs_as_they_are():
    """Means over two repeats; the second is 1 higher than the first."""
    by_run = measure_figure(demo_records(), BETWEEN, "test_loss").axes[0]
    np.testing.assert_allclose(by_run.lines[0].get_ydata(), [1.5, 1.7, 1.7])
    by_epoch = measure_figure(demo_records(), INSIDE, "test_loss").axes[0]
    np.testing.assert_allclose(by_epoch.lines[0].get_ydata(), [1.5, 1.7, 0.6])


def test_bands_are_drawn_only_where_there_are_repeats():
    """One repeat has no interval and gets no band."""
    assert not measure_figure(demo_records(repeats=1), BETWEEN, "test_loss").axes[0].collections
    assert len(measure_figure(demo_records(repeats=2), BETWEEN, "test_loss").axes[0].collections) == 2


def test_bands_touch_where_the_interval_of_the_difference_begins_at_0():
    """Differences of -0.1 and -0.3 have the mean -0.2 and a known half: a wide one of one degree of freedom."""
    records = [
        {**r, "test_loss": r["test_loss"] + 0.2 * (r["repeat"] == 1 and r["tuner"] == "random")}
        for r in demo_records(gap=0.1)
    ]
    axes = measure_figure(records, BETWEEN, "test_loss").axes[0]
    for band, line in zip(axes.collections, axes.lines, strict=True):
        y = band.get_paths()[0].vertices[:, 1]
        width = y.max() - y.min() - np.ptp(line.get_ydata())
        assert width == pytest.approx(interval([-0.1, -0.3]).half)


def test_pinned_weights_are_left_out_and_decades_are_logarithmic():
    """Only free weights are shown; a range of a decade or more gets a log axis, unless it begins at 0."""
    weights = {weight.name: weight for weight in weight_ranges(demo_records(), BETWEEN)}
    assert {name: weight.log for name, weight in weights.items()} == {
        "L1": True, "L2": True, "label smoothing (uniform)": False, "dropout": False,
    }  # fmt: skip
    assert weights["L2"].values["TuneLoss"].shape == (2, 3)


def test_a_far_bound_is_not_drawn():
    """L2 stays at 3 of 100: its upper bound would make it a flat line. Uniform is at half of its bound."""
    weights = {weight.name: weight for weight in weight_ranges(demo_records(), INSIDE)}
    assert weights["L2"].upper == np.inf
    assert weights["label smoothing (uniform)"].upper == 0.1
    assert list(weights["L2"].values) == ["tuned inside"]


def test_a_page_where_every_run_failed_marks_no_run():
    failed = [{**run, "validation_loss": None, "test_loss": None, "failed": "diverged <b>"} for run in demo_records()]
    text = page(demo(), failed)
    assert "class=chosen" not in text
    assert "failed: diverged &lt;b&gt;" in text


def test_a_failed_run_says_why():
    """Its row has the reason in place of numbers."""
    weights = {"l1": 2.0, "l2": 2.0, "uniform": 0.0, "dropout": 0.5, "logloss": 1.0}
    row = step_cells({"run": 1, "weights": weights, "failed": "diverged"})
    assert row == ["2", "2", "2", "0", "0.5", "failed: diverged", "", ""]


def test_the_same_records_give_the_same_page(text):
    """No dates or random ids: reports can be compared."""
    assert page(demo(), demo_records()) == text


def test_page_and_picture_are_written(tmp_path):
    """write_page makes its folder and leaves a page and a PNG there."""
    path = write_page(demo(), demo_records(), tmp_path / "new" / "folder")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (path.parent / "demo.png").read_bytes().startswith(b"\x89PNG")
