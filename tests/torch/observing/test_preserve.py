"""A model, its loaders and all random generators are left as they were, also after a failure."""

import multiprocessing
import random
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from tuneloss.torch.observing.preserve import (
    in_eval_mode,
    preserved,
    seed_everything,
    seed_loaders,
    unshrunk_embeddings,
)


def draws():
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()  # noqa: NPY002


def states():
    return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()  # noqa: NPY002


def make_model():
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())


@pytest.mark.parametrize("failure", [None, ValueError])
def test_modes_buffers_and_random_states_come_back(failure):
    model = make_model()
    model[1].eval()
    model[1].running_mean.fill_(7.0)
    model.register_buffer("cache", None)
    buffer, before = model[1].running_mean, states()
    with suppress(ValueError), preserved(model):
        model.eval()
        model[1].running_mean.zero_()
        model[1].running_var = torch.zeros(2)  # another tensor in its place
        model.cache = torch.ones(1)
        draws()
        seed_everything(3)
        if failure:
            raise failure
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert model[1].running_mean is buffer
    assert buffer.tolist() == [7.0, 7.0]
    assert model.cache is None
    assert model[1].running_var.tolist() == [1.0, 1.0]
    assert states() == before


def test_an_untouched_buffer_is_not_written_to():
    model = make_model()
    version = model[1].running_mean._version
    with preserved(model):
        pass
    assert model[1].running_mean._version == version


def test_gradients_can_be_taken_within_whatever_is_around():
    for around in (torch.no_grad, torch.inference_mode):
        with around(), preserved(make_model()) as _:
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()


class Merging(nn.Linear):
    """An adapter that adds to its weight in eval mode and takes it back in train mode, as LoRA does."""

    def train(self, mode=True):
        if mode != self.training:
            self.weight.data += -1 if mode else 1
        return super().train(mode)


@pytest.mark.parametrize("context", [preserved, in_eval_mode])
def test_modules_that_do_more_than_note_their_mode_are_told(context):
    model = nn.Sequential(Merging(2, 2), nn.BatchNorm1d(2).eval())
    before = model[0].weight.detach().clone()
    with context(model):
        model.eval()
        torch.testing.assert_close(model[0].weight, before + 1)
    torch.testing.assert_close(model[0].weight, before)
    assert [m.training for m in model.modules()] == [True, True, False]


def test_eval_mode_is_within_only():
    model = make_model()
    model[2].eval()
    with suppress(ValueError), in_eval_mode(model):
        within = [m.training for m in model.modules()]
        raise ValueError
    assert not any(within)
    assert [m.training for m in model.modules()] == [True, True, True, False]


@pytest.mark.parametrize("failure", [None, ValueError])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_that_shrink_their_rows_come_back(kind, failure):
    """The same tensor with the same numbers; one without a `max_norm` is not even copied."""
    model = nn.ModuleDict({"shrinks": kind(5, 3, max_norm=0.1), "plain": kind(5, 3)})
    weight, before = model["shrinks"].weight, model["shrinks"].weight.detach().clone()
    with suppress(ValueError), unshrunk_embeddings(model):
        model["shrinks"](torch.tensor([[1, 2]])).sum().backward()
        assert not torch.equal(weight, before)
        with torch.no_grad():
            model["plain"].weight += 1
            changed = model["plain"].weight.clone()
        if failure:
            raise failure
    assert model["shrinks"].weight is weight
    torch.testing.assert_close(weight, nn.Parameter(before), rtol=0, atol=0)
    assert torch.equal(model["plain"].weight, changed)


def test_equal_numbers_give_equal_draws():
    seen = []
    with preserved(make_model()):
        for numbers in ((1, 2, 3), (1, 2, 4), (1, 2, 3)):
            seed_everything(*numbers)
            seen.append(draws())
    assert seen[0] == seen[2]
    for a, b in zip(seen[0], seen[1], strict=True):
        assert a != b


