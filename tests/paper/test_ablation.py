"""Ablation: each setting changes what it says and nothing else; differences are taken repeat by repeat."""

import pytest

from tuneloss.errors import InvalidInput
from tuneloss.paper import tuner_runs
from tuneloss.paper.ablation import BASE, VARIANTS, Ablation
from tuneloss.paper.terms import appendix_box
from tuneloss.paper.tuner_runs import Setting, TunerRuns
from tuneloss.tuning.sampling import center


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(tuner_runs, "EPOCHS_ON_DIGITS", 3)


def records_of(setting, runs=2, repeat=0):
    return list(TunerRuns("ablation", "digits", "some", repeat, runs, setting).run())


def numbers(records):
    return [(r["weights"], r["validation_loss"], r["test_loss"]) for r in records]


def test_a_setting_of_defaults_is_table_1():
    table1 = list(TunerRuns("table1", "digits", BASE, 0, 3).run())
    assert numbers(records_of(Setting(BASE), 3)) == numbers(table1)


def test_first_weights():
    box = appendix_box()
    middle, lower = (records_of(Setting(BASE, first=first), 1)[0]["weights"] for first in ("middle", "lower"))
    assert middle == pytest.approx(box.as_dict(center(box)))
    assert lower == box.as_dict(box.lower)


def test_more_epochs_and_warm_starts_fit_longer():
    """The weights of the lower end, again and again: longer training, or going on, lowers the training loss."""
    same = Setting(BASE, first="lower")
    short = records_of(same, 1)[0]
    assert records_of(Setting(BASE, first="lower", epochs=3), 1)[0]["test_loss"] == short["test_loss"]
    assert records_of(Setting(BASE, first="lower", epochs=30), 1)[0]["validation_loss"] != short["validation_loss"]
    cold, warm = (records_of(Setting("random", warm=warm), 2) for warm in (False, True))
    assert numbers(cold[:1]) == numbers(warm[:1])
    assert cold[1]["weights"] == warm[1]["weights"]
    assert cold[1]["validation_loss"] != warm[1]["validation_loss"]


def test_ranges_for_means_are_those_of_sums_times_the_number_of_examples():
    found = records_of(Setting("random", means=True), 1)[0]["weights"]
    plain = records_of(Setting("random"), 1)[0]["weights"]
    assert found["l1"] == pytest.approx(100 * plain["l1"], rel=1e-4)  # digits have 100 training examples
    assert found["dropout"] == plain["dropout"]


def test_every_variant_differs_from_what_it_is_compared_with_and_runs():
    assert all(against in (BASE, "random", *VARIANTS) for _, against in VARIANTS.values())
    assert len({setting for setting, _ in VARIANTS.values()}) == len(VARIANTS)
    ablation = Ablation(["digits"], 1, 1)
    units = ablation.units()
    assert len(units) == len(VARIANTS) + 2
    records = [next(iter(unit.run())) for unit in units]
    (table,) = ablation.tables(records)
    assert len(table.rows) == len(units)
    assert all(len(row) == len(table.header) for row in table.rows)


def test_differences_are_of_the_same_repeat_after_the_last_run():
    def record(name, repeat, run, loss):
        return {"dataset": "d", "tuner": name, "repeat": repeat, "run": run, "validation_loss": -run, "test_loss": loss}

    name = "paper's objective"
    records = [record(BASE, i, run, 1.0 + i) for i in (0, 1) for run in (0, 1)]
    records += [record(name, i, run, loss) for i in (0, 1) for run, loss in ((0, 9.0), (1, 0.5 + i))]
    (table,) = Ablation(["d"]).tables(records)
    rows = table.rows
    assert [row[1] for row in rows] == ["TuneLoss of Table 1", name]
    assert rows[0][-1] == ""
    assert rows[1][-1].startswith("-0.5000")


def test_only_some_variants():
    units = Ablation(["digits"], 1, 1, ["calibrated objective", "calibrated objective"]).units()  # once is enough
    assert [unit.tuner for unit in units] == ["tuneloss", "random", "calibrated objective"]
    with pytest.raises(InvalidInput, match=r"A variant must be one of .*; found 'none'"):
        Ablation(["digits"], 1, 1, ["none"])
