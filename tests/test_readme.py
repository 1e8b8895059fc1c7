"""The README's program runs as it stands, and its numbers are true."""

import re
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.fixture(scope="module")
def program() -> dict:
    """The names that the README's program defines."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(code, names)
    return names


def test_the_program_finds_what_the_readme_says(program):
    """621 after 6 runs, smoothness and no L2."""
    best = program["tuner"].best
    assert best.observation.error == pytest.approx(621, abs=0.5)
    assert best.weights["l2"] == 0.01
    assert "a validation error of 621 after 6 runs" in " ".join(README.split())


def test_the_grid_and_random_search_are_as_the_readme_says(program):
    """605 by a 30 x 30 grid; 704 ± 16 by random search with 6 runs, a mean over 200 repeats and its 95% interval."""
    train = program["train"]
    grid = np.geomspace(0.01, 1000, 30)
    assert min(train({"l2": a, "smooth": b}).error for a in grid for b in grid) == pytest.approx(605, abs=0.5)
    draws = 10 ** np.random.default_rng(1).uniform(-2, 3, size=(200, 6, 2))
    found = [min(train({"l2": a, "smooth": b}).error for a, b in runs) for runs in draws]
    assert np.mean(found) == pytest.approx(704, abs=0.5)
    assert 1.96 * np.std(found, ddof=1) / np.sqrt(200) == pytest.approx(16, abs=0.5)
    assert "finds 605" in README
    assert "704 ± 16" in README


def test_the_program_is_short():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
