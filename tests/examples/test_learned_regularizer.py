"""The learned regularizer's example, small: what it finds, what it writes, and that it continues."""

import numpy as np
import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    """A small run on digits, whatever TUNELOSS_DATA is."""
    folder = tmp_path_factory.mktemp("learned_regularizer")
    example.main(["--data", "", "--out", str(folder), "--epochs", "80", "--seeds", "0", "1"])
    return folder


def test_the_tuner_lowers_validation_loss_and_keeps_it_low(example, records):
    """At its best epoch it is at most that of AdaGrad alone; at the last one it is at most 2% above that best."""
    plain, tuned = (example.by_seed(records, method) for method in example.METHODS)
    assert [r["seed"] for r in plain] == [r["seed"] for r in tuned] == [0, 1]
    for without, with_tuner in zip(plain, tuned, strict=True):
        assert with_tuner["validation_loss"] <= without["validation_loss"] * 1.002
        assert with_tuner["last_validation_loss"] <= with_tuner["validation_loss"] * 1.02


def test_the_learned_regularizer_is_convex_and_least_near_zero(example, records):
    """Each of its knots lies on or below the line between its neighbours; it is not least at the outer knots."""
    for record in example.by_seed(records, example.METHODS[1]):
        assert list(record["regularizers"]) == ["10", "80"]
        knots, values = (np.array(record["regularizers"]["80"][name]) for name in ("knots", "values"))
        part = (knots[1:-1] - knots[:-2]) / (knots[2:] - knots[:-2])
        line = (1 - part) * values[:-2] + part * values[2:]
        assert (values[1:-1] <= line + 1e-4 * values.max()).all()  # they are written with 5 digits
        assert 0 < values.argmin() < len(knots) - 1


def test_a_run_that_is_there_is_not_run_again(example, out, records, monkeypatch):
    """The second call only draws, and gives the same table; a line that was cut short counts as not there."""
    path = out / "results" / "learned_regularizer.jsonl"
    ran = []
    monkeypatch.setattr(example, "run", lambda key, folder: ran.append(key) or {**records[-1], **key})
    arguments = ["--data", "", "--out", str(out), "--epochs", "80", "--seeds", "0", "1"]
    before = path.read_text()
    table = example.main(arguments)
    assert ran == []
    path.write_text(before[:-20])
    assert example.main(arguments) == table
    assert ran == [{name: records[-1][name] for name in ("dataset", "method", "seed", "learning_rate", "epochs")}]
    assert path.read_text() == before


def test_it_writes_a_figure_and_a_table(example, out, records):
    """The figure is a PNG; the table has one row per method and one of differences."""
    image = out / "images" / "learned_regularizer.png"
    assert image.read_bytes().startswith(b"\x89PNG")
    rows = [line for line in example.table(records).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(example.METHODS) + 1
