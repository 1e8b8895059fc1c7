"""The sampler passes Optuna's own tests of samplers. Optuna ships them since version 4.8."""

import pytest

pytest.importorskip("optuna.testing.pytest_samplers")

import optuna
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from tuneloss import Box
from tuneloss.integrations.optuna import TuneLossSampler

# Trials of these tests have no observations, and suggest other parameters than weights.
pytestmark = pytest.mark.filterwarnings("ignore:A trial must store an observation", "ignore:An objective must suggest")
BOX = Box.from_dict({"l2": (0.01, 100.0), "smooth": (0.0, 2.0), "logloss": 1.0})
NAMED_XY = Box.from_dict({"x": (-5.0, 5.0), "y": (0.0, 1.0), "logloss": 1.0})


class Contract(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """Tests of any sampler, and of samplers that sample several parameters at once, for one objective."""


class TestWithoutFallback(Contract):
    @pytest.fixture
    def sampler(self):
        return lambda: TuneLossSampler(BOX, seed=0)


class TestWithFallback(Contract):
    @pytest.fixture
    def sampler(self):
        return lambda: TuneLossSampler(BOX, fallback=optuna.samplers.GPSampler(seed=0), seed=0)


class TestWhereWeightsAreNamedAsItsParameters(Contract):
    @pytest.fixture
    def sampler(self):
        return lambda: TuneLossSampler(NAMED_XY, fallback=optuna.samplers.RandomSampler(seed=0))
