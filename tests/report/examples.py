"""Comparisons small enough to work out by hand."""

from tuneloss.core.box import Box
from tuneloss.report.records import Comparison, RunRecord


def record(method, repeat, run, validation, test, *, failed=None, name="l2"):
    return RunRecord(
        method, repeat, run, {name: float(run), "dropout": 0.0, "logloss": 1.0}, validation, test, 0.1, failed
    )


def comparison(*, gap=0.25, repeats=2, methods=("A", "B"), title="A and B", name="l2"):
    """Two methods, three runs; B's test loss is A's plus `gap` in every repeat."""
    runs = [
        record(method, r, run, validation + r - 1, test + r - 1 + gap * m, name=name)
        for m, method in enumerate(methods)
        for r in range(1, repeats + 1)
        for run, validation, test in ((1, 0.9, 1.0), (2, 0.5, 1.2), (3, 0.7, 0.1))
    ]
    box = Box.from_dict({name: (0.1, 100.0), "dropout": (0.0, 1.0), "logloss": 1.0})
    return Comparison(title, "An example.", box, tuple(methods), 3, repeats, tuple(runs))
