"""One term per data source: each is the mean over the rows of that source."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tuneloss import Box
from tuneloss.errors import InvalidInput
from tuneloss.torch import L2, LinearLoss, PerSource, UniformLabels, observe
from tuneloss.torch.sources import SourceBatch, SourceLoader

NAMES = ("web", "books", "code")
SIZES = {"web": 7, "books": 3, "code": 5}


def mean_loss(model, batch):
    return cross_entropy(model(batch[0]), batch[1])


def row_losses(model, batch):
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def rows(n, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator)
    return x, torch.randint(3, (n,), generator=generator)


def net():
    torch.manual_seed(0)
    return nn.Linear(4, 3).double()


PARTS = SourceBatch({name: rows(n, j) for j, (name, n) in enumerate(SIZES.items())})
WHOLE = tuple(torch.cat(column) for column in zip(*PARTS.values(), strict=True))
NUMBERS = torch.arange(3).repeat_interleave(torch.tensor(list(SIZES.values())))


@pytest.mark.parametrize("term", [mean_loss, row_losses])
def test_a_batch_of_parts_and_one_with_numbers_give_the_means_of_each_source(term):
    model = net()
    expected = {name: mean_loss(model, part).item() for name, part in PARTS.items()}
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    mixed = (WHOLE[0][order], WHOLE[1][order], NUMBERS[order])
    for loss, batch in ((PerSource(NAMES, term), PARTS), (PerSource(NAMES, term, key=2), mixed)):
        for _ in range(2):  # the second call knows whether the term gives losses of rows
            found = {name: value.item() for name, value in loss(model, batch).items()}
            assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm])
def test_an_observation_sees_the_sources_as_training_does(norm):
    """A batch norm mixes the rows of a forward, so all sources need one forward there too; also of a single row."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), norm(8), nn.ReLU(), nn.Linear(8, 3)).double()
    shifted = SourceBatch({name: (x + 3 * j, y) for j, (name, (x, y)) in enumerate(PARTS.items())})
    shifted["one"] = (shifted["web"][0][:1], shifted["web"][1][:1])
    loss = LinearLoss([PerSource(shifted, row_losses)], Box.simplex(list(shifted)))
    weights = dict(zip(shifted, [0.1, 0.4, 0.3, 0.2], strict=True))
    loss.set_weights(weights)
    fewer = SourceBatch({name: (x[: 1 + j], y[: 1 + j]) for j, (name, (x, y)) in enumerate(shifted.items())})
    values = [loss.data_values(model, batch) for batch in (shifted, fewer)]
    rows_of_each = {name: (len(shifted[name][1]), len(fewer[name][1])) for name in shifted}
    means = [weights[n] * (a * values[0][n] + b * values[1][n]) / (a + b) for n, (a, b) in rows_of_each.items()]
    gradients = torch.autograd.grad(sum(means), list(model.parameters()))
    gram = observe(model, loss, mean_loss, [shifted, fewer], [WHOLE]).gram[:-1, :-1]
    w = [weights[name] for name in loss.names]
    assert w @ gram @ w == pytest.approx(sum(float(g.square().sum()) for g in gradients), rel=1e-6)


