"""The example of a CNN with augmentations, small: its data, its augmentations, what it finds and what it writes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cnn_augmentations")
    example.main(["--out", str(folder), "--epochs", "3", "--seeds", "0"])
    return folder


@pytest.fixture
def images(example):
    return example.digit_images(0).train[0]


def names_of(kind):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend("examples")
        import augmentations

        return list(getattr(augmentations, kind))


def test_a_split_has_every_image_once_and_a_seed_of_its_own(example):
    """The parts are 100, 848 and 849 images, none of them in two parts; another seed gives others."""
    split, other = example.digit_images(0), example.digit_images(1)
    parts = (split.train, split.validation, split.test)
    assert [len(y) for _, y in parts] == [100, 848, 849]
    assert sum(float(x.double().sum()) for x, _ in parts) == pytest.approx(example.load_digits().images.sum() / 16)
    assert not torch.equal(split.train[0], other.train[0])


@pytest.mark.parametrize("name", names_of("USEFUL") + names_of("HARMFUL"))
class TestAugmentation:
    def test_keeps_shape_and_type(self, example, images, name):
        for x in (images, images.double()):
            changed = example.AUGMENTATIONS[name](x)
            assert changed.shape == x.shape
            assert changed.dtype == x.dtype
            assert torch.isfinite(changed).all()

    def test_changes_images_and_leaves_its_input_alone(self, example, images, name):
        before = images.clone()
        changed = example.AUGMENTATIONS[name](images)
        assert torch.equal(images, before)
        assert (changed - images).abs().amax(dim=(1, 2, 3)).gt(1e-3).float().mean() > 0.7

    def test_is_given_by_torch_s_seed(self, example, images, name):
        torch.manual_seed(3)
        first = example.AUGMENTATIONS[name](images)
        torch.manual_seed(3)
        assert torch.equal(example.AUGMENTATIONS[name](images), first)


@pytest.mark.parametrize("name", [*names_of("USEFUL"), "quarter_turn"])
def test_each_image_is_changed_in_its_own_way(example, images, name):
    """Copies of one image do not come out alike."""
    changed = example.AUGMENTATIONS[name](images[:1].repeat(20, 1, 1, 1))
    assert len({tuple(image.flatten().tolist()) for image in changed}) >= 3


@pytest.mark.parametrize(("name", "none"), [("shift", 0.0), ("rotate", 0.0), ("zoom", 1.0), ("shear", 0.0)])
def test_a_warp_of_no_strength_changes_nothing(example, images, name, none):
    assert example.AUGMENTATIONS[name](images, none) == pytest.approx(images, abs=1e-5)


def test_a_shift_by_a_pixel_moves_every_pixel(example, images, monkeypatch):
    """Of an image inside a black border, at the largest draw: what was at (i + 1, j + 1) is at (i, j)."""
    inside = torch.nn.functional.pad(images, (2, 2, 2, 2))
    monkeypatch.setattr(torch, "rand", torch.ones)
    assert example.AUGMENTATIONS["shift"](inside)[:, :, :-1, :-1] == pytest.approx(inside[:, :, 1:, 1:], abs=1e-5)


def test_erase_paints_one_square(example):
    """Of a white image 9 pixels get black, in 3 rows and 3 columns."""
    black = example.AUGMENTATIONS["erase"](torch.ones(50, 1, 8, 8)) == 0
    assert (black.sum(dim=(1, 2, 3)) == 9).all()
    assert (black.any(dim=3).sum(dim=(1, 2)) == 3).all()
    assert (black.any(dim=2).sum(dim=(1, 2)) == 3).all()


def test_random_policies_leave_out_half_and_fit_the_box(example):
    """Half of the weights are 0, the others' logarithms have the mean of their range, and the loss takes them."""
    policies = [example.random_policy(5, i) for i in range(300)]
    weights = np.array([[p[name] for name in example.AUGMENTATIONS] for p in policies])
    assert (weights > 0).mean() == pytest.approx(0.5, abs=0.04)
    assert np.log(weights[weights > 0]).mean() == pytest.approx(np.log([0.01, 2.0]).mean(), abs=0.15)
    example.augmented_loss(example.RANDOM, 5, 0)


def test_every_method_has_its_runs(example, records):
    """One record per method, and two of random policies; each with finite losses."""
    found = [r["method"] for r in records]
    assert {m: found.count(m) for m in example.METHODS} == dict.fromkeys(example.METHODS, 1) | {example.RANDOM: 2}
    assert np.isfinite([r["test_loss"] for r in records]).all()


def test_learned_weights_stay_in_the_box_and_are_used(example, records):
    """Pinned: plain 1, the others in their ranges. Simplex: they sum to 1. After the first epoch some are above 0."""
    for method in example.ONLINE:
        weights = example.by_seed(records, method)[0]["weights"]
        table = np.array([weights[name] for name in example.NAMES])
        assert table.shape == (len(example.NAMES), 3)
        assert (table >= 0).all()
        assert table[1:, 1:].max() > 0
        if method == example.SIMPLEX:
            assert table.sum(axis=0) == pytest.approx(1.0, abs=2e-3)
        else:
            assert (table[0] == 1).all()
            assert table[1:-1].max() <= example.MOST
            assert table[-1].max() <= example.MOST_L2


def test_the_random_policy_is_chosen_by_validation(example, records):
    """Of a seed's random policies the one of least validation log loss counts, with the seconds of all."""
    runs = [r for r in records if r["method"] == example.RANDOM]
    (chosen,) = example.by_seed(records, example.RANDOM)
    assert chosen["validation_loss"] == min(r["validation_loss"] for r in runs)
    assert chosen["seconds"] == pytest.approx(sum(r["seconds"] for r in runs))


def test_it_writes_a_figure_and_tables(example, out, records):
    """The figure is a PNG; the tables have one row per method and one row per weight."""
    assert (out / "images" / "cnn_augmentations.png").read_bytes().startswith(b"\x89PNG")
    assert all(f"\n| {method} |" in example.table(records) for method in example.METHODS)
    assert len(example.weights_table(records).splitlines()) == 2 + len(example.NAMES)
