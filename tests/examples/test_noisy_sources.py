"""The example of noisy sources, small: its data, its rivals, and what one run learns."""

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy_sources")
    wanted = ["equal", "random 0", "one-step hypergradient", "Neumann hypergradient", "tuned", "tuned, sampled"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "METHODS", wanted)
        patch.setattr(example, "STEPS", 250)
        example.main(["--out", str(folder)])
    return folder


def test_the_share_of_wrong_labels_is_what_the_name_says(example):
    """Of random labels one in ten is right by chance, since digits have ten classes."""
    right = {}
    for seed in range(5):
        rng = np.random.default_rng([seed, 17])
        x, y = example.digits_split(rng).train
        label = {row.numpy().tobytes(): int(c) for row, c in zip(x, y, strict=True)}
        for name, (rows, labels) in example.draw({"data": "digits", "seed": seed}, None).sources.items():
            right.setdefault(name, []).extend(
                label[r.numpy().tobytes()] == int(c) for r, c in zip(rows, labels, strict=True)
            )
    for name, wrong in zip(example.NAMES, example.WRONG, strict=True):
        assert np.mean(right[name]) == pytest.approx(1 - 0.9 * wrong, abs=0.08)


def test_the_neumann_series_is_that_of_the_explicit_hessian(example):
    """The derivative by the log weights, with three terms of the series, by matrices."""
    torch.manual_seed(0)
    problem, model = example.draw({"data": "digits", "seed": 0}, None), nn.Linear(64, 10)
    loss = example.LinearLoss(
        [example.PerSource(example.NAMES, example.row_losses)], example.Box.simplex(example.NAMES)
    )
    batch = next(iter(example.SourceLoader({n: example.Batches(p, 4, seed=0) for n, p in problem.sources.items()})))
    params = list(model.parameters())

    def gradient(value, **options):
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, params, **options)])

    slope = gradient(loss(model, batch), create_graph=True)
    hessian = torch.stack([gradient(entry, retain_graph=True) for entry in slope])
    v = total = gradient(example.log_loss(model, problem.validation))
    for _ in range(3):
        v = v - 0.1 * hessian @ v
        total = total + v
    expected = [-(gradient(value, retain_graph=True) @ total) / 8 for value in loss.data_values(model, batch).values()]
    follow = example.Hypergradient(model, loss, problem, rate=0.1, terms=3, lr=0.1)
    follow.step(batch)
    torch.testing.assert_close(follow.log.grad.float(), torch.stack(expected).detach(), rtol=1e-4, atol=1e-6)


def test_one_run_gives_its_weights_to_sources_with_right_labels(example, records):
    """More than equal weights, and a lower test log loss than they give."""
    of = {r["method"]: r for r in records}
    for method in ("tuned", "tuned, sampled"):
        weights = of[method]["weights"]
        assert sum(weights) == pytest.approx(1, abs=1e-3)
        assert sum(weights[:4]) > 0.7 > 2 * sum(weights[6:])
        assert of[method]["test_loss"] < of["equal"]["test_loss"]


def test_it_writes_a_figure_and_a_table(example, out, records):
    assert (out / "images" / "noisy_sources.png").read_bytes().startswith(b"\x89PNG")
    rows = example.table(records).splitlines()
    assert len(rows) == 2 + 6
    assert "best of 20 random runs" in "".join(rows)
