"""The architecture, as imports: downwards only, and nothing optional at the door."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tuneloss

ROOT = Path(tuneloss.__file__).parent
OPTIONAL = ["accelerate", "cvxpy", "jax", "joblib", "lightning", "matplotlib", "numba", "optuna", "pandas", "pyarrow"]
OPTIONAL += ["ray", "rich", "sklearn", "torch", "transformers", "typer"]
BELOW = {  # a room, and the rooms it may import
    "errors": [],
    "extras": [],
    "files": [],
    "text": [],
    "types": [],
    "npz": ["errors", "text"],
    "ranking": [],
    "checks": ["errors", "types"],
    "packing": ["errors", "types"],
    "core": ["checks", "errors", "packing", "ranking", "types"],
    "tuning": ["checks", "core", "errors", "files", "hinges", "packing", "ranking", "types"],
    "hinges": ["errors", "types"],
    "baselines": ["checks", "core", "errors", "tuning", "types"],
    "report": ["core", "errors", "files", "hinges", "text", "tuning", "types"],
    "torch": ["checks", "core", "errors", "extras", "files", "hinges", "ranking", "tuning", "types"],
    "jax": ["core", "errors", "extras", "types"],
    "integrations": ["checks", "core", "errors", "extras", "torch", "tuning", "types"],
    "data": ["errors", "npz", "types"],
    "sklearn": ["checks", "core", "data", "errors", "files", "hinges", "npz", "report", "tuning", "types"],
    "paper": ["baselines", "core", "errors", "files", "hinges", "npz", "report", "torch", "tuning", "types"],
    "cli": [
        *["baselines", "core", "data", "errors", "files", "npz"],
        *["paper", "report", "sklearn", "text", "tuning", "types"],
    ],
    "__main__": ["cli"],
}


def rooms_imported_by(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else names
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
        found |= {name.split(".")[1] for name in names if name.startswith("tuneloss.")}
        if names == ["tuneloss"] and isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names} & set(BELOW)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path):
    """Each file imports only from its own room and those below it."""
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room != "__init__":
        assert rooms_imported_by(path) <= {room, *BELOW[room]}


@pytest.mark.parametrize("room", ["", ".baselines", ".errors", ".extras", ".integrations", ".tuning"])
def test_importing_a_room_loads_nothing_optional(room):
    """In a fresh process: NumPy, SciPy and the two QP solvers are all it takes."""
    program = f"import sys, tuneloss{room}; print([name for name in {OPTIONAL} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
