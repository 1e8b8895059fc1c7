"""The default error: the one data term that is pinned, or a message that says how to give an error."""

import pytest
import torch

from tuneloss import Box
from tuneloss.errors import InvalidInput
from tuneloss.torch import L2, LinearLoss, PerSource, UniformLabels
from tuneloss.torch.terms.pinned_term import pinned_term


def fit(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def fit_and_more(model, batch):
    return {"fit": fit(model, batch), "more": model(batch[0]).abs().mean()}


@pytest.mark.parametrize("terms", [{"fit": fit, "smooth": UniformLabels(), "l2": L2()}, [fit_and_more, L2()]])
def test_it_is_the_value_of_the_pinned_task(terms):
    """Pinned penalties and regularizers do not compete with it; its callable may return other terms too."""
    model, batch = torch.nn.Linear(3, 2), (torch.randn(5, 3), torch.randn(5, 2))
    other = {"smooth": 0.1} if isinstance(terms, dict) else {"more": (0, 1)}
    error = pinned_term(LinearLoss(terms, box={"fit": 1.0, "l2": 0.1} | other), "")
    assert torch.equal(error(model, batch), fit(model, batch))


@pytest.mark.parametrize(
    ("terms", "box", "found"),
    [
        ({"a": fit, "b": fit}, Box.simplex(["a", "b"]), "none"),
        ({"a": fit, "b": fit}, {"a": 1.0, "b": 1.0}, r"\['a', 'b'\]"),
        ({"a": fit, "l2": L2()}, {"a": (0, 1), "l2": 0.1}, "none"),
        ({"a": fit, "b": fit}, {"a": (0.1, 1), "b": 0.0}, "none"),
        ({"a": fit, "smooth": UniformLabels()}, {"a": (0, 1), "smooth": 0.1}, "none"),
        ([PerSource(["a", "b"], fit, key=2)], {"a": 1.0, "b": (0, 1)}, "none"),
    ],
)
def test_there_must_be_exactly_one(terms, box, found):
    with pytest.raises(InvalidInput, match=rf"is pinned, so there must be one; found {found}\. Give another error\.$"):
        pinned_term(LinearLoss(terms, box=box), "Give another error.")
