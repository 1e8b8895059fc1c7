"""Figure 3: all tuners begin alike, what is there is not run again, and Table 1 stands beside it."""

import pytest
from threadpoolctl import threadpool_limits

torch = pytest.importorskip("torch")

from tests.paper.records import FIELDS, record  # noqa: E402
from tuneloss.paper.experiment import Results, run_experiment  # noqa: E402
from tuneloss.paper.figure3 import Figure3  # noqa: E402
from tuneloss.paper.online_run import ONLINE  # noqa: E402
from tuneloss.paper.results import writing  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """On small matrices more threads wait for each other, the more so on a busy machine."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


def test_all_tuners_begin_alike_and_resume(tmp_path):
    """Until the tuner starts, a run is the run without it; what is in the file is not run again."""
    figure3, results = Figure3(["digits"], 1, 3), Results(tmp_path)
    path = results.path("figure3", ["digits"])
    records = run_experiment(figure3, results)
    assert [record["tuner"] for record in records] == list(ONLINE)
    assert len({record["curves"]["validation_loss"][0] for record in records}) == 1
    for found in records:  # all that every record of an experiment has, and weights that are allowed
        assert set(found) >= FIELDS
        assert found["weights"]["logloss"] == 1
        assert len(found["weights"]) == 101
    before = path.read_text()
    assert run_experiment(figure3, results) == records
    assert path.read_text() == before
    assert figure3.tables(records)[0].rows[0][-1] == ""
    figure3.figure(records).savefig(tmp_path / "a.png")
    tuned = [
        record(tuner, 0, run, 1 - run, loss, experiment="table1", dataset="digits")
        for tuner, losses in (("random", (9.0, 0.5)), ("tunereg", (0.1, 0.75)))
        for run, loss in enumerate(losses)
    ]
    with writing(results.path("table1", ["digits"])) as append:
        append(tuned)
    both = run_experiment(figure3, results)
    assert both == records + tuned
    (table,) = figure3.tables(both)
    assert all(len(row) == len(table.header) for row in table.rows)
    assert all(row[-1].endswith("(random search)") for row in table.rows)
    assert float(table.rows[0][-1].split()[0]) == pytest.approx(records[0]["test_loss"] - 0.5, abs=1e-3)
