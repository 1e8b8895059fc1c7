"""The example of an Optuna study, small: what it records, and what its samplers are given."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    """A small run on digits, whatever TUNELOSS_DATA is."""
    folder = tmp_path_factory.mktemp("optuna_mlp")
    example.main(["--data", "", "--out", str(folder)])
    return folder


def test_each_sampler_has_a_curve_that_follows_the_best_trial(example, records):
    assert [r["sampler"] for r in records] == list(example.COLORS)
    for record in records:
        assert len(record["test_loss"]) == len(record["validation"]) == 6
        assert record["validation"] == sorted(record["validation"], reverse=True)
        for name, (low, high) in {**example.RANGES, "rate": example.RATES}.items():
            assert 0.99 * low <= record["params"][name] <= 1.01 * high


def test_a_study_can_be_repeated(example, records):
    key = {name: records[0][name] for name in ("dataset", "sampler", "seed", "epochs", "trials")}
    torch.set_num_threads(1)
    assert example.run(key, folder=None)["validation"] == pytest.approx(records[0]["validation"], rel=1e-4)


def test_it_writes_a_figure_and_a_table(example, out, records):
    assert (out / "images" / "optuna_mlp.png").read_bytes().startswith(b"\x89PNG")
    rows = [line for line in example.table(records).splitlines() if line.startswith("| digits")]
    assert len(rows) == 3
    assert rows[0].split("|")[-2].strip() == ""  # no difference from itself
