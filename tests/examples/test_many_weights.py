"""The example of many weights, small: its data, what it finds and what it writes."""

import numpy as np
import pytest

pytest.importorskip("torch")  # the examples' common part needs it


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("many_weights")
    example.main(["--out", str(folder), "--seeds", "0", "1"])
    return folder


def test_what_matters_is_in_the_labels(example):
    """Correlations with the labels: those of the inputs that matter, and of no others; labels are as hard as each."""
    for every in example.MATTER:
        x, y = example.examples(50000, every, np.random.default_rng(0))
        seen = x.T @ (y - y.mean()) / len(y)
        matter = np.arange(example.INPUTS) % every == 0
        assert seen[matter].min() > 5 * np.abs(seen[~matter]).max(initial=0)
        best = np.where(matter, np.sqrt(every / 5), 0.0)
        assert example.log_loss(x, y, best)[0] == pytest.approx(0.37, abs=0.02)


def test_numbers_of_weights_share_their_data(example):
    """40 equal weights are one weight: the first run of both, with the same start, has the same model."""
    keys = [{"every": 5, "validation": 25, "weights": n, "seed": 0} for n in (1, 40)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "RUNS", 1)
        one, many = (example.run(key) for key in keys)
    assert one == pytest.approx(many, rel=1e-3)


def test_few_validation_examples_are_overfitted_and_many_less(example, records):
    """40 weights: what validation promises and test does not keep."""
    gap = {
        size: np.mean(
            [r["test_loss"] - r["validation_loss"] for r in records if (r["weights"], r["validation"]) == (40, size)]
        )
        for size in (25, 400)
    }
    assert gap[25] > 3 * gap[400] > 0


def test_it_writes_a_figure_and_a_table(example, out, records):
    assert (out / "images" / "many_weights.png").read_bytes().startswith(b"\x89PNG")
    assert len(example.table(records).splitlines()) == 2 + 2 * 2
