"""The tuners that are compared: what each reads of an observation, and how it is shown."""

import numpy as np
import pytest

from tuneloss import Observation
from tuneloss.errors import InvalidInput
from tuneloss.paper.terms import appendix_box
from tuneloss.paper.tuners import COLORS, LABELS, READ_HYPERGRADIENTS, READ_TERMS, TUNERS, make_tuner


@pytest.mark.parametrize("tuner", [tuner for tuner in TUNERS if tuner not in READ_HYPERGRADIENTS])
def test_terms_matter_to_tuners_that_read_them_and_only_to_them(tuner):
    """What the others ask for is the same, so the error is all that they need to be told."""
    box, rng = appendix_box(), np.random.default_rng(0)
    start = box.as_dict(box.lower)
    one, other = (make_tuner(tuner, box, 7, start) for _ in range(2))
    for error in (3.0, 1.0, 2.0, 1.5, 1.2, 1.1, 1.4, 1.3, 1.6, 1.7, 1.8):  # more than any tuner draws at random first
        weights = one.ask()
        assert weights == other.ask() or tuner in READ_TERMS
        one.tell(weights, Observation(error, rng.random(5), np.eye(6)))
        other.tell(weights, Observation(error, rng.random(5), np.diag(1 + rng.random(6))))
    assert (one.ask() == other.ask()) == (tuner not in READ_TERMS)


def test_every_tuner_has_a_label_and_a_colour_of_its_own():
    assert set(LABELS) == set(COLORS) == set(TUNERS)
    assert len(set(COLORS.values())) == len(TUNERS)
    with pytest.raises(InvalidInput, match=r"A tuner must be one of tuneloss, .* found 'sgd'"):
        make_tuner("sgd", appendix_box(), 0, {})
