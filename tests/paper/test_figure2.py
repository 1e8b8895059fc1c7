"""Figure 2, from records by hand."""

from collections import Counter

import numpy as np
import pytest

from tests.paper.records import record
from tuneloss.errors import InvalidInput
from tuneloss.paper.figure2 import Figure2
from tuneloss.paper.figure2_tables import (
    difference_table,
    early_table,
    of_shared_repeats,
    standing_table,
    tuner_curves,
)
from tuneloss.paper.tuners import LABELS, TUNERS


def test_figure_2_by_hand_and_drawn(tmp_path):
    records = [record("tuneloss", r, i, 1 - i / 10, 1 + r - i / 10) for r in range(2) for i in range(4)]
    curve = tuner_curves(records)[0].curve
    np.testing.assert_allclose(curve.mean, [1.5, 1.4, 1.3, 1.2])
    longer = [record("tuneloss", r, i, 1 - i / 10, 1 + r - i / 10) for r in range(2) for i in range(4 + 3 * r)]
    np.testing.assert_array_equal(tuner_curves(longer)[0].curve.mean, curve.mean)  # up to what all repeats have
    figure = Figure2(["tf_flowers"]).figure(records)
    figure.savefig(tmp_path / "a.png")
    assert [axes.get_title() for axes in figure.axes] == ["tf_flowers"] * 2


def test_early_rows_by_hand():
    """TuneLoss after 2 and 3 runs minus random search after 100, repeat by repeat; random search has no 500 here."""
    records = [record("tuneloss", r, i, 1 - i / 10, 1 + r - i / 10) for r in range(2) for i in range(3)]
    records += [record("random", r, i, 1 - i / 1000, 2 + r + r - i / 100) for r in range(2) for i in range(100)]
    table = early_table(records)
    rows = table.rows
    assert table.header[3] == "test log loss minus random search after 100"
    assert rows[0][:3] == ["tf_flowers", LABELS["tuneloss"], "2"]
    differences = [0.9 + 0 - (2 - 0.99), 1.9 - (4 - 0.99)]
    assert rows[0][3] == f"{np.mean(differences):.4f} ± {12.7062 * 0.5:.4f}"
    assert rows[1][3].startswith(f"{np.mean(differences) - 0.1:.4f} ± ")
    assert all(row[4] == row[6] == "" for row in rows)
    assert len(rows) == 2  # it has no 10 runs, and the other form none


def test_differences_by_hand():
    """Other tuners minus TuneLoss after as many runs, by repeat. The best so far counts."""
    records = [record("tuneloss", r, i, 1 - i / 10, 1 + r - i / 10) for r in range(3) for i in range(3)]
    records += [record("gp", r, i, 1 + i / 10, 2 + 3 * r + i / 10) for r in range(2) for i in range(2)]
    table = difference_table(records)
    assert table.header[:4] == ["data", "tuner", "after 2", "after 3"]
    (row,) = table.rows
    assert row[:2] == ["tf_flowers", LABELS["gp"]]
    assert row[2] == f"{np.mean([2 - 0.9, 5 - 1.9]):.4f} ± {12.7062:.4f}"
    assert set(row[3:]) == {""}
    assert difference_table([r for r in records if r["tuner"] == "gp"]).rows == []


def test_standings_by_hand():
    """Random search is above TuneLoss in all repeats after 2, 3 and 5 runs, equal after 4, and below after 6."""
    gains = [0.0, 1.0, 2.0, 0.0, 3.0, -4.0]
    records = [record("tuneloss", r, i, 1 - i / 10, float(r)) for r in range(3) for i in range(8)]
    for r in range(3):
        records += [record("random", r, i, 1 - i / 10, r + g * (1 + r / 100)) for i, g in enumerate(gains)]
    assert standing_table(records).rows == [["tf_flowers", LABELS["random"], "3", "2-6", "2-3, 5", "6"]]
    same = [{**r, "tuner": "gp"} for r in records if r["tuner"] == "tuneloss"]
    rows = standing_table([r for r in records if r["tuner"] == "tuneloss"] + same).rows
    assert rows == [["tf_flowers", LABELS["gp"], "3", "2-8", "never", "never"]]
    assert standing_table([r for r in records if r["repeat"] == 0]).rows == []


def test_means_are_over_the_repeats_that_all_tuners_have():
    """Each data set has its own; a tuner without any record on it does not count."""
    records = [record("tuneloss", r, 0, 1.0, float(r)) for r in range(4)]
    records += [record("gp", r, 0, 1.0, float(r)) for r in (1, 2, 9)]
    other = [{**record("tuneloss", r, 0, 1.0, float(r)), "dataset": "digits"} for r in range(2)]
    shared = of_shared_repeats(records + other)
    assert [(r["dataset"], r["tuner"], r["repeat"]) for r in shared] == [
        *(("tf_flowers", tuner, repeat) for tuner in ("tuneloss", "gp") for repeat in (1, 2)),
        *(("digits", "tuneloss", repeat) for repeat in (0, 1)),
    ]
    first, *_ = Figure2(["tf_flowers"]).tables(records + other)
    assert [row[:4] for row in first.rows] == [
        ["tf_flowers", LABELS["tuneloss"], "2", "1.5000"],
        ["tf_flowers", LABELS["gp"], "2", "1.5000"],
        ["digits", LABELS["tuneloss"], "2", "0.5000"],
    ]


def test_what_is_to_be_run():
    """The sizes that the reproduction promises."""
    units = Figure2(["tf_flowers", "caltech101"]).units()
    sizes = Counter((u.dataset, u.tuner, u.runs) for u in units)
    assert {name for _, name, _ in sizes} == {*TUNERS} - {"hypergradient"}
    assert sizes["tf_flowers", "random", 500] == 20
    assert sizes["tf_flowers", "random", 100] == 80
    assert sizes["tf_flowers", "gp-ei-mcmc", 100] == 100
    assert sizes["caltech101", "random", 100] == sizes["caltech101", "gp-3", 100] == 20
    assert {(u.tuner, u.runs) for u in Figure2(["tf_flowers"], runs=8).units()} == {(name, 8) for _, name, _ in sizes}
    assert {u.tuner for u in Figure2(["tf_flowers"], tuners=["random", "tpe"]).units()} == {"random", "tpe"}
    with pytest.raises(InvalidInput, match="found 'sgd'"):
        Figure2(["tf_flowers"], tuners=["random", "sgd"])
    units = Figure2(["caltech101"], 3, 40, tuners=["random:100", "tuneloss:10", "tpe"]).units()
    assert {(u.tuner, u.runs) for u in units} == {("random", 100), ("tuneloss", 10), ("tpe", 40)}
    with pytest.raises(InvalidInput, match="named once; found random:1000, random"):
        Figure2(["tf_flowers"], tuners=["random:1000", "random"])
    for wrong in ("random:", "random:0", "random:ten"):
        with pytest.raises(InvalidInput, match=f"NAME or NAME:RUNS, such as random:100; found '{wrong}'"):
            Figure2(["tf_flowers"], tuners=[wrong])
