"""Calls side by side."""

import joblib

from tuneloss.paper.parallel import side_by_side


def test_a_backend_that_returns_lists_only_works_in_rounds(tmp_path):
    """Of five calls, two at a time, the first two have run when the first result is there; so a kill loses a round."""
    with joblib.parallel_config(backend="multiprocessing"):
        results = side_by_side(_append, [(tmp_path / "calls", i) for i in range(5)], 2)
        assert next(results) == 0
        assert sorted((tmp_path / "calls").read_text()) == ["0", "1"]
        assert list(results) == [1, 2, 3, 4]


def _append(path, number):
    with path.open("a") as file:
        file.write(str(number))
    return number
