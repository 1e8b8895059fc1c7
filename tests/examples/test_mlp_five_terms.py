"""The example of an MLP with five terms, small: what it finds, what it writes, and what it compares with."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    """A small run on digits, whatever TUNELOSS_DATA is."""
    folder = tmp_path_factory.mktemp("mlp_five_terms")
    example.main(["--data", "", "--out", str(folder), "--epochs", "25", "--seeds", "0", "1"])
    return folder


def test_tuning_does_not_hurt_validation_loss(example, records):
    """At the best epoch, one online run is not above early stopping without terms by more than 1%."""
    plain, online = (example.by_seed(records, "digits", method) for method in (example.PLAIN, example.ONLINE))
    for without, with_tuner in zip(plain, online, strict=True):
        assert with_tuner["validation_loss"] <= without["validation_loss"] * 1.01


def test_learned_weights_stay_in_the_box_and_are_used(example, records):
    """Each epoch's weights lie between 0 and the range's end, and not all of them are 0."""
    for record in example.by_seed(records, "digits", example.ONLINE):
        for name, values in record["weights"].items():
            assert len(values) == 25
            assert all(0 <= value <= example.RANGES[name][1] for value in values)
        assert max(max(values) for values in record["weights"].values()) > 0


def test_random_weights_are_log_uniform(example):
    """Over many draws each weight's logarithm has the mean of its range, and a third lies in each third of it."""
    draws = [example.random_weights(7, i) for i in range(600)]
    for name, ends in example.RANGES.items():
        low, high = np.log(ends)
        place = (np.log([w[name] for w in draws]) - low) / (high - low)
        assert 0 <= place.min() <= place.max() <= 1
        assert np.histogram(place, bins=3, range=(0, 1))[0] == pytest.approx([200] * 3, abs=50)


def test_the_random_run_is_chosen_by_validation(example, records):
    """Of a seed's random runs the one of least validation log loss counts, with the seconds of all."""
    for chosen in example.by_seed(records, "digits", example.RANDOM):
        runs = [r for r in records if r["method"] == example.RANDOM and r["seed"] == chosen["seed"]]
        assert len(runs) == 3
        assert chosen["validation_loss"] == min(r["validation_loss"] for r in runs)
        assert chosen["seconds"] == pytest.approx(sum(r["seconds"] for r in runs))


def test_a_run_can_be_repeated(example, records):
    """The same seed gives the same curves, with and without the tuner."""
    for record in (next(r for r in records if r["method"] == m) for m in (example.PLAIN, example.ONLINE)):
        key = {name: record[name] for name in ("dataset", "method", "seed", "draw", "learning_rate", "epochs")}
        torch.set_num_threads(1)
        assert example.run(key, folder=None)["validation_curve"] == pytest.approx(record["validation_curve"], rel=1e-4)


def test_it_writes_a_figure_and_a_table(example, out, records):
    """The figure is a PNG; the table has one row per method."""
    assert (out / "images" / "mlp_five_terms.png").read_bytes().startswith(b"\x89PNG")
    rows = [line for line in example.table(records).splitlines() if line.startswith("| digits")]
    assert len(rows) == len([example.PLAIN, example.PLAIN_SLOW, example.RANDOM, *example.BATCHES])
