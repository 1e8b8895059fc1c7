"""Terms of data: uniform labels, dropout, augmentation, and the forward they share."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

from tests.torch.reference import log_loss, make_data, make_net
from tuneloss.errors import InvalidInput
from tuneloss.torch import Augmented, Dropout, UniformLabels
from tuneloss.torch.terms.data_terms import cross_entropy


def hooks_of(model):
    return [len(module._forward_pre_hooks) for module in model.modules()]


class LikeHuggingFace(nn.Module):
    """Called as model(**batch).logits."""

    def __init__(self):
        super().__init__()
        self.inner = make_net()

    def forward(self, *, inputs, labels):
        return SimpleNamespace(logits=self.inner(inputs), loss=F.cross_entropy(self.inner(inputs), labels))


# --- uniform labels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (4, 3, 2, 5)])
def test_uniform_labels_are_cross_entropy_with_equal_probabilities(shape):
    """By PyTorch's own soft targets, also for one label a pixel."""
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = F.cross_entropy(scores, torch.full_like(scores, 1 / 3))
    torch.testing.assert_close(UniformLabels()(nn.Identity(), [scores]), expected)


def test_uniform_labels_beside_log_loss_are_label_smoothing():
    """Weights 1 - s and s give PyTorch's label_smoothing=s."""
    net, (batch,) = make_net(), make_data(7)
    ours = 0.8 * log_loss(net, batch) + 0.2 * UniformLabels()(net, batch)
    torch.testing.assert_close(ours, F.cross_entropy(net(batch[0]), batch[1], label_smoothing=0.2))


def test_uniform_labels_of_another_call():
    model, ((x, y),) = LikeHuggingFace(), make_data(5)
    term = UniformLabels(output=lambda model, batch: model(**batch).logits)
    torch.testing.assert_close(term(model, {"inputs": x, "labels": y}), UniformLabels()(model.inner, (x, y)))


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_that_keeps_all_is_the_plain_term():
    net, (batch,) = make_net(), make_data(7)
    assert Dropout(1.0)(net, batch) == log_loss(net, batch) == cross_entropy(net, batch)


def test_dropout_masks_each_input_of_a_linear_layer_and_keeps_its_mean():
    """Of inputs 1 and an identity layer, outputs are 0 or 1 / keep, the latter in a part `keep` of cases."""
    layer = nn.Linear(100, 100, bias=False)
    nn.init.eye_(layer.weight)
    seen = []
    torch.manual_seed(0)
    Dropout(0.8, of=lambda model, x: seen.append(model(x)) or seen[0].mean())(layer, torch.ones(200, 100))
    assert set(seen[0].unique().tolist()) == {0.0, 1.25}
    assert seen[0].mean().item() == pytest.approx(1.0, abs=5 * (0.25 / 20000) ** 0.5)


def test_expected_value_of_a_linear_term_under_dropout_is_the_plain_one():
    """Dropout of two layers deep, averaged over draws, for a model and a term without curvature."""
    net, x = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 1)).double(), make_data(4)[0][0]
    term = Dropout(0.5, of=lambda model, x: model(x).mean())
    torch.manual_seed(0)
    draws = torch.stack([term(net, x).detach() for _ in range(2000)])
    assert draws.mean().item() == pytest.approx(net(x).mean().item(), abs=5 * draws.std().item() / 2000**0.5)
    assert draws.std() > 0


def test_dropout_of_other_layers_and_of_another_term():
    """A network of convolutions, its score taken by a term of our own."""
    net, x = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), nn.Flatten()), torch.ones(1, 1, 2000)
    nn.init.ones_(net[0].weight)
    torch.manual_seed(0)
    value = Dropout(0.5, of=lambda model, x: (model(x) == 0).double().mean(), layers=(nn.Conv1d,))(net, x)
    assert value.item() == pytest.approx(0.5, abs=0.1)


def test_dropout_without_a_layer_to_mask_is_refused():
    with pytest.raises(InvalidInput, match=r"masks the inputs of Linear layers; found none in Flatten. Name others"):
        Dropout(0.5)(nn.Flatten(), make_data(2)[0])


@pytest.mark.parametrize("keep", [0, -0.1, 1.1, float("nan")])
def test_dropout_must_keep_something(keep):
    with pytest.raises(InvalidInput, match=r"`keep` is a probability above 0; found .* Give e.g. Dropout\(0.5\)"):
        Dropout(keep)


def test_dropout_leaves_no_hook_behind():
    """Nor if the term fails."""
    net, (batch,) = make_net(), make_data(3)
    before = hooks_of(net)
    Dropout(0.5)(net, batch)
    assert hooks_of(net) == before
    with pytest.raises(ZeroDivisionError):
        Dropout(0.5, of=lambda model, batch: model(batch[0]) / (1 / 0))(net, batch)
    assert hooks_of(net) == before


