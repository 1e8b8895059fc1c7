"""Records of a small demo with known numbers."""

from tests.paper.records import record
from tuneloss.paper.demo import HALVES


def demo_records(*, gap=0.25, repeats=2):
    """Return three steps of all four methods; the other method's test loss is ours plus `gap` in every repeat."""
    return [
        record(
            method, repeat, run, validation + repeat, test + repeat + gap * m, test_error=0.1, dataset="digits",
            weights={"l1": 0.1, "l2": float(run + 1), "uniform": 0.05, "dropout": 0.0, "logloss": 1.0},
        )
        for half in HALVES
        for m, method in enumerate(half.names)
        for repeat in range(repeats)
        for run, (validation, test) in enumerate(((0.9, 1.0), (0.5, 1.2), (0.7, 0.1)))
    ]  # fmt: skip
