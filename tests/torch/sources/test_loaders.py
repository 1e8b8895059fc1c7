"""Loaders of several sources, and a validation error on several sets."""

import json
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tuneloss import Box
from tuneloss.errors import InvalidInput
from tuneloss.torch import LinearLoss, OnlineTuner, PerSource, observe
from tuneloss.torch.observing import ObserveOptions
from tuneloss.torch.sources import MixtureLoader, SourceLoader, TargetMix
from tuneloss.torch.sources.mixture_loader import systematic
from tuneloss.torch.sources.stream import Stream


class Endless(IterableDataset):
    def __init__(self, value):
        self.value = value

    def __iter__(self):
        while True:
            yield torch.tensor(self.value)


class Short(IterableDataset):
    def __init__(self, values):
        self.values = values

    def __iter__(self):
        yield from torch.tensor(self.values)


def numbered(first, n):
    return TensorDataset(torch.arange(first, first + n))


def test_shorter_sources_start_again_and_the_longest_gives_the_length():
    loader = SourceLoader({"a": numbered(0, 9), "b": numbered(100, 2)}, batch_size=3)
    batches = list(loader)
    assert (len(loader), len(batches), loader.names) == (3, 3, ("a", "b"))
    assert sorted(torch.cat([batch["a"][0] for batch in batches]).tolist()) == list(range(9))
    assert all(sorted(batch["b"][0].tolist()) == [100, 101] for batch in batches)


def test_the_order_of_a_dataset_is_given_by_the_seed_and_differs_by_epoch():
    first, same = (SourceLoader({"a": numbered(0, 50)}, 50, seed=3) for _ in range(2))
    one, two = (next(iter(first))["a"][0].tolist() for _ in range(2))
    assert one != two
    assert next(iter(same))["a"][0].tolist() == one


def test_without_a_length_there_is_no_end():
    loader = SourceLoader({"a": Endless(1.0)}, 4)
    assert [len(batch["a"]) for batch in islice(loader, 5)] == [4] * 5
    with pytest.raises(TypeError, match="only if a source has one"):
        len(loader)
    assert loader.shares(3) == {"a": 0.0}
    assert SourceLoader({"a": Endless(1.0), "b": numbered(0, 8)}, 4).shares(1) == {"a": 0.0, "b": 0.5}


def test_an_observation_leaves_the_order_of_the_next_epoch_as_it_was():
    """Also of the datasets inside of a loader of sources."""
    data = {"a": TensorDataset(torch.randn(20, 2)), "b": TensorDataset(torch.randn(30, 2))}
    loss = LinearLoss(
        [PerSource(["a", "b"], lambda model, batch: model(batch[0]).square().mean())], Box.simplex(["a", "b"])
    )
    looked_at, other = (SourceLoader(data, 5, seed=1) for _ in range(2))
    first = observe(nn.Linear(2, 1), loss, loss.data_terms[0].term.term, looked_at, [(torch.randn(3, 2),)], batches=2)
    assert first.gram.shape == (3, 3)
    assert torch.equal(next(iter(looked_at))["a"][0], next(iter(other))["a"][0])


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda p: sum(p) > 1e-3),
    st.integers(1, 200),
    st.integers(0, 99),
)
def test_numbers_of_rows_are_right_up_to_rounding(weights, n, seed):
    p = np.array(weights) / np.sum(weights)
    counts = systematic(p, n, np.random.default_rng(seed))
    assert counts.sum() == n
    assert (np.abs(counts - n * p) < 1 + 1e-6).all()


def test_numbers_of_rows_are_right_on_average():
    """The rounding of each source is at random: the mean over many draws is n p, within 5 standard errors."""
    p = np.array([0.07, 0.53, 0.4])
    draws = np.array([systematic(p, 10, np.random.default_rng(seed)) for seed in range(4000)])
    assert (np.abs(draws.mean(0) - 10 * p) <= 5 * 0.5 / 4000**0.5).all()


def test_the_next_batch_follows_the_weights_of_the_loss():
    loss = LinearLoss([PerSource(["a", "b"], lambda m, b: m(b[0]).mean(), sampled=True)], Box.simplex(["a", "b"]))
    mixture = iter(MixtureLoader({"a": torch.zeros(40), "b": torch.ones(40)}, loss, batch_size=10))
    assert next(mixture).sum() == 5
    loss.set_weights({"a": 0.2, "b": 0.8})
    assert next(mixture).sum() == 8