def test_dropout_leaves_the_models_own_dropout_as_it_is():
    """In eval mode only our masks act, and with all kept nothing is random."""
    net, (batch,) = nn.Sequential(nn.Dropout(0.5), make_net()), make_data(9)
    assert Dropout(1.0)(net.eval(), batch) == log_loss(net, batch)
    assert Dropout(1.0)(net.train(), batch) != log_loss(net, batch)


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's compiler looks at `.grad` of what is no leaf
@pytest.mark.parametrize("how", ["wrapped", "in place", "a part"])
def test_dropout_reaches_into_a_compiled_model(how):
    """The masks act, and what was compiled before them is as it was after them."""
    net, (batch,) = make_net(), make_data(50)
    if how == "wrapped":
        net = torch.compile(net, backend="eager")
    elif how == "in place":
        net.compile(backend="eager")
    else:
        net = nn.Sequential(torch.compile(net, backend="eager"), nn.Identity())
    plain = log_loss(net, batch)
    torch.manual_seed(0)
    assert len({Dropout(0.5)(net, batch).item() for _ in range(4)}) == 4
    assert log_loss(net, batch) == plain


# --- augmentation -----------------------------------------------------------------------------------------------------


def test_augmented_is_the_term_on_changed_inputs():
    net, ((x, y),) = make_net(), make_data(6)
    assert Augmented(lambda x: x.flip(1))(net, (x, y)) == log_loss(net, (x.flip(1), y))
    assert Augmented(lambda x: x)(net, [x, y]) == log_loss(net, (x, y))


def test_augmented_can_change_labels_too():
    """A mixture of examples: with the whole batch it sees inputs and labels."""
    net, ((x, y),) = make_net(), make_data(6)
    mixed = Augmented(lambda batch: (batch[0].roll(1, 0), batch[1].roll(1, 0)), whole_batch=True)
    torch.testing.assert_close(mixed(net, (x, y)), log_loss(net, (x, y)))


def test_augmented_of_another_call():
    model, ((x, y),) = LikeHuggingFace(), make_data(5)
    term = Augmented(
        lambda batch: {**batch, "inputs": -batch["inputs"]},
        of=lambda model, batch: model(**batch).loss,
        whole_batch=True,
    )
    torch.testing.assert_close(term(model, {"inputs": x, "labels": y}), log_loss(model.inner, (-x, y)))


# --- outputs and batches of another kind ------------------------------------------------------------------------------


class Output(OrderedDict):
    """As the ModelOutput of Hugging Face: a dict with attributes."""


class Returns(nn.Module):
    """A net whose forward returns its scores in another way."""

    def __init__(self, form):
        super().__init__()
        self.inner, self.form = make_net(), form

    def forward(self, x):
        return self.form(self.inner(x))


FORMS = {
    "a dict": lambda scores: {"logits": scores},
    "a tuple": lambda scores: (scores, None),
    "a Output": lambda scores: Output(logits=scores),
    "a NoneType": lambda scores: None,
    r"shape \(4,\)": lambda scores: scores[:, 0],
    r"shape \(4, 1\)": lambda scores: scores[:, :1],
}


@pytest.mark.parametrize("term", [UniformLabels(), Dropout(0.5), Augmented(lambda x: x)], ids=lambda term: term.name)
@pytest.mark.parametrize("found", FORMS)
def test_an_output_that_is_no_scores_is_refused(term, found):
    (batch,) = make_data(4)
    message = (
        rf"must be a tensor of shape \(N, C, ...\) with C > 1; the model returned {found}. Say how to call the model"
    )
    with pytest.raises(InvalidInput, match=message):
        term(Returns(FORMS[found]), batch)


def test_scores_can_be_taken_out_of_such_an_output():
    """As the message says."""
    model, (batch,) = Returns(FORMS["a dict"]), make_data(4)

    def scores(model, batch):
        return model(batch[0])["logits"]

    def fit(model, batch):
        return F.cross_entropy(scores(model, batch), batch[1])

    assert UniformLabels(output=scores)(model, batch) == UniformLabels()(model.inner, batch)
    assert Augmented(lambda x: -x, of=fit)(model, batch) == Augmented(lambda x: -x)(model.inner, batch)
    assert Dropout(1.0, of=fit)(model, batch) == log_loss(model.inner, batch)


@pytest.mark.parametrize("term", [UniformLabels(), Dropout(0.5)], ids=lambda term: term.name)
def test_a_batch_that_is_a_dict_is_refused_where_nothing_says_how_to_call_the_model(term):
    ((x, y),) = make_data(4)
    message = r"must be \(inputs, labels, ...\) .*; found a dict with the keys \['inputs', 'labels'\]. Say how to call"
    with pytest.raises(InvalidInput, match=message):
        term(make_net(), {"inputs": x, "labels": y})
    term(make_net(), {0: x, 1: y})


def test_a_batch_that_is_a_dict_is_augmented_as_a_whole_only():
    ((x, y),) = make_data(4)
    with pytest.raises(
        InvalidInput, match=r"found a dict with the keys \['x', 'y'\]. Let the transform change the whole"
    ):
        Augmented(lambda x: x)(make_net(), {"x": x, "y": y})


@pytest.mark.parametrize(
    ("layer", "inputs", "found"),
    [
        (nn.Embedding(5, 3), torch.tensor([[1, 2]]), "Embedding is a tensor of torch.int64"),
        (nn.GRU(2, 3), pack_sequence([torch.ones(4, 2)]), "GRU is a PackedSequence"),
    ],
)
def test_dropout_of_what_has_no_mask_is_refused(layer, inputs, found):
    message = (
        f"masks inputs that are tensors of floating-point numbers; that of {found}. Leave this kind out of `layers`"
    )
    with pytest.raises(InvalidInput, match=message):
        Dropout(0.5, layers=(type(layer),), of=lambda model, batch: model(batch[0]))(nn.Sequential(layer), [inputs])