def test_a_loss_of_each_row_needs_one_forward_for_all_sources():
    model, calls = net(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    loss = LinearLoss(
        {"s": PerSource(NAMES, row_losses), "smooth": UniformLabels()}, dict.fromkeys(NAMES, 1.0) | {"smooth": 0.5}
    )
    loss(model, PARTS)
    calls.clear()
    loss(model, PARTS)
    assert len(calls) == 1


def test_training_is_by_the_weighted_sum_of_the_means():
    model = net()
    loss = LinearLoss([PerSource(NAMES, row_losses), L2()], {"web": (0, 1), "books": (0, 1), "code": (0, 1), "l2": 0.1})
    loss.set_weights({"web": 0.5, "books": 0.0, "code": 0.2})
    expected = 0.5 * mean_loss(model, PARTS["web"]) + 0.2 * mean_loss(model, PARTS["code"])
    expected = expected + 0.1 * model.weight.square().sum()
    for _ in range(2):
        assert loss(model, PARTS).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("term", [mean_loss, row_losses])
def test_a_source_without_rows_is_left_out(term):
    """Its term counts nothing; if no other source counts either, the loss is 0 and can be differentiated."""
    model = net()
    loss = LinearLoss([PerSource(NAMES, term, key=2)], Box.simplex(NAMES), weights=[0.5, 0.5, 0.0])
    no_books = tuple(column[NUMBERS != 1] for column in (*WHOLE, NUMBERS))
    assert loss(model, no_books).item() == pytest.approx(0.5 * mean_loss(model, PARTS["web"]).item(), rel=1e-6)
    assert torch.isnan(loss.last["books"])
    only_code = tuple(column[NUMBERS == 2] for column in (*WHOLE, NUMBERS))
    value = loss(model, only_code)
    value.backward()
    assert value.item() == 0


def test_an_observation_counts_each_source_by_its_own_rows():
    """Batches of unequal sizes, some without a source: features and gram are those of the means over all rows."""
    model = net()
    batches = [tuple(column[part] for column in (*WHOLE, NUMBERS)) for part in (slice(0, 8), slice(8, 9), slice(9, 15))]
    loss = LinearLoss([PerSource(NAMES, mean_loss, key=2)], Box.simplex(NAMES))
    seen = observe(model, loss, mean_loss, batches, [WHOLE])
    means = [mean_loss(model, part) for part in (*PARTS.values(), WHOLE)]
    gradients = [torch.cat([g.flatten() for g in torch.autograd.grad(m, list(model.parameters()))]) for m in means]
    matrix = torch.stack(gradients)
    assert seen.features.tolist() == pytest.approx([m.item() for m in means[:3]], rel=1e-12)
    torch.testing.assert_close(torch.tensor(seen.gram), matrix @ matrix.T, rtol=1e-10, atol=1e-14)


def test_a_loader_of_sources_gives_the_same_observation():
    model = net()
    split = {
        name: [tuple(column[i : i + 2] for column in part) for i in range(0, SIZES[name], 2)]
        for name, part in PARTS.items()
    }
    loss = LinearLoss([PerSource(NAMES, row_losses)], Box.simplex(NAMES))
    seen = observe(model, loss, mean_loss, [PARTS], [WHOLE])
    loader = SourceLoader(split, length=12)  # 12 batches: each of the sources 3, 6 and 4 times
    again = observe(model, loss, mean_loss, loader, [WHOLE])
    torch.testing.assert_close(torch.tensor(again.gram), torch.tensor(seen.gram), rtol=1e-10, atol=1e-14)


def test_a_gradient_is_taken_over_the_rows_of_its_source_only():
    """The sum of rows over all backward passes is the number of rows, not that number times the number of sources."""
    model, seen = net(), []
    loss = LinearLoss([PerSource(NAMES, row_losses)], Box.simplex(NAMES))
    loss(model, PARTS)  # from here on it knows that the term gives losses of rows, and training makes one forward
    model.register_forward_hook(lambda module, args, out: out.register_hook(lambda g: seen.append(len(g))) and None)
    observe(model, loss, mean_loss, [PARTS], [rows(2, 9)], merge=False)
    assert sorted(seen) == sorted([*SIZES.values(), 2])


def test_a_batch_drawn_with_the_weights_counts_once():
    model = net()
    loss = LinearLoss([PerSource(NAMES, row_losses, sampled=True)], Box.simplex(NAMES), weights=[0.2, 0.5, 0.3])
    assert loss(model, WHOLE).item() == pytest.approx(mean_loss(model, WHOLE).item(), rel=1e-6)
    weighted = sum(w * mean_loss(model, part) for w, part in zip((0.2, 0.5, 0.3), PARTS.values(), strict=True))
    assert loss(model, PARTS).item() == pytest.approx(weighted.item(), rel=1e-6)  # one batch per source: as weights


def test_first_weights_of_sources_are_equal_or_one():
    assert LinearLoss([PerSource(NAMES, mean_loss)], Box.simplex(NAMES)).numbers() == pytest.approx([1 / 3] * 3)
    box = {"web": 1.0, "books": (0, 5), "code": (0, 0.5)}
    assert LinearLoss({"s": PerSource(NAMES, mean_loss)}, box).as_dict() == {"web": 1.0, "books": 1.0, "code": 0.5}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PerSource("web", mean_loss), r'must be names of sources, such as \["web", "books"\]; found \'web\''),
        (lambda: PerSource([], mean_loss), "must be names of sources"),
        (lambda: PerSource(mean_loss, NAMES), "must be names of sources, .* found <function mean_loss"),
        (lambda: PerSource(["a", "a"], mean_loss), r"different names; found \['a', 'a'\]"),
        (lambda: PerSource(["a"], None), "`term` must be a callable .* found None"),
        (lambda: PerSource(NAMES, mean_loss)(net(), WHOLE), "found a batch of type tuple that does not say. Read it"),
        (lambda: PerSource(NAMES, mean_loss, key=2)(net(), WHOLE), r"at \[2\], as whole numbers \(N,\); found None"),
        (lambda: PerSource(NAMES, mean_loss, key=0)(net(), WHOLE), r"found a tensor of shape \(15, 4\)"),
        (
            lambda: PerSource(NAMES, mean_loss, key=2)(net(), (*WHOLE, NUMBERS[:9])),
            "found 9 numbers in a batch of 15 rows",
        ),
        (
            lambda: PerSource(NAMES, mean_loss, key="s")(
                net(), {"scale": torch.tensor(1.0), 0: WHOLE[0], "s": NUMBERS}
            ),
            "found 15 numbers in a batch of 1 rows. The number of rows is the length of its first tensor",
        ),
        (lambda: PerSource(["a"], mean_loss, key=2)(net(), (*WHOLE, NUMBERS)), "from 0 to 0; found 0 to 2"),
        (lambda: PerSource(["a"], mean_loss)(net(), PARTS), r"rows of the sources \['a'\]; found \['web', 'books'"),
        (lambda: PerSource(NAMES, mean_loss)(net(), SourceBatch()), r"rows of the sources .* found \[\]"),
        (lambda: PerSource(NAMES, lambda m, b: m(b[0]))(net(), PARTS), r"shape \(15,\); found shape \(15, 3\)"),
        (lambda: PerSource(NAMES, lambda m, b: 1.0)(net(), PARTS), "found a float"),
    ],
)
def test_what_cannot_be_split_is_refused(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()


def test_a_source_that_is_never_read_is_named():
    loss = LinearLoss([PerSource(NAMES, mean_loss, key=2)], Box.simplex(NAMES))
    only_web = tuple(column[NUMBERS == 0] for column in (*WHOLE, NUMBERS))
    with pytest.raises(InvalidInput, match=r"batches that are read; '(books|code)' has none. Read more"):
        observe(net(), loss, mean_loss, [only_web], [WHOLE])


def test_other_terms_see_the_rows_of_all_sources():
    model = net()
    loss = LinearLoss([PerSource(NAMES, mean_loss), UniformLabels()], dict.fromkeys((*NAMES, "uniform"), 1.0))
    loss(model, PARTS)
    assert loss.last["uniform"].item() == pytest.approx(UniformLabels()(model, WHOLE).item(), rel=1e-6)
    unlike = SourceBatch(PARTS | {"code": (*PARTS["code"], torch.zeros(5))})
    with pytest.raises(InvalidInput, match=r"batches of \['web', 'books', 'code'\] that cannot be joined"):
        loss(model, unlike)


def test_sources_that_cannot_be_joined_have_a_forward_each():
    """Texts of other lengths in each source: every call gives the same means."""
    loss = PerSource(["short", "long"], lambda model, batch: batch.mean(1))
    batch = SourceBatch(short=torch.ones(3, 2), long=2 * torch.ones(2, 5))
    for _ in range(2):
        assert {name: value.item() for name, value in loss(None, batch).items()} == {"short": 1.0, "long": 2.0}


def test_a_mean_of_one_entry_is_a_mean():
    loss = PerSource(["a", "b"], lambda model, batch: batch.mean().reshape(1))
    for _ in range(2):
        found = loss(None, SourceBatch(a=torch.ones(3, 1), b=2 * torch.ones(2, 1)))
        assert {name: value.item() for name, value in found.items()} == {"a": 1.0, "b": 2.0}


def test_a_module_as_the_term_of_sources_is_a_part_of_the_loss():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, model, batch):
            self.calls += 1
            return mean_loss(model, batch)

    term = Counting()
    loss = LinearLoss([PerSource(NAMES, term)], Box.simplex(NAMES))
    observe(net(), loss, mean_loss, [PARTS], [WHOLE])
    assert term.calls == 0
    assert any(name.endswith("calls") for name in loss.state_dict())
