"""The example of class imbalance, small: its data, the bias, what it finds and what it writes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    """A small run on digits, whatever TUNELOSS_DATA is."""
    folder = tmp_path_factory.mktemp("class_imbalance")
    example.main(["--data", "", "--out", str(folder), "--epochs", "5", "--seeds", "0", "1"])
    return folder


def logits_and_labels():
    rng = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 40 + [1] * 8 + [2] * 2)
    return torch.randn(50, 3, generator=rng) + torch.tensor([2.0, 0.0, -1.0]), labels


def test_training_classes_have_their_counts_and_other_parts_stay_whole(example):
    split = example.unbalanced("digits", None, 0)
    assert torch.bincount(split.train[1]).tolist() == example.COUNTS["digits"]
    assert [len(split.validation[1]), len(split.test[1])] == [448, 449]


def test_the_error_counts_classes_alike(example):
    """It is the mean of the classes' mean log losses."""
    logits, labels = logits_and_labels()
    of_class = [torch.nn.functional.cross_entropy(logits[labels == c], labels[labels == c]) for c in range(3)]
    assert float(example.balanced(logits, labels)) == pytest.approx(float(sum(of_class)) / 3, rel=1e-6)


def test_the_bias_is_stationary(example):
    """At the minimum, the balanced mean of the predicted probabilities of each class is 1/3: its KKT condition."""
    logits, labels = logits_and_labels()
    probabilities = torch.softmax(logits + example.fit_bias(logits, labels), dim=1)
    mean = torch.stack([probabilities[labels == c].mean(dim=0) for c in range(3)]).mean(dim=0)
    assert mean.tolist() == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_weights_of_a_class_multiply_its_examples(example):
    """Inverse frequency: the loss on a batch is the mean of log losses, each times largest count / count."""
    loss = example.class_loss([4, 2, 1], example.INVERSE)
    logits, labels = logits_and_labels()
    model = torch.nn.Identity()
    model.register_parameter("unused", torch.nn.Parameter(torch.zeros(1)))
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    expected = (torch.tensor([1.0, 2.0, 4.0])[labels] * each).mean()
    assert float(loss(model, (logits, labels))) == pytest.approx(float(expected), rel=1e-6)


def test_every_remedy_is_better_than_none(example, records):
    """On digits with classes of 60 and 6, the mean test loss of each method is below that of no weights."""
    loss = {m: np.mean([r["test_loss"] for r in records if r["method"] == m]) for m in example.METHODS}
    assert all(loss[method] < loss[example.PLAIN] for method in example.METHODS if method != example.PLAIN)


def test_only_the_tuner_changes_weights(example, records):
    for r in records:
        moved = r["weights"] != example.class_loss(example.COUNTS["digits"], r["method"].split(" +")[0]).as_dict()
        assert moved == r["method"].startswith(example.TUNED)


def test_it_writes_a_figure_and_a_table(example, out, records):
    assert (out / "images" / "class_imbalance.png").read_bytes().startswith(b"\x89PNG")
    assert len(example.table(records).splitlines()) == 2 + len(example.METHODS)
