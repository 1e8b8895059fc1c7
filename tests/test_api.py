"""Public names: each has a short import path, the page of the API names no others, and none is lost by accident."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
PUBLIC = {  # a room, and all that it exports
    "tuneloss": ["Box", "LearnedLoss", "LossTuner", "Observation", "learn_loss", "learn_loss_on_folds"],
    "tuneloss.baselines": [
        "GpEiMcmc",
        "Hoag",
        "HypergradientLbfgs",
        "OptunaSearch",
        "RandomSearch",
        "TuneReg",
        "implicit_derivative",
    ],
    "tuneloss.errors": ["InvalidInput", "JournalError", "NotFinite", "RunFailed", "SolverError", "TuneLossError"],
    "tuneloss.integrations.lightning": ["TuneLossCallback"],
    "tuneloss.integrations.optuna": ["TuneLossSampler"],
    "tuneloss.integrations.transformers": ["TuneLossMixin", "TuneLossTrainer"],
    "tuneloss.integrations.ray": ["TuneLossSearch", "reported"],
    "tuneloss.jax": ["observe"],
    "tuneloss.data": ["Dataset", "read_dataset", "read_inputs"],
    "tuneloss.sklearn": [
        "ModelComparison",
        "Preparation",
        "SavedModel",
        "TrainTestRows",
        "TunedLogisticRegression",
        "check_replaceable",
        "compare_models",
        "hold_out",
        "load_model",
        "save_model",
        "write_fit",
    ],
    "tuneloss.torch": [
        "L1",
        "L2",
        "Augmented",
        "ConvexPiecewiseLinear",
        "Dropout",
        "LinearLoss",
        "OnlineTuner",
        "PerSource",
        "UniformLabels",
        "by_layer",
        "observe",
    ],
    "tuneloss.torch.observing": ["ObserveOptions"],
    "tuneloss.torch.sources": ["MixtureLoader", "SourceBatch", "SourceLoader", "TargetMix"],
    "tuneloss.torch.terms": ["GroupPenalty", "Penalty"],
    "tuneloss.tuning": ["LossTuner", "OnlineLearner", "OnlinePolicy", "OnlineStep", "Run", "StepRecord"],
}
TWICE = {("tuneloss.tuning", "LossTuner")}  # exported from `tuneloss` too, and documented there
NEEDS = {  # a room, and the library that it adapts to
    "tuneloss.integrations.lightning": "lightning",
    "tuneloss.integrations.optuna": "optuna",
    "tuneloss.integrations.transformers": "transformers",
    "tuneloss.integrations.ray": "ray",
    "tuneloss.jax": "jax",
    "tuneloss.sklearn": "sklearn",
    "tuneloss.torch": "torch",
    "tuneloss.torch.observing": "torch",
    "tuneloss.torch.terms": "torch",
}


def documented() -> list[tuple[str, str]]:
    """Module and name of each class and function on the page of the API."""
    names, module = [], ""
    for directive, name in re.findall(r"^\.\. (\w+):: (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        if directive == "currentmodule":
            module = name
        elif directive in ("autoclass", "autofunction"):
            path = name if "." in name else f"{module}.{name}"
            names.append(tuple(path.rsplit(".", 1)))
        elif directive == "automodule":
            names += [(name, member) for member in PUBLIC[name]]
    return names


@pytest.mark.parametrize("room", PUBLIC)
def test_public_names_are_stable(room):
    pytest.importorskip(NEEDS.get(room, "tuneloss"))
    module = importlib.import_module(room)
    assert sorted(module.__all__) == sorted(PUBLIC[room])
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.skipif(not PAGE.exists(), reason="without the pages")
def test_the_page_of_the_api_names_what_rooms_export_and_all_of_it():
    exported = {(room, name) for room, names in PUBLIC.items() for name in names}
    assert set(documented()) == exported - TWICE
