"""Weights are printed as short decimals, and nothing is lost by it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tuneloss.torch import L2, LinearLoss
from tuneloss.torch.terms.decimals import shortest

FLOATS = st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=20)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@given(numbers=FLOATS)
def test_a_decimal_rounds_to_the_same_number_and_no_shorter_one_does(dtype, numbers):
    tensor = torch.tensor(numbers, dtype=dtype)
    decimals = shortest(tensor.tolist(), dtype)
    assert torch.equal(torch.tensor(decimals, dtype=dtype), tensor)
    if dtype == torch.float64:
        return
    for decimal, exact in zip(decimals, tensor.tolist(), strict=True):
        digits = len(repr(decimal).partition("e")[0].replace(".", "").strip("0"))
        shorter = float(f"{exact:.{max(digits - 1, 1)}g}")
        assert digits == 1 or torch.tensor(shorter, dtype=dtype) != torch.tensor(exact, dtype=dtype)


@pytest.mark.parametrize("value", [0.1, 0.3, 1e-4, 123.456, 0.0])
def test_a_weight_is_shown_as_it_was_set_and_round_trips(value):
    loss = LinearLoss({"fit": lambda model, batch: batch, "l2": L2()}, box={"fit": 1.0, "l2": (0.0, 1000.0)})
    loss.set_weights({"l2": value})
    assert loss.as_dict() == {"fit": 1.0, "l2": value}
    before = loss.weights.clone()
    loss.set_weights(loss.as_dict())
    assert torch.equal(loss.weights, before)
