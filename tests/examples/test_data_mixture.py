"""The example of a data mixture, small: its texts and its model, the two other methods, and what it writes."""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")  # some of the texts


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data_mixture")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "MEASURED", 16)
        example.main(["--out", str(folder), "--seeds", "0"])
    return folder


@pytest.fixture(scope="module")
def results(example):
    """The file of tables and the picture."""
    return sys.modules["mixture_results"]


def test_every_domain_has_its_bytes(example):
    """Each text has as many bytes as are used at most, on any installation; no two begin alike."""
    texts = sys.modules["byte_models"]
    domains, starts = {**texts.SOURCES, **texts.OUTSIDE}, set()
    for name, (_, _, most) in domains.items():
        assert len(texts.text(name)) >= 0.9 * most, name
        starts.add(bytes(texts.text(name)[:2000].tolist()))
    assert len(starts) == len(domains)


def test_no_target_is_a_training_domain_or_chosen_on(example):
    domains = [domain for parts in example.TARGETS.values() for domain in parts]
    assert not set(domains) & set(example.NAMES)
    assert len(domains) == len(set(domains))


def test_validation_and_test_share_no_chunk(example):
    """Every chunk is dealt out once, and another seed deals differently."""
    validation, test = example.held_out("mail", 0)
    rows = [{bytes(w.tolist()) for w in part.windows} for part in (validation, test)]
    assert len(validation) + len(test) == (200_000 // 2048) * ((2048 - 65) // 64 + 1)
    assert len(rows[0] & rows[1]) < 0.02 * len(rows[0])  # text that repeats itself
    assert not torch.equal(validation.windows[0], example.held_out("mail", 1)[0].windows[0])


def test_a_byte_is_predicted_from_those_before_it_only(example):
    """A change of the byte at 40 changes the outputs from there on, and no earlier one."""
    model = example.make_model(example.SMALL, 0)
    rows = torch.randint(256, (1, 64))
    changed = rows.clone()
    changed[0, 40] = (rows[0, 40] + 1) % 256
    difference = (model(rows) - model(changed)).abs().amax(dim=2)[0]
    assert (difference[:40] < 1e-5).all()
    assert (difference[40:44] > 1e-4).all()


def test_the_larger_model_has_half_a_million_parameters(example):
    assert example.size(example.GPT(example.LARGE)) == pytest.approx(500_000, rel=0.02)


class TestRivals:
    @pytest.fixture
    def seen(self):
        """Domains a and b; the gradient of the target is that of a, and at a right angle to that of b."""
        from tuneloss import Observation

        return Observation.from_gradients(1.0, {"a": 1.0, "b": 1.0}, [1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])

    def test_doge_multiplies_by_the_exponential_of_the_alignment(self, example, seen):
        rule = example.DoGE(2, step_size=2.0)
        assert rule.update(seen)[0] == pytest.approx(np.exp(2) / (1 + np.exp(2)))
        rule.update(seen)
        assert rule.mean()[0] == pytest.approx(np.mean([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-4))]))

    def test_dga_draws_with_a_moving_average(self, example, seen):
        rule = example.DGA(2, step_size=2.0, keep=0.25)
        assert rule.update(seen)[0] == pytest.approx(0.25 * 0.5 + 0.75 / (1 + np.exp(-2)))
        first = rule.weights[0]
        assert rule.update(seen)[0] == pytest.approx(0.25 * first + 0.75 / (1 + np.exp(-4)))

    def test_they_observe_at_the_same_steps_as_tuneloss(self, example, results):
        """And so cost the same: the interval is that which `cost` gives."""
        found = []
        for method in (results.ONLINE, results.DGA_ONLINE):
            model, loss, steps = example.make_model(8, 0), example.mixture_loss(), []
            tuner = example.make_tuner(method, model, loss, "mail", 0, 0.5)
            for step in range(26):
                before = loss.numbers()
                tuner.step()
                if loss.numbers() != before:
                    steps.append(step)
            found.append(steps)
        assert found == [[0, 12, 24]] * 2


def test_every_method_has_its_runs_within_the_budget(example, results, records):
    """Small and large; methods that observe while they train take fewer steps, those that learn before fewer yet."""
    targets = len(example.REPORT)
    small = [r["method"] for r in records if r["width"] == example.SMALL]
    expected = dict.fromkeys(example.SHARED, 1) | dict.fromkeys((*example.WHILE, *example.BEFORE), targets)
    assert {m: small.count(m) for m in results.METHODS} == expected | {example.RANDOM: example.QUICK.draws}
    steps = {(r["method"], r["width"]): r["steps"] for r in records}
    budgets, learning = example.QUICK.budgets, example.QUICK.learning
    assert steps[example.UNIFORM, example.SMALL] == budgets[example.SMALL]
    observing = {steps[m, example.SMALL] for m in (results.ONLINE, results.DGA_ONLINE, example.EARLY)}
    assert observing == {round(budgets[example.SMALL] / 1.1)}
    assert steps[example.HELD, example.SMALL] == budgets[example.SMALL] - 2 * learning
    large = budgets[example.LARGE]
    assert large - 2 * learning < steps[example.HELD, example.LARGE] < large
    assert np.isfinite([v for r in records for v in r["test"].values()]).all()


def test_mixtures_are_probabilities_and_learned_ones_differ(example, records):
    held = []
    for r in records:
        weights = np.array(list(r["weights"].values()))
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1, abs=1e-3)
        if r["method"] == example.UNIFORM:
            assert weights == pytest.approx(1 / 8)
        elif r["method"] == example.HELD and r["width"] == example.SMALL:
            held.append(weights)
    assert np.abs(held[0] - held[1]).max() > 0.02


def test_the_random_mixture_is_chosen_by_validation(example, results, records):
    """The best on the validation text of the target, with the time of all."""
    runs = [r for r in records if r["method"] == example.RANDOM]
    for target in example.REPORT:
        (chosen,) = results.by_seed(records, example.RANDOM, target)
        assert chosen["validation"][target] == min(r["validation"][target] for r in runs)
        assert chosen["training_seconds"] == pytest.approx(sum(r["training_seconds"] for r in runs))


def test_methods_are_compared_by_seed(results):
    """A method that is better by 0.1 with each seed differs by that, however much the seeds differ."""
    losses = {0: 2.0, 1: 3.0, 2: 5.0}
    records = [
        {"method": method, "target": None, "seed": seed, "width": results.SMALL, "steps": 1, "test": {"t": loss + by}}
        | {"validation": {"t": loss}, "training_seconds": 1.0, "learning_seconds": 0.0}
        for method, by in ((results.UNIFORM, 0.0), (results.NATURAL, -0.1))
        for seed, loss in losses.items()
    ]
    loss, difference = results.compared(records, results.NATURAL, results.UNIFORM, "t")
    assert loss.mean == pytest.approx(10 / 3 - 0.1)
    assert (difference.mean, difference.half) == pytest.approx((-0.1, 0.0), abs=1e-9)


def test_it_writes_a_figure_and_tables(example, results, out, records):
    assert (out / "images" / "data_mixture.png").read_bytes().startswith(b"\x89PNG")
    text = example.table(records, tuple(example.REPORT))
    assert all(f"\n| {method} |" in text for method in results.METHODS)
    assert len(example.weights_table(records, tuple(example.REPORT)).splitlines()) == 2 + len(example.NAMES)
    assert len(example.rivals_table(records, tuple(example.REPORT)).splitlines()) == 2 + len(results.METHODS) - 1