def test_each_example_comes_once_before_any_comes_twice():
    mixture = MixtureLoader({"a": numbered(0, 12), "b": numbered(100, 4)}, {"a": 3, "b": 1}, batch_size=4)
    epochs = [torch.cat([batch[0] for batch in islice(mixture, 4)]).tolist() for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [*range(12), *range(100, 104)]
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("b", [numbered(100, 5), Short([100, 101, 102])])
def test_a_resumed_mixture_continues_with_the_same_rows(b):
    """The state is JSON; it also holds in the middle of an epoch of a source, and for one without a length."""

    def make():
        return MixtureLoader(
            {"a": Short(list(range(7))), "b": b},
            {"a": 1, "b": 2},
            4,
            collate=lambda rows: [int(r[0]) if isinstance(r, tuple) else int(r) for r in rows],
        )

    whole = list(islice(make(), 12))
    begun = make()
    list(islice(begun, 7))
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert list(islice(resumed, 5)) == whole[7:]


@pytest.mark.parametrize("n", [1, 4])
def test_a_mixture_is_resumed_at_the_end_of_an_epoch_of_a_source(n):
    def make():
        return MixtureLoader({"a": torch.arange(n), "b": torch.arange(100, 104)}, {"a": 1, "b": 1}, 8)

    begun, resumed = make(), make()
    next(iter(begun))
    resumed.load_state_dict(begun.state_dict())
    assert [batch.tolist() for batch in islice(resumed, 3)] == [batch.tolist() for batch in islice(begun, 3)]


def test_a_stream_passes_over_the_same_examples_after_the_end_of_an_epoch():
    """Also if the first ones are not wanted, such as those of another process."""
    streams = [Stream("a", range(3), (0, 0)) for _ in range(2)]
    whole = streams[0].take([True] * 7)
    streams[1].go_to(0, 3)
    assert streams[1].take([False, True, True, True]) == whole[4:]


@pytest.mark.parametrize("what", ["train", "validation", "selection"])
def test_loaders_without_end_are_not_read_as_a_whole(what):
    loss = LinearLoss([PerSource(["a"], lambda model, batch: model(batch).square())], {"a": 1.0})
    data = {"train": SourceLoader({"a": [torch.ones(2, 1)]}), "validation": [torch.ones(2, 1)], "selection": None}
    data[what] = SourceLoader({"a": Endless([1.0])}, 2)
    with pytest.raises(InvalidInput, match="without end cannot be read as a whole; found a SourceLoader for `"):
        observe(nn.Linear(1, 1), loss, lambda model, batch: model(batch).mean(), **data)


def test_a_mixture_is_not_for_observations():
    mixture = MixtureLoader({"a": torch.ones(9, 1)}, {"a": 1})
    loss = LinearLoss([PerSource(["a"], lambda model, batch: model(batch).mean(), sampled=True)], {"a": 1.0})
    with pytest.raises(InvalidInput, match="such as a SourceLoader of the same sources; found a MixtureLoader"):
        observe(nn.Linear(1, 1), loss, lambda model, batch: model(batch).mean(), mixture, [torch.ones(2, 1)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SourceLoader({}), r"must be \{name: loader or dataset\}.* found \{\}"),
        (lambda: SourceLoader([1]), r"found \[1\]"),
        (lambda: SourceLoader({"a": iter([1])}), "'a' is a list_iterator"),
        (lambda: SourceLoader({"a": numbered(0, 0)}), r"at least one batch; \['a'\] have none"),
        (lambda: MixtureLoader({"a": DataLoader(numbered(0, 3))}, {"a": 1}), "'a' is a DataLoader. Give the dataset"),
        (lambda: MixtureLoader({"a": numbered(0, 3)}, {"b": 1}), r"\['a'\] have none among \['b'\]"),
        (lambda: next(iter(MixtureLoader({"a": numbered(0, 0)}, {"a": 1}))), "at least one example; 'a' has none"),
        (lambda: next(iter(MixtureLoader({"a": Short([])}, {"a": 1}))), "at least one example; 'a' has none"),
        (lambda: next(iter(MixtureLoader({"a": numbered(0, 2)}, {"a": 0}))), r"not all 0; found \{'a': 0\}"),
        (lambda: next(iter(MixtureLoader({"a": numbered(0, 2)}, {"a": np.nan}))), "'a'"),
        (lambda: TargetMix({"a": [1]}, {"b": 1}), r"of the sets \['a'\]; found those of \['b'\]"),
        (lambda: TargetMix({"a": None}), "must be a loader of batches, such as a DataLoader; 'a' is a NoneType"),
        (lambda: TargetMix({"a": numbered(0, 2)}), "'a' is a TensorDataset"),
        (lambda: TargetMix({"a": [1]}, {"a": 0}), r"must be above 0; found \{'a': 0\}"),
    ],
)
def test_what_is_no_loader_of_sources_is_refused(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()


def test_a_state_of_another_mixture_is_refused():
    state = MixtureLoader({"a": numbered(0, 3)}, {"a": 1}).state_dict()
    with pytest.raises(InvalidInput, match="same sources and seed"):
        MixtureLoader({"a": numbered(0, 3)}, {"a": 1}, seed=1).load_state_dict(state)


def squared(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def targets():
    generator = torch.Generator().manual_seed(5)
    sizes = {"news": [4, 3], "code": [1]}
    return {
        name: [(torch.randn(n, 2, dtype=torch.float64, generator=generator), torch.ones(n, 1)) for n in some]
        for name, some in sizes.items()
    }


def mean_of(model, batches, f=squared):
    return sum(len(b[0]) * f(model, b) for b in batches) / sum(len(b[0]) for b in batches)


@pytest.mark.parametrize("merge", [True, False])
def test_the_error_on_a_mix_of_targets_is_the_weighted_mean_of_their_errors(merge):
    """And so are its gradient and the metric, whatever the sizes of the sets."""
    torch.manual_seed(0)
    model, sets = nn.Linear(2, 1).double(), targets()
    loss = LinearLoss({"fit": squared}, {"fit": 1.0})
    mix = TargetMix(sets, {"news": 1, "code": 3})
    absolute = lambda model, batch: (model(batch[0]) - batch[1]).abs().mean()  # noqa: E731
    seen = observe(model, loss, squared, [sets["news"][0]], mix, metric=absolute, merge=merge)
    error = 0.25 * mean_of(model, sets["news"]) + 0.75 * mean_of(model, sets["code"])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(error, list(model.parameters()))])
    assert seen.error == pytest.approx(error.item(), rel=1e-12)
    assert seen.gram[-1, -1] == pytest.approx(gradient.square().sum().item(), rel=1e-10)
    metric = 0.25 * mean_of(model, sets["news"], absolute) + 0.75 * mean_of(model, sets["code"], absolute)
    assert seen.metric == pytest.approx(metric.item(), rel=1e-12)
    selected = observe(model, loss, squared, [sets["news"][0]], sets["news"], selection=mix, merge=merge)
    assert selected.metric == pytest.approx(error.item(), rel=1e-12)


