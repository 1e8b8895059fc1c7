"""Batches from a loader: how many, how large, put together, moved."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.torch.reference import log_loss, make_data, make_net
from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import SourceBatch, size
from tuneloss.torch.observing.batches import batches, check_count, check_loader, merged, number_of, saved_bytes

CPU, META = torch.device("cpu"), torch.device("meta")
Pair = namedtuple("Pair", "x y")


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(2)


def test_what_can_be_read_again_is_a_loader():
    for good in ([], DataLoader(TensorDataset(torch.zeros(3))), range(3), DataLoader(Endless())):
        check_loader(good, "train")


@pytest.mark.parametrize(
    "bad",
    [iter([1]), (i for i in range(3)), 3, None, nn.Sequential(nn.Linear(2, 2)), {"train": []}, "train", DataLoader],
    ids=lambda bad: type(bad).__name__,
)
def test_what_gives_batches_once_or_never_is_refused(bad):
    with pytest.raises(InvalidInput, match=f"`train` must be a loader .* found a {type(bad).__name__}. Give what you"):
        check_loader(bad, "train")


@pytest.mark.parametrize("count", [None, "auto", 1, 7, np.int64(2), 0.1, 1.0, np.float32(0.5)])
def test_a_number_or_a_part_is_a_count(count):
    check_count(count, "batches")


@pytest.mark.parametrize("count", [0, -1, 0.0, 1.5, True, False, float("nan"), "all", [1]])
def test_other_counts_are_refused(count):
    with pytest.raises(InvalidInput, match=r"`batches` must be a number of batches .*, or None for all; found"):
        check_count(count, "batches")


def test_how_many_batches_are_meant():
    """All, at most all, a part rounded but at least one."""
    ten = [0] * 10
    found = [number_of(ten, count, "batches") for count in (None, 3, 99, np.int64(4), 0.25, 0.001, 1.0)]
    assert found == [10, 3, 10, 4, 2, 1, 10]


def test_auto_is_an_eighth_within_bounds():
    """All of few batches, then 8 of them, then an eighth, and never more than 100."""
    found = [number_of([0] * n, "auto", "batches") for n in (1, 8, 9, 64, 80, 400, 800, 10_000)]
    assert found == [1, 8, 8, 8, 10, 50, 100, 100]


def test_a_loader_without_length_takes_numbers_only():
    endless = DataLoader(Endless())
    assert [number_of(endless, count, "batches") for count in (None, 1.0, 5, "auto")] == [None, None, 5, 100]
    with pytest.raises(InvalidInput, match="A part of `batches` needs a loader with a length; found DataLoader"):
        number_of(endless, 0.5, "batches")


def test_the_first_batches_are_read_and_no_more():
    read = []
    loader = (read.append(i) or torch.full((2,), i) for i in range(10))
    assert [int(b[0]) for b in batches(loader, 3, "train", CPU)] == [0, 1, 2]
    assert read == [0, 1, 2]


def test_a_loader_without_batches_is_refused():
    with pytest.raises(InvalidInput, match="`validation` must give at least one batch; found none"):
        list(batches([], None, "validation", CPU))


def test_everything_in_a_batch_moves():
    """In lists, tuples, named tuples, dicts, and what moves itself; the rest stays."""
    x = torch.zeros(2)
    nested = [x, (x, "text"), Pair(x, x), {"a": x, "b": 3}, pack_sequence([x])]
    ((a, (b, text), pair, table, packed),) = batches([nested], None, "train", META)
    assert all(t.device == META for t in (a, b, pair.x, pair.y, table["a"], packed.data))
    assert (text, table["b"], type(pair)) == ("text", 3, Pair)
    assert packed.batch_sizes.device == CPU  # as PyTorch needs it


def test_put_together_batches_hold_the_same_examples_in_the_same_order():
    data = make_data(3, 5, 2, 2, 7, 1, 1)
    together = list(merged(iter(data), examples=8))
    assert [size(batch) for batch in together] == [8, 4, 8, 1]
    for column in (0, 1):
        torch.testing.assert_close(torch.cat([b[column] for b in together]), torch.cat([b[column] for b in data]))


def test_a_batch_larger_than_the_room_is_given_alone():
    assert [size(b) for b in merged(iter(make_data(9, 2, 9)), examples=4)] == [9, 2, 9]


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(2, 7), torch.zeros(2)),
        (torch.zeros(2, 6).half(), torch.zeros(2)),
        [torch.zeros(2, 6), torch.zeros(2)],
        (torch.zeros(2, 6),),
        (torch.zeros(2, 6), torch.tensor(1.0)),
        (torch.zeros(2, 6), "text"),
        Pair(torch.zeros(2, 6), torch.zeros(2)),
    ],
)
def test_unlike_batches_are_not_put_together(other):
    first = (torch.zeros(2, 6), torch.zeros(2))
    found = list(merged(iter([first, other, other]), examples=100))
    assert found[0] is first
    if size(found[1]) == 2:
        assert found[1] is other


@pytest.mark.parametrize(
    "batch",
    [
        (torch.zeros(4, 5), torch.zeros(4), torch.ones(3)),  # class weights
        (torch.zeros(4, 5), torch.zeros(4), torch.eye(5)),  # an adjacency matrix
        (torch.zeros(12, 4, 3), torch.zeros(4)),  # time first
        {"x": torch.zeros(4, 12, 3), "state": torch.zeros(1, 4, 8)},
        SourceBatch(web=(torch.zeros(4, 5), torch.tensor(0.5))),
    ],
)
def test_tensors_without_a_row_per_example_are_not_concatenated(batch):
    assert list(merged(iter([batch] * 3), examples=100)) == [batch] * 3


def test_sources_with_a_number_per_batch_stay_apart():
    parts = [SourceBatch({name: (torch.zeros(4, 5), torch.tensor(0.5))}) for name in ("web", "books")]
    assert [list(batch) for batch in merged(iter(parts), examples=100)] == [["web"], ["books"]]


def test_dicts_are_put_together_only_if_they_are_no_more_than_dicts():
    """A class of the user's may mean more: it stays as it is."""
    parts = [{"x": torch.zeros(2, 3), "y": {"z": torch.zeros(2)}}] * 3
    (whole,) = merged(iter(parts), examples=100)
    assert (whole["x"].shape, whole["y"]["z"].shape) == ((6, 3), (6,))
    special = [OrderedDict(x=torch.zeros(2, 3))] * 3
    assert [type(b) for b in merged(iter(special), examples=100)] == [OrderedDict] * 3


