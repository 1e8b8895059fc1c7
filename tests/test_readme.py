"""The README's program runs as it stands, and its numbers are true."""

import io
import re
import tomllib
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from tuneloss import LossTuner

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def program() -> dict:
    """The names that the README's program defines."""
    names: dict = {}
    exec(PROGRAMS[0], names)
    return names


def test_the_program_finds_what_the_readme_says(program):
    """606 after 6 runs, much smoothness and little L2; from 40 random starts 607 ± 1."""
    best = program["tuner"].best
    assert best.observation.error == pytest.approx(606, abs=0.5)
    assert best.weights["smooth"] > 100 * best.weights["l2"]
    assert "a validation error of 606 after 6 runs" in " ".join(README.split())
    starts = 10 ** np.random.default_rng(0).uniform(-2, 3, size=(40, 2))
    found = []
    for l2, smooth in starts:
        tuner = LossTuner(program["tuner"].box, start={"l2": l2, "smooth": smooth, "fit": 1.0})
        found.append(tuner.run(program["train"], 6, progress=False).observation.error)
    said = f"{np.mean(found):.0f} ± {1.96 * np.std(found, ddof=1) / np.sqrt(40):.0f}"
    assert f"From 40 random starts it reaches {said}" in " ".join(README.split())


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


def test_the_optuna_program_finds_the_same(program):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    code = next(code for code in PROGRAMS if "TuneLossSampler" in code)
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        exec(code, program)
    assert program["study"].best_value == pytest.approx(606, abs=0.5)
    assert "# the same 606" in code


def test_links_lead_somewhere_and_a_package_index_shows_none_into_the_repository():
    """The substitutions of pyproject.toml leave the text of such links."""
    relative = r"\]\((?!https?:)([^)#]+)"
    assert all((ROOT / target).exists() for target in re.findall(relative, README))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shown = README
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    assert re.findall(relative, shown) == []
    assert re.findall(r"```python\n(.*?)```", shown, re.DOTALL) == PROGRAMS
    assert "https://arxiv.org/abs/1907.00103" in shown


def test_there_is_one_version():
    """The package says it, and the citation has the same."""
    import tuneloss

    assert f"\nversion: {tuneloss.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{tuneloss.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_program_is_short():
    assert len([line for line in PROGRAMS[0].splitlines() if line.strip()]) <= 20


def train_online(seed: int, *, tune: bool) -> tuple[float, float]:
    """Validation and test log loss of the README's second program at its best epoch; with or without the tuner."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    torch.set_num_threads(1)
    code = PROGRAMS[1].replace("manual_seed(0)", f"manual_seed({seed})")
    names: dict = {}
    with redirect_stdout(io.StringIO()), threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")
        exec(code if tune else re.sub(r"\(0, \d+\)", "0.0", code), names)
    with torch.no_grad():
        test = names["log_loss"](names["model"], next(iter(names["test"])))
    return names["tuner"].best.error, float(test)


def test_tuning_inside_one_run_is_as_the_readme_says():
    """For seeds 0 to 9: the tuner gains in all but perhaps one, by as much as is said."""
    tuned, plain = (np.array([train_online(seed, tune=tune) for seed in range(10)]) for tune in (True, False))
    assert (tuned[:, 1] < plain[:, 1]).sum() >= 9
    for found, said in ((tuned, "0.294 ± 0.028"), (plain, "0.350 ± 0.041"), (tuned - plain, "-0.056 ± 0.019")):
        mean, half = (float(number) for number in said.split(" ± "))
        assert said in " ".join(README.split())
        assert found[:, 1].mean() == pytest.approx(mean, abs=0.02)
        assert stats.t.ppf(0.975, 9) * found[:, 1].std(ddof=1) / np.sqrt(10) == pytest.approx(half, abs=0.015)
