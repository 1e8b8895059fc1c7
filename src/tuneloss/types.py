"""The types that rooms share."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Literal["calibrated", "paper"]  # a form of the cost: see `learn_loss`
Epsilon = Literal["balanced", "paper"] | float  # how much gradients count: see `epsilon_value`