def test_size_is_the_length_of_the_first_tensor():
    x = torch.zeros(4, 2)
    assert [size(b) for b in (x, (x, 1), {"text": "abcdefg", "x": x}, ["abc", [x]])] == [4] * 4
    assert [size(b) for b in (torch.tensor(1.0), "text", 3, [])] == [1] * 4


def test_an_empty_batch_is_refused():
    with pytest.raises(InvalidInput, match="A batch must have at least one example; found one with none"):
        size((torch.zeros(0, 3),))


def test_saved_bytes_are_those_of_activations():
    """Proportional to the batch, parameters left out; of a linear layer, its input."""
    layer = nn.Linear(100, 1)
    for n in (1, 10):
        assert saved_bytes(layer, layer, torch.zeros(n, 100)) == n * 400
    with torch.no_grad():
        assert saved_bytes(layer, layer, torch.zeros(10, 100)) == 0


def test_counting_does_not_change_a_gradient():
    net, (batch,) = make_net(), make_data(4)
    gradients = []

    def differentiate(batch):
        gradients.append(torch.autograd.grad(log_loss(net, batch), list(net.parameters())))

    differentiate(batch)
    saved_bytes(net, differentiate, batch)
    plain, counted = gradients
    torch.testing.assert_close(counted, plain, rtol=0, atol=0)


def test_batches_of_sources_are_merged_only_if_all_of_them_fit():
    """The first has no rows of a source whose rows differ in shape."""
    a, narrow, wide = ({name: torch.zeros(2, width)} for name, width in (("a", 1), ("b", 3), ("b", 5)))
    parts = [SourceBatch(part) for part in (a, narrow, wide)]
    assert [list(batch) for batch in merged(iter(parts), examples=100)] == [["a", "b"], ["b"]]
