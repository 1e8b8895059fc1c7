"""Table 1, from records by hand."""

import pytest

from tests.paper.records import record
from tuneloss.errors import InvalidInput
from tuneloss.paper.table1 import Table1, table1_rows
from tuneloss.paper.tuners import TUNERS


def test_table_1_by_hand():
    """Two repeats: means, paired differences from the first tuner, and the paper's number.

    By error, random search's second model is chosen, by log loss its first.
    """
    records = [record("tuneloss", r, 0, 1, loss, test_error=0.1) for r, loss in enumerate([0.2, 0.4])]
    records += [record("random", r, 0, 1, loss, test_error=0.2) for r, loss in enumerate([0.5, 0.8])]
    records += [record("random", r, 1, 2, 9, validation_error=0.4, test_error=e) for r, e in enumerate([0.3, 0.4])]
    first, second = table1_rows(records)
    assert (first.test_loss.mean, second.test_loss.mean) == (pytest.approx(0.3), pytest.approx(0.65))
    assert (second.test_error.mean, second.by_error.mean) == (pytest.approx(0.2), pytest.approx(0.35))
    assert first.loss_difference is first.error_difference is None
    assert second.loss_difference.mean == pytest.approx(0.35)
    assert second.loss_difference.half == pytest.approx(12.7062 * 0.05, rel=1e-4)
    assert second.error_difference.mean == pytest.approx(0.25)
    assert second.paper == 0.1063
    by_loss, by_error = Table1(["tf_flowers"]).tables(records)
    for table in (by_loss, by_error):
        assert all(len(row) == len(table.header) for row in table.rows)
    assert by_loss.rows[1][3:] == ["0.6500 ± 1.9059", "0.3500 ± 0.6353", "20.0 ± 0.0%"]
    assert by_error.rows[1][3:] == ["35.00 ± 63.53%", "25.00 ± 63.53", "10.63%"]


def test_differences_are_from_tuneloss_only():
    """Without its records there are none, whichever tuner is first."""
    records = [record(tuner, 0, 0, 1, 0.5) for tuner in ("random", "gp")]
    assert [row.loss_difference for row in table1_rows(records)] == [None, None]
    assert Table1(["tf_flowers"]).tables(records)[0].rows[1][4] == ""


def test_hypergradients_run_on_large_sets_only_if_they_are_named():
    """They take long there."""
    tuners = {unit.tuner for unit in Table1(["caltech101"]).units()}
    assert tuners == set(TUNERS) - {"hypergradient"}
    assert {unit.tuner for unit in Table1(["tf_flowers"]).units()} == set(TUNERS)
    assert {unit.tuner for unit in Table1(["caltech101"], tuners=["hypergradient"]).units()} == {"hypergradient"}


def test_some_tuners_alone():
    units = Table1(["digits"], repeats=2, tuners=["random", "gp-3", "random"]).units()
    assert [unit.tuner for unit in units] == ["random", "gp-3"] * 2
    with pytest.raises(InvalidInput, match=r"A tuner must be one of tuneloss, .* found 'sgd'"):
        Table1(["digits"], tuners=["sgd"])


def test_what_is_to_be_run():
    """The sizes that the reproduction promises."""
    counts: dict[tuple[str, str], int] = {}
    for unit in Table1(["tf_flowers", "nct_crc_he_3class", "oxford_iiit_pet", "caltech101"]).units():
        counts[unit.dataset, unit.tuner] = counts.get((unit.dataset, unit.tuner), 0) + 1
        assert unit.runs == 10
    assert {counts[name, t] for name in ("tf_flowers", "nct_crc_he_3class") for t in TUNERS} == {100}
    on_large = [t for t in TUNERS if t != "hypergradient"]
    assert {counts[name, t] for name in ("oxford_iiit_pet", "caltech101") for t in on_large} == {20}
