"""Records that are read together: the same observations and the same errors as one by one."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import instances
from tuneloss import Observation
from tuneloss.errors import InvalidInput
from tuneloss.tuning.records import checked_together, read_observations


@settings(max_examples=100, deadline=None)
@given(instance=instances(max_models=6), metric=st.booleans(), named=st.booleans())
def test_many_records_at_once_are_read_as_one_by_one(instance, metric, named):
    observations, box = instance
    given = [
        Observation(o.error, o.features, o.gram, metric=0.5 if metric else None, names=box.names if named else None)
        for o in observations
    ]
    records = json.loads(json.dumps([o.to_dict() for o in given]))
    together = checked_together(records)
    assert [o.to_dict() for o in together] == records
    assert [o.to_dict() for o in read_observations(records)] == records
    assert not any(o.features.flags.writeable for o in together)


GOOD = {"error": 1.0, "features": [1.0, 2.0], "gram": np.eye(3).tolist(), "metric": None, "names": None}
WRONG = [
    {"error": math.nan},
    {"error": True},
    {"error": "1.0"},
    {"features": [1.0, math.inf]},
    {"features": [1.0]},
    {"features": []},
    {"gram": None},
    {"gram": np.eye(2).tolist()},
    {"gram": (-np.eye(3)).tolist()},
    {"gram": np.triu(np.ones((3, 3))).tolist()},
    {"gram": "nonsense"},
    {"metric": 1.0},
    {"names": ["a", "b"]},
    {"names": ["a"]},
    {"names": 5},
    {"error": None},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("everywhere", [False, True])
def test_many_records_at_once_are_refused_as_one_by_one(wrong, everywhere):
    """And where only the kinds differ, all are read."""
    records = [GOOD | wrong if everywhere or i == 2 else GOOD for i in range(4)]

    def outcome(read):
        try:
            return [o.to_dict() for o in read()]
        except InvalidInput as reason:
            return str(reason)

    assert outcome(lambda: read_observations(records)) == outcome(
        lambda: [Observation.from_dict(record) for record in records]
    )
