"""Figure 2, from records by hand."""

from collections import Counter

import numpy as np
import pytest

from tests.paper.records import record
from tuneloss.errors import InvalidInput
from tuneloss.paper.figure2 import Figure2, early_table, tuner_curves
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
