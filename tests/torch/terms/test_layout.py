"""The layout of a loss: positions by name."""

import copy
import io

import pytest
import torch

from tuneloss import Box
from tuneloss.errors import InvalidInput
from tuneloss.torch import L1, L2, ConvexPiecewiseLinear, LinearLoss, UniformLabels
from tuneloss.torch.terms.layout import make_layout


def test_each_term_has_the_positions_of_its_names_in_the_box():
    """A box may have any order."""
    l2, r = L2(groups={"first": "0.*", "last": "1.*"}), ConvexPiecewiseLinear([0.0])
    names = ["l2/last", "fit", "r/left0", "l2/first", "r/right0"]
    box = Box.from_dict(dict.fromkeys(names, (0.0, 1.0)) | {"fit": 1.0})
    layout = make_layout(box, [("l2", l2), ("r", r)], ["fit"], others=False)
    assert layout.penalties == (("l2", l2, [3, 0]), ("r", r, [4, 2]))
    assert layout.data == {"fit": 1}
    assert layout.learned == (("r", r, [4, 2]),)
    assert layout.positions("l2") == [3, 0]
    assert layout.positions("l2/last") == [0]
    assert [[0.1, 1.0, 0.2, 0.3, 0.4][j] for j in layout.penalties[0].positions] == [0.3, 0.1]


def test_further_names_are_those_of_data_terms_to_come():
    layout = make_layout({"l1": (0, 1), "task": 1.0}, [("l1", L1())], [], others=True)
    assert layout.data == {"task": 1}
    with pytest.raises(InvalidInput, match=r"must have the names of the terms, .* unknown \['task'\]"):
        make_layout({"l1": (0, 1), "task": 1.0}, [("l1", L1())], [], others=False)


def test_an_unknown_name_has_no_positions():
    layout = make_layout({"fit": 1.0}, [], ["fit"], others=False)
    with pytest.raises(InvalidInput, match=r"must be named as in \['fit'\]; found 'l2'"):
        layout.positions("l2")


def test_a_name_is_used_once():
    with pytest.raises(InvalidInput, match="must have different names"):
        make_layout({"a": (0, 1)}, [("a", L1()), ("a", L2())], [], others=False)
    with pytest.raises(InvalidInput, match="must have different names"):
        make_layout({"a": (0, 1)}, [("a", L1(groups={"b": "0.*"}))], ["a/b"], others=False)


def test_a_copy_of_a_loss_has_a_layout_of_its_own():
    """Its penalties are those that the copy moves and saves, also after pickling."""
    loss = LinearLoss({"fit": UniformLabels(), "r": ConvexPiecewiseLinear([0.0])}, box={"fit": 1.0, "r": (0, 1)})
    torch.save(loss, file := io.BytesIO())
    file.seek(0)
    for other in (copy.deepcopy(loss), torch.load(file, weights_only=False)):
        (placed,) = other.layout.penalties
        assert placed.penalty is other.penalties[0]
        assert placed.penalty is not loss.penalties[0]
        other.double()
        assert placed.penalty.knots.dtype == torch.float64