def test_a_mix_of_one_target_is_that_target_also_in_the_curvature_metric():
    torch.manual_seed(0)
    model, sets = nn.Linear(2, 1).double(), targets()
    loss = LinearLoss({"fit": squared}, {"fit": 1.0})
    options = {"gradient_metric": "curvature", "validation_batches": 1}
    one = observe(model, loss, squared, sets["news"], sets["news"], **options)
    mixed = observe(model, loss, squared, sets["news"], TargetMix({"a": sets["news"]}), **options)
    np.testing.assert_allclose(mixed.gram, one.gram, rtol=1e-12)
    assert mixed.error == pytest.approx(one.error, rel=1e-14)


def test_learning_a_mixture_finds_the_source_that_is_like_the_target():
    """One source has labels from the target's rule, the other random ones; rows are drawn with the learned weights."""
    torch.manual_seed(0)
    x, rule = torch.randn(600, 5), torch.randn(5, 1)
    good, bad = TensorDataset(x[:200], x[:200] @ rule), TensorDataset(x[200:400], 3 * torch.randn(200, 1))
    sources = {"good": good, "bad": bad}
    train = SourceLoader(sources, 20)
    loss = LinearLoss([PerSource(train, squared, sampled=True)], Box.simplex(train.names))
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    tuner = OnlineTuner(
        model, loss, squared, train, [(x[400:], x[400:] @ rule)], every=10, observe=ObserveOptions(batches=8)
    )
    for batch in islice(MixtureLoader(sources, loss, 20), 100):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        tuner.step()
    assert loss.as_dict()["good"] > 0.9
