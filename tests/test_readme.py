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
ONLINE, ASK_TELL, OPTUNA = PROGRAMS
PRINTED = re.findall(r"```\n\n    (.+)\n", README)  # what stands below each program


@pytest.fixture(scope="module")
def program() -> dict:
    """The names that the program of ask and tell defines, and what it prints."""
    names: dict = {}
    with redirect_stdout(io.StringIO()) as printed:
        exec(ASK_TELL, names)
    return names | {"printed": printed.getvalue()}


def test_the_program_finds_what_the_readme_says(program):
    """605 after 6 runs, much smoothness and little L2; from 40 random starts 607 ± 1."""
    best = program["tuner"].best
    assert best.observation.error == pytest.approx(605, abs=0.5)
    assert best.weights["smooth"] > 100 * best.weights["l2"]
    assert program["printed"] == PRINTED[1] + "\n"
    starts = 10 ** np.random.default_rng(0).uniform(-2, 3, size=(40, 2))
    found = []
    for l2, smooth in starts:
        tuner = LossTuner(program["tuner"].box, start={"l2": l2, "smooth": smooth, "fit": 1.0})
        found.append(tuner.run(program["train"], 6, progress=False).observation.error)
    said = f"{np.mean(found):.0f} ± {1.96 * np.std(found, ddof=1) / np.sqrt(40):.0f}"
    assert f"From 40 random starts, 6 runs of TuneLoss find {said}" in " ".join(README.split())


def test_the_grid_and_random_search_are_as_the_readme_says(program):
    """605 by a 30 x 30 grid; 704 ± 16 by random search with 6 runs, a mean over 200 repeats and its 95% interval."""
    train = program["train"]
    grid = np.geomspace(0.01, 1000, 30)
    assert min(train({"l2": a, "smooth": b}).error for a in grid for b in grid) == pytest.approx(605, abs=0.5)
    draws = 10 ** np.random.default_rng(1).uniform(-2, 3, size=(200, 6, 2))
    found = [min(train({"l2": a, "smooth": b}).error for a, b in runs) for runs in draws]
    assert np.mean(found) == pytest.approx(704, abs=0.5)
    assert 1.96 * np.std(found, ddof=1) / np.sqrt(200) == pytest.approx(16, abs=0.5)
    assert "A grid of 900 runs finds 605" in README
    assert "704 ± 16" in README


def test_the_optuna_program_finds_the_same(program):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        exec(OPTUNA, program)
    assert printed.getvalue() == PRINTED[2] + "\n"


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


def test_the_readme_and_its_programs_are_short():
    assert len(README.splitlines()) <= 155
    for program in PROGRAMS:
        lines = program.splitlines()
        assert len([line for line in lines if line.strip()]) <= 40
        assert max(map(len, lines)) <= 100


@pytest.fixture(scope="module")
def online() -> np.ndarray:
    """Test log loss of the PyTorch program for seeds 0 to 9: a plain run, a tuned run, and what the program prints."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    torch.set_num_threads(1)
    names: dict = {}
    with redirect_stdout(io.StringIO()) as printed, threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tuning may hurt")
        exec(ONLINE, names)
        found = np.array([[names["run"](seed, tune=tune) for tune in (False, True)] for seed in range(10)])
    first = [float(number) for number in re.findall(r"[\d.]+", printed.getvalue())]
    assert first == pytest.approx(found[0], abs=6e-4)
    return found


def test_tuning_inside_one_run_is_as_the_readme_says(online):
    """For seeds 0 to 9: the tuner gains in all but perhaps one, by as much as is said."""
    plain, tuned = online.T
    assert (tuned < plain).sum() >= 9
    for found, said in ((tuned, "0.294 ± 0.028"), (plain, "0.350 ± 0.041"), (plain - tuned, "0.056 ± 0.019")):
        mean, half = (float(number) for number in said.split(" ± "))
        assert said in " ".join(README.split())
        assert found.mean() == pytest.approx(mean, abs=0.02)
        assert stats.t.ppf(0.975, 9) * found.std(ddof=1) / np.sqrt(10) == pytest.approx(half, abs=0.015)


def test_the_printed_line_of_the_first_seed_is_that_of_the_readme(online):
    """To 0.03, because the numbers change with the version of PyTorch."""
    said = [float(number) for number in re.findall(r"[\d.]+", PRINTED[0])]
    assert said == pytest.approx(online[0], abs=0.03)
