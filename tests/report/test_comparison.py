"""The HTML page: whole, self-contained, escaped; and its figures show the numbers."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.report.examples import comparison, record
from tuneloss.report import colors, figures
from tuneloss.report.comparison import report_page, run_row, write_report
from tuneloss.report.info import best_so_far_info

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


@pytest.fixture(scope="module")
def page():
    return report_page(comparison())


@pytest.fixture(scope="module")
def tags(page):
    parser = Tags()
    parser.feed(page)
    return parser


def test_tags_nest_and_close(tags):
    """The page is well formed."""
    assert tags.open == []


def test_ids_are_unique_and_references_stay_inside_the_page(tags):
    """Inlined figures do not share ids, and nothing is loaded from elsewhere."""
    assert len(set(tags.ids)) == len(tags.ids)
    assert tags.links
    assert {link.lstrip("#") for link in tags.links} <= set(tags.ids)


def test_no_script_and_no_address_to_load(page, tags):
    """The page is static and opens without a network."""
    assert "script" not in tags.names
    assert not re.search(r"url\((?!#)|@import|src=", page)


def test_users_strings_are_escaped():
    """A name with markup in it shows as text, in the words, tables and figures."""
    bad = "<b>&x$y$"
    page = report_page(comparison(title=bad, methods=(bad, "B"), name=bad))
    assert "<b>" not in page
    assert page.count("&lt;b&gt;&amp;x$y$") > 10


def test_a_figure_takes_its_ink_from_the_page(page):
    """No fixed ink or grid colour is left in the inlined figures: dark pages stay readable."""
    assert colors.INK not in page
    assert colors.GRID not in page
    assert "currentColor" in page


def test_the_drawn_line_is_the_mean_of_the_numbers():
    """The curve on the axes is the one that `best_so_far_info` gives."""
    axes = figures.best_so_far_figure(comparison(), "test_loss").axes[0]
    curve = best_so_far_info(comparison(), "test_loss")[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), curve.mean)


def test_bands_are_drawn_only_where_there_are_repeats():
    """One repeat has no interval and gets no band."""
    assert not figures.best_so_far_figure(comparison(repeats=1), "test_loss").axes[0].collections
    assert len(figures.best_so_far_figure(comparison(repeats=2), "test_loss").axes[0].collections) == 2


def test_a_failed_run_says_why():
    """Its row has the reason in place of numbers."""
    row = run_row(record("A", 1, 2, float("nan"), float("nan"), failed="diverged"), ("l2",))
    assert row[:3] == ["2", "2", "failed: diverged"]


def test_the_same_comparison_gives_the_same_page(page):
    """No dates or random ids: reports can be compared."""
    assert report_page(comparison()) == page


def test_page_and_picture_are_written(tmp_path):
    """write_report makes its folder and leaves a page and a PNG there."""
    path = write_report(comparison(), tmp_path / "new" / "folder")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (path.parent / "demo.png").read_bytes().startswith(b"\x89PNG")
