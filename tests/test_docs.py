"""Code in the pages runs as it stands, and numbers in it are true."""

import io
import math
import re
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if "```python" in page.read_text(encoding="utf-8"))

TESTED_BELOW = {"mixtures.md", "troubleshooting.md", "tutorial_observe.md", "tutorial_online.md"}


def names_of_online() -> dict:
    """What the fragment of online.md takes as given: a model, loaders, and the names it imports."""
    torch = pytest.importorskip("torch")
    import tuneloss.torch

    def log_loss(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(40, 6), torch.randint(0, 3, (40,)))
    loader = torch.utils.data.DataLoader(data, batch_size=10)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    names = {name: getattr(tuneloss.torch, name) for name in tuneloss.torch.__all__}
    own = {
        "math": math,
        "model": model,
        "log_loss": log_loss,
        "hflip": lambda x: x.flip(-1),
        "train_loader": loader,
        "val_loader": loader,
        "epochs": 2,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
    }
    return names | own


def run(page: str) -> tuple[dict, str]:
    """The names that a page's programs define, one after the other, and what they print."""
    names = names_of_online() if page == "online.md" else {}
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL):
            exec(code, names)
    return names, printed.getvalue()


def test_there_are_pages_with_code():
    assert {"start.md", "scikit.md", "online.md", "terms.md", "troubleshooting.md"} <= set(PAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TESTED_BELOW])
def test_code_runs(page):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run(page)


def test_the_program_of_a_mixture_is_short_and_finds_the_domain_like_the_target():
    """At most 30 lines. The target is the code of a module: most of the mixture is code, and the floor is kept."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    names, _ = run("mixtures.md")
    program = re.findall(r"```python\n(.*?)```", (DOCS / "mixtures.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len(program.splitlines()) <= 30
    assert names["weights"]["code"] > 0.6
    assert min(names["shares"].values()) >= 0.05
    assert sum(names["shares"].values()) == pytest.approx(1, abs=1e-6)


def test_the_warning_about_small_validation_sets_is_true():
    """Validation log loss far below knowing nothing, test log loss above it, as the page says."""
    names, printed = run("troubleshooting.md")
    validation, test = (float(number) for number in printed.split())
    assert validation == pytest.approx(0.617, abs=0.005)
    assert test == pytest.approx(1.097, abs=0.005)
    assert names["best"].observation.error == validation < math.log(2) < test


def test_links_between_pages_lead_somewhere():
    """Links to records of experiments are left out where there are none: an sdist comes without them."""
    without_records = not (DOCS.parent / "results").exists()
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            if not (without_records and target.startswith("../results/")):
                assert (DOCS / target).exists(), f"{page.name}: {target}"


def test_code_is_at_most_88_columns_wide():
    """A wider line is cut off at a window of 1280 px."""
    for page in DOCS.glob("*.md"):
        fences = re.findall(r"^```(.*)\n([\s\S]*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE)
        wide = [line for kind, code in fences if kind[:1] != "{" for line in code.splitlines() if len(line) > 88]
        assert wide == [], f"{page.name}: break these lines"


def test_no_line_of_prose_begins_like_a_bullet():
    """Markdown makes a bullet of a line that begins with "+ "; the pages write bullets with "-"."""
    for page in DOCS.glob("*.md"):
        prose = re.sub(r"^```[\s\S]*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert re.findall(r"^\s*\+ .*", prose, re.MULTILINE) == [], page.name


def test_every_command_is_in_the_reference():
    """The page takes options from the parser itself; a new command must be named on it."""
    typer = pytest.importorskip("typer")
    from tuneloss.cli import app

    def paths(command, path=()):
        below = getattr(command, "commands", {})
        return [" ".join(path)] if not below else [p for name in below for p in paths(below[name], (*path, name))]

    named = re.findall(r"```\{command\} (.*)", (DOCS / "cli.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(paths(typer.main.get_command(app)))


def test_the_glossary_is_sorted():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    names = re.findall(r"^(?! |`|#)(.+)\n  \S", text, re.MULTILINE)
    assert len(names) > 10
    assert names == sorted(names, key=str.lower)


def test_every_example_is_in_the_gallery():
    """All scripts that a user can run, which are those with a `main`."""
    scripts = [path.stem for path in (DOCS.parent / "examples").glob("*.py") if "def main(" in path.read_text("utf-8")]
    shown = re.findall(r"python examples/(\w+)\.py", (DOCS / "gallery.md").read_text(encoding="utf-8"))
    assert sorted(scripts) == sorted(shown)


def outputs(page: str) -> list[str]:
    """The outputs that a page shows."""
    return re.findall(r"```text\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def shape(text: str) -> str:
    """The text with all numbers replaced by one sign."""
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text)


def test_the_tutorial_of_one_run_shows_its_output():
    """Seed 0: the lines are those that the page shows; the tuner lowers the test log loss by a tenth or more."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    names, printed = run("tutorial_online.md")
    assert shape(printed) == shape("".join(outputs("tutorial_online.md")))
    assert names["plain_loss"] == pytest.approx(0.466, abs=0.03)
    assert names["tuned_loss"] == pytest.approx(0.363, abs=0.03)


def test_the_tutorial_of_several_runs_shows_its_output():
    """Seed 0: the lines are those that the page shows; the best run is better than all that it is compared with."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    names, printed = run("tutorial_observe.md")
    assert shape(printed) == shape("".join(outputs("tutorial_observe.md")))
    assert names["first"] == pytest.approx(0.474, abs=0.05)
    assert names["tuned"] == pytest.approx(0.362, abs=0.05)
    assert names["tuned"] < min(names["first"], names["plain"], names["random"])
