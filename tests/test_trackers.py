"""The recipes of the page on trackers: each tracker has stored what `OnlineTuner.metrics` returned."""

import json
import struct

import pytest

pytest.importorskip("torch")
pytest.importorskip("mlflow")
pytest.importorskip("tensorboard")
pytest.importorskip("wandb")

import mlflow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

from tests.test_docs import run


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder in which the page ran, its names, and the metrics of each epoch."""
    folder = tmp_path_factory.mktemp("trackers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        names, _ = run("trackers.md")
        metrics = []
        names["train"](lambda numbers, _: metrics.append(numbers))
        yield folder, names, metrics


def assert_stored(found, metrics):
    """For each name, one number per epoch; the time that a step took differs from run to run."""
    assert set(found) == set(metrics[0])
    for name, numbers in found.items():
        assert len(numbers) == len(metrics) == 10
        if name != "seconds":
            assert numbers == pytest.approx([of_epoch[name] for of_epoch in metrics], rel=1e-6)


def test_tensorboard_has_all_metrics(ran):
    folder, _, metrics = ran
    events = EventAccumulator(str(folder / "runs" / "tuned"))
    events.Reload()
    assert_stored({name: [e.value for e in events.Scalars(name)] for name in events.Tags()["scalars"]}, metrics)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")  # of SQLAlchemy, in MLflow
def test_mlflow_has_all_metrics(ran):
    _, _, metrics = ran
    client = mlflow.MlflowClient()
    (stored,) = client.search_runs(["0"])
    histories = {name: client.get_metric_history(stored.info.run_id, name) for name in stored.data.metrics}
    assert_stored({name: [m.value for m in sorted(h, key=lambda m: m.step)] for name, h in histories.items()}, metrics)


def records_of(path):
    """The records in the file of an offline run: after 7 bytes, each has a header of checksum, length and kind."""
    data, position = path.read_bytes(), 7
    assert len(data) < 2**15  # in longer files, records are split into blocks
    while position < len(data):
        _, length, _ = struct.unpack_from("<IHB", data, position)
        yield Record.FromString(data[position + 7 : position + 7 + length])
        position += 7 + length


def test_wandb_has_all_metrics(ran):
    """They are in the file of the offline run."""
    folder, _, metrics = ran
    (path,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    found = {}
    for record in records_of(path):
        for item in record.history.item:
            name = item.key or item.nested_key[0]
            if not name.startswith("_"):
                found.setdefault(name, []).append(json.loads(item.value_json))
    assert_stored(found, metrics)


def test_the_terms_of_the_last_batch_have_all_names(ran):
    _, names, _ = ran
    assert list(names["numbers"]) == ["batch/logloss", "batch/smooth", "batch/l2"]
    assert names["numbers"]["batch/logloss"] > 0
