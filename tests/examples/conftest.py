"""What the tests of examples share: each test file runs the example of its name, once and small."""

import importlib
import json

import pytest


@pytest.fixture(scope="module")
def example(request):
    """The example of this test file, imported as a script would: with examples/ on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend("examples")
        yield importlib.import_module(request.path.stem.removeprefix("test_"))


@pytest.fixture(scope="module")
def records(example, out):
    """What the example wrote into the folder `out`, a fixture of each test file."""
    path = out / "results" / f"{example.__name__}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
