"""Random boxes and observations for hypothesis: small whole numbers (many ties), or any units over twelve decades."""

import numpy as np
from hypothesis import strategies as st

from tuneloss import Box, Observation


@st.composite
def instances(draw, max_models: int = 8, max_features: int = 6) -> tuple[list[Observation], Box]:
    """(observations, box): with or without gradients; whole or decimal features; pinned, unpinned or a simplex."""
    k = draw(st.integers(1, max_features))
    m = draw(st.integers(1, max_models))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    unit = np.ones(k)
    if draw(st.booleans()):
        features = rng.integers(-3, 4, size=(m, k)).astype(float)
        errors = rng.integers(0, 4, size=m).astype(float)
    else:
        unit = 10 ** rng.uniform(-6, 6, size=k) if draw(st.booleans()) else unit
        features, errors = rng.exponential(size=(m, k)) * unit, rng.exponential(size=m)
    box = draw(boxes(k, unit))
    if not draw(st.booleans()):
        return [Observation(e, f) for e, f in zip(errors, features, strict=True)], box
    n = draw(st.integers(1, 8))
    return [
        Observation.from_gradients(e, f, rng.normal(size=n), rng.normal(size=(n, k)) * unit)
        for e, f in zip(errors, features, strict=True)
    ], box


@st.composite
def boxes(draw, k: int, unit: np.ndarray) -> Box:
    kind = draw(st.sampled_from(["pinned", "unpinned", "simplex"]))
    if kind == "simplex":
        return Box.simplex([f"t{j}" for j in range(k)])
    lower = np.array(draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, -1.0]), min_size=k, max_size=k)))
    upper = lower + draw(st.lists(st.sampled_from([0.0, 1.0, 100.0, np.inf]), min_size=k, max_size=k))
    j = draw(st.integers(0, k - 1))
    if kind == "pinned":
        lower[j] = upper[j] = draw(st.sampled_from([1.0, 2.0, -1.0]))
    else:
        lower[j], upper[j] = 0.5, 5.0
    return Box(lower / unit, upper / unit)
