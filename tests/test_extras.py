"""A part of the package whose library is missing says which extra to install."""

import subprocess
import sys

import pytest

from tuneloss.extras import needs

PROGRAM = """
import sys

class Blocked:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked)
import {part}
"""
PARTS = [
    ("tuneloss.torch", "torch", "torch"),
    ("tuneloss.torch.terms", "torch", "torch"),
    ("tuneloss.jax", "jax", "jax"),
    ("tuneloss.integrations.lightning", "lightning", "lightning"),
    ("tuneloss.integrations.ray", "ray", "ray"),
    ("tuneloss.integrations.ray", "optuna", "ray"),
    ("tuneloss.integrations.optuna", "optuna", "optuna"),
    ("tuneloss.integrations.transformers", "transformers", "transformers"),
    ("tuneloss.integrations.transformers", "accelerate", "transformers"),
    ("tuneloss.integrations.transformers", "torch", "transformers"),
]


@pytest.mark.parametrize(("part", "module", "extra"), PARTS)
def test_a_part_names_the_extra_that_it_misses(part, module, extra):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(part=part, module=module)], capture_output=True)
    assert done.stderr.decode().splitlines()[-1] == (
        f"ModuleNotFoundError: This needs {module}, which is not installed. Run: pip install 'tuneloss[{extra}]'"
    )


def test_the_error_has_the_name_of_the_module():
    with pytest.raises(ModuleNotFoundError, match="needs no_such_module") as raised, needs("a", "no_such_module"):
        import no_such_module  # noqa: F401
    assert raised.value.name == "no_such_module"


def test_another_missing_module_keeps_its_error():
    """A broken installation is not repaired by an extra."""
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_module'$"), needs("torch", "torch"):
        import no_such_module  # noqa: F401