class NumpyShuffled(list):
    """A loader that shuffles by a generator of NumPy."""

    def __init__(self, items, generator):
        super().__init__(items)
        self.generator = generator

    def __iter__(self):
        return iter([self[i] for i in self.generator.permutation(len(self))])


class Wrapper:
    """Many people have one that moves batches to a device."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader


def make_loaders():
    data = TensorDataset(torch.arange(20.0))
    own = torch.Generator().manual_seed(5)
    of_sampler, of_wrapped = torch.Generator().manual_seed(6), torch.Generator().manual_seed(8)
    return {
        "torch's": DataLoader(data, batch_size=3, shuffle=True),
        "its own": DataLoader(data, batch_size=3, shuffle=True, generator=own),
        "its sampler's": DataLoader(data, batch_size=3, sampler=RandomSampler(data, generator=of_sampler)),
        "a wrapped one's": Wrapper(DataLoader(data, batch_size=3, shuffle=True, generator=of_wrapped)),
        "NumPy's": NumpyShuffled(torch.arange(20.0).split(3), np.random.default_rng(7)),
    }


def order(loader):
    return torch.cat([torch.as_tensor(b[0] if isinstance(b, list) else b) for b in loader]).tolist()


@pytest.mark.parametrize("name", list(make_loaders()))
def test_a_seeded_loader_gives_the_same_order_and_goes_on_as_if_nothing_had_been(name):
    model, seeded = make_model(), []
    torch.manual_seed(0)
    undisturbed = order(make_loaders()[name])
    torch.manual_seed(0)
    loader = make_loaders()[name]
    for _ in range(2):
        with preserved(model, loader):
            seed_loaders(11, loader)
            seeded.append(order(loader))
    assert seeded[0] == seeded[1] != undisturbed
    assert sorted(seeded[0]) == list(range(20))
    assert order(loader) == undisturbed


def persistent(**options):
    """Two workers that stay, and add a random number of their own to each example."""
    data = TensorDataset(torch.arange(40.0))
    return DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True, collate_fn=with_noise, **options)


def with_noise(examples):
    return torch.stack([x + 0.5 * torch.rand(()) for (x,) in examples])


@pytest.fixture
def workers():
    """Those that were started since, if they still run."""
    before = multiprocessing.active_children()
    return lambda: {child.pid for child in multiprocessing.active_children() if child not in before}


@pytest.mark.parametrize("wrap", [lambda loader: loader, Wrapper], ids=["plain", "wrapped"])
def test_an_epoch_with_live_workers_goes_on_where_it_was(wrap, workers):
    """Each example once and with the same noise, though the loader is read within, whole or in part."""
    model, epochs = make_model(), []
    for observed in (False, True):
        torch.manual_seed(0)
        loader = wrap(persistent(shuffle=True))
        for _ in range(2):
            epoch = []
            for number, batch in enumerate(loader):
                epoch.append(batch)
                if observed and number % 4 == 1:
                    own = workers()
                    with preserved(model, loader, loader):
                        seed_loaders(7, loader)
                        assert len(list(islice(loader, 3 if number == 1 else None))) == (3 if number == 1 else 10)
                    assert workers() == own
            epochs.append(torch.cat(epoch))
        del loader
    assert sorted(epochs[0].floor().tolist()) == list(range(40))
    torch.testing.assert_close(epochs[2:], epochs[:2], rtol=0, atol=0)


def test_live_workers_of_an_observation_draw_the_same_numbers_each_time():
    model, loader, seen = make_model(), persistent(), []
    for _ in range(2):
        with preserved(model, loader):
            seed_loaders(7, loader)
            seen.append(torch.cat(list(loader)))
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=0)


def test_workers_are_ended_where_an_observation_fails(workers):
    loader = persistent()

    def fail():
        with preserved(make_model(), loader):
            next(iterator := iter(loader))
            raise ValueError(f"with {iterator}")

    with pytest.raises(ValueError, match="with") as caught:
        fail()
    assert not workers()
    assert loader._iterator is None  # so that the next epoch starts workers anew
    assert caught.tb is not None  # it holds the iterator until here
