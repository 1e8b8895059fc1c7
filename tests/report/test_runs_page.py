"""The page about a tuner's runs: its numbers, its words, and how a browser shows it."""

import math
import re
import shutil
import subprocess

import numpy as np
import pytest

from tuneloss import Box, LossTuner, Observation, learn_loss
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.report.charts import chart_figure
from tuneloss.report.findings import findings
from tuneloss.report.learned_info import alignment, bounds_met, predictions, similar_terms, tied_models
from tuneloss.report.run_charts import progress_charts, weight_charts
from tuneloss.report.runs_info import contributions, read_runs, regularizer, runs_info
from tuneloss.report.runs_page import runs_page, write_runs_report
from tuneloss.report.words import score_column, term_words, weight_text
from tuneloss.tuning import OnlinePolicy
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.run import Header, Run

BOX = Box.from_dict({"l2": (0.01, 1000.0), "smooth": (0.0, 1000.0), "fit": 1.0})


def train(weights, seed=0):
    """Ridge regression with a smoothness penalty, as in the README."""
    rng = np.random.default_rng(seed)
    x, x_val = rng.normal(size=(60, 40)), rng.normal(size=(60, 40))
    y, y_val = (data @ np.sin(np.arange(40) / 6) + 3 * rng.normal(size=60) for data in (x, x_val))
    D = np.diff(np.eye(40), axis=0)
    params = np.linalg.solve(x.T @ x + weights["l2"] * np.eye(40) + weights["smooth"] * D.T @ D, x.T @ y)
    fit, jump, miss = x @ params - y, D @ params, x_val @ params - y_val
    features = {"l2": params @ params, "smooth": jump @ jump, "fit": fit @ fit}
    jacobian = 2 * np.column_stack([params, D.T @ jump, x.T @ fit])
    return Observation.from_gradients(miss @ miss, features, gradient=2 * x_val.T @ miss, jacobian=jacobian)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """Six runs, one of which failed, with a test error each."""
    path = tmp_path_factory.mktemp("runs") / "ridge.jsonl"
    tuner = LossTuner(BOX, objective="calibrated", journal=path)
    for i in range(6):
        weights = tuner.ask()
        if i == 3:
            tuner.tell(weights, failed="diverged <script>")
        else:
            tuner.tell(weights, train(weights), info={"test error": train(weights, seed=1).error})
    return path


@pytest.fixture(scope="module")
def info(journal):
    return read_runs(journal)


def test_what_the_page_says_is_what_learn_loss_and_the_journal_say(info, journal):
    tuner = LossTuner(BOX, objective="calibrated", journal=journal)
    tuner.ask()
    np.testing.assert_allclose(info.learned.weights, tuner.learned.weights)
    assert info.best.weights == tuner.best.weights
    page = runs_page(info)
    scores = [run.observation.error for run in tuner.history if run.observation is not None]
    text, first = score_column([tuner.best.observation.error, scores[0]])
    assert f'<p class="verdict">{text} against {first} of the first run: ' in page
    assert "From 5 models, LearnLoss learns a loss" in page
    assert "1 of 6 runs failed." in page
    for name, weight in info.learned.as_dict().items():
        assert re.search(rf"<td>{term_words(name)}</td>.*<td>{weight_text(weight)}</td>", page)


def test_reading_does_not_change_the_journal(journal):
    before = journal.read_bytes()
    read_runs(journal)
    assert journal.read_bytes() == before
    assert sorted(path.name for path in journal.parent.iterdir()) == ["ridge.jsonl"]


def test_predictions_contributions_and_alignment_are_those_of_the_definitions(info):
    o = info.observations[0]
    weights = info.learned.weights
    assert predictions(info).predicted[0] == pytest.approx(weights @ o.features / info.learned.scale)
    parts = contributions(info)
    assert sum(parts.values()) == pytest.approx(BOX.as_array(info.best.weights) @ info.best.observation.features)
    exact = Observation.from_gradients(1.0, [1.0, 2.0], gradient=[3.0, 4.0], jacobian=[[3.0, 0.0], [4.0, 0.0]])
    assert alignment([exact], np.array([1.0, 5.0]))[0] == pytest.approx(1)
    assert alignment([exact], np.array([-1.0, 0.0]))[0] == pytest.approx(-1)
    assert math.isnan(alignment([Observation(1.0, [1.0])], np.ones(1))[0])


def test_a_loss_that_is_the_error_explains_all_of_it():
    rng = np.random.default_rng(0)
    box = Box.from_dict({"a": (0.0, 10.0), "b": 1.0})
    tuner = LossTuner(box)
    for _ in range(5):
        features = rng.random(2)
        tuner.tell({"a": 1.0, "b": 1.0}, Observation(2 * (3 * features[0] + features[1]), features))
    assert predictions(runs_info(Header(box, "exact"), tuner.history)).explained == pytest.approx(1)


def test_bounds_and_rivals_and_terms_alike_are_found():
    box = Box.from_dict({"a": (0.0, 2.0), "b": (0.5, 1.0), "c": 1.0})
    assert bounds_met(np.array([0.0, 1.0, 1.0]), box) == {"a": "lower", "b": "upper"}
    assert bounds_met(np.array([1.0, 0.7, 1.0]), box) == {}
    assert bounds_met(np.array([0.0, 1.0]), Box.simplex(["x", "y"])) == {"x": "lower"}
    jacobian = [[1.0, 2.0, 0.0], [1.0, 2.0, 1.0], [0.0, 0.0, 5.0]]
    same = Observation.from_gradients(1.0, [1.0, 2.0, 3.0], gradient=[1.0, 0.0, 1.0], jacobian=jacobian)
    ((one, other, cosine),) = similar_terms([same], box)
    assert (one, other) == ("a", "b")
    assert cosine == pytest.approx(1)
    tied = runs_info(Header(box, "tied"), _told(box, [same, same]))
    assert tied_models(tied.observations, tied.learned) == [0]


def _told(box, observations, weights=None):
    tuner = LossTuner(box)
    for o in observations:
        tuner.tell(weights or {"a": 1.0, "b": 0.7, "c": 1.0}, o)
    return tuner.history


def test_findings_are_said_in_words_with_the_number(info):
    found = {one.kind: one for one in findings(info)}
    assert found["failed runs"].statement == "1 of 6 runs failed. The last one failed because: diverged <script>."
    assert found["weight at its bound"].statement == "A weight is at its bound: L2 (lower, 0.01)."
    box = Box.from_dict({"a": (0.0, 2.0), "b": (0.5, 1.0), "c": 1.0})
    few = findings(runs_info(Header(box, "few"), _told(box, [Observation(1.0, [1.0, 2.0, 3.0])])))
    assert "1 model without gradients cannot determine 2 weights" in few[0].statement
    noise = [Observation(e, [1.0, 1.0 + 1e-3 * e, 1.0]) for e in (1.0, 5.0, 2.0, 9.0)]
    assert any(one.kind == "poor fit" for one in findings(runs_info(Header(box, "noise"), _told(box, noise))))
    opposite = [Observation(e, [1.0, 1.0, 1000.0 - e], metric=e) for e in (1.0, 500.0, 999.0)]
    kinds = {one.kind for one in findings(runs_info(Header(box, "opposite"), _told(box, opposite)))}
    assert kinds & {"scale near 0", "poor fit"}


def test_text_of_users_is_escaped(info):
    page = runs_page(info)
    assert "<script" not in page
    assert "diverged &lt;script&gt;" in page


def test_a_journal_without_any_observation_has_a_page_too(tmp_path):
    tuner = LossTuner(BOX, journal=tmp_path / "failed.jsonl")
    tuner.tell(tuner.ask(), failed="out of memory")
    page = runs_page(read_runs(tmp_path / "failed.jsonl"))
    assert "No result yet: none of 1 run has both weights and an observation." in page
    assert "is marked" not in page
    assert "<td>l2</td>" not in page
    assert "out of memory" in page


def test_one_run_has_a_page_too():
    """In the singular, and with ticks at whole runs."""
    weights = {"l2": 1.0, "smooth": 1.0, "fit": 1.0}
    info = runs_info(Header(BOX, "one"), [Run(0, weights, train(weights))])
    assert "LearnLoss has one model to learn from: run 1, of validation error" in runs_page(info)
    assert weight_charts(info) == ([], ["l2", "smooth"])  # nothing has changed yet
    (chart,) = progress_charts(info)
    assert re.findall(r'<text class="at-mid" [^>]*>(\S+)</text>', chart_figure(chart)) == ["1"]


def test_files_that_are_no_journals_are_refused(tmp_path, journal):
    with pytest.raises(JournalError, match="must be a file that can be read"):
        read_runs(tmp_path / "missing.jsonl")
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(JournalError, match="line 1 is not"):
        read_runs(tmp_path / "text.jsonl")
    LossTuner(BOX, journal=tmp_path / "empty.jsonl")
    with pytest.raises(InvalidInput, match="at least one run"):
        read_runs(tmp_path / "empty.jsonl")


def test_a_hundred_weights_still_make_a_page_of_some_size(tmp_path):
    """The largest parts of the loss are shown, and it says how many are not."""
    rng = np.random.default_rng(0)
    box = Box.from_dict({**{f"w{j}": (0.0, 1.0) for j in range(100)}, "logloss": 1.0})
    tuner = LossTuner(box, journal=tmp_path / "many.jsonl")
    for _ in range(3):
        jacobian = rng.normal(size=(200, 101))
        o = Observation.from_gradients(rng.random() + 1, rng.random(101), rng.normal(size=200), jacobian)
        tuner.tell(tuner.ask(), o)
    page = runs_page(read_runs(tmp_path / "many.jsonl"))
    assert "88 more weights are not shown" in page
    assert len(page) < 1_000_000


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """<script>addEventListener("load", () => {
  const drawn = [...document.querySelectorAll("figure svg")].filter(
    s => s.getBoundingClientRect().height > 100 && s.querySelectorAll("path, circle").length > 5);
  const wide = document.documentElement.scrollWidth > innerWidth + 1;
  const table = document.querySelector(".scroll");
  const cut = table.scrollWidth > table.clientWidth;
  const ground = getComputedStyle(document.body).backgroundColor;
  document.body.dataset.probe = JSON.stringify([drawn.length, wide, cut, ground]);
})</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_a_browser_draws_every_figure_without_complaint(info, tmp_path, width, dark):
    """In light and dark, wide and as narrow as a phone: no message on the console, and nothing wider than the page.

    Nor are the learned weights cut off.
    """
    page = write_runs_report(info, tmp_path / "report.html")
    text = page.read_text()
    page.write_text(text.replace("</body>", PROBE + "</body>"))
    scheme = "--blink-settings=preferredColorScheme=0" if dark else "--blink-settings=preferredColorScheme=1"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", scheme]
    command += [f"--window-size={width},900", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in shown.stderr
    probe = r'data-probe="\[(\d+),(\w+),(\w+),&quot;(.*?)&quot;\]"'
    drawn, wide, cut, ground = re.search(probe, shown.stdout).groups()
    assert int(drawn) == text.count("<figure>") >= 5
    assert wide == cut == "false"
    assert ground == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_hinges_are_spoken_of_only_together(tmp_path):
    """Their parts add to their term's, and a weight of 0 of one of them says nothing; only 0 of all of them does."""
    names = ["r/right0", "r/right1", "r/left0", "r/left1"]
    box = Box.from_dict({**dict.fromkeys(names, (0.0, 1.0)), "r/other": (0.0, 1.0), "logloss": 1.0})
    for used in ({"r/left0": 0.5}, {}):
        path = tmp_path / f"{len(used)}.jsonl"
        journal = Journal(path, {"box": box.state_dict(), "knots": {"r": [-1.0, 1.0]}})
        for i, level in enumerate((1.0, 2.0)):
            o = Observation(level, [0.1, 0.2, 0.3, 0.4, 0.5, level])
            weights = {**dict.fromkeys(names, 0.0), "r/other": 0.5, "logloss": 1.0} | used
            journal.append(Run(i, weights, o).to_dict())
        info = read_runs(path)
        part = 0.15 if used else 0.0
        assert contributions(info) == pytest.approx({"r": part, "r/other": 0.25, "logloss": 1.0})
        assert bounds_met(box.as_array(info.used_weights), box).keys() & set(names)
        found = [finding.statement for finding in findings(info)]
        assert not any(name in text for name in names for text in found)
        assert ("The learned regularizer r is 0 everywhere." in found) is (not used)
        assert all(name not in runs_page(info) for name in names)


@pytest.mark.parametrize("knots", [[1.0, -1.0], [0.0, 0.0]])
def test_a_regularizer_whose_knots_do_not_increase_is_not_drawn(tmp_path, knots):
    """A journal may be of anyone: its page is made without the curve."""
    names = ["r/right0", "r/right1", "r/left0", "r/left1"]
    box = Box.from_dict({**dict.fromkeys(names, (0.0, 1.0)), "logloss": 1.0})
    journal = Journal(tmp_path / "runs.jsonl", {"box": box.state_dict(), "knots": {"r": knots}})
    weights = dict.fromkeys(names, 0.5) | {"logloss": 1.0}
    journal.append(Run(0, weights, Observation(1.0, [0.1, 0.2, 0.3, 0.4, 1.0])).to_dict())
    info = read_runs(tmp_path / "runs.jsonl")
    assert regularizer(info, "r") is None
    assert "learned regularizer r of the best" not in runs_page(info)


def test_an_online_run_has_a_page_with_its_learned_regularizer(tmp_path):
    """The curve is the function that the term itself computes, up to a constant."""
    torch = pytest.importorskip("torch")
    from tuneloss.torch import ConvexPiecewiseLinear, LinearLoss, OnlineTuner

    torch.manual_seed(0)
    x, y = torch.randn(60, 8), torch.randint(0, 3, (60,))
    train, validation = ([(x[i], y[i])] for i in (slice(0, 30), slice(30, 60)))
    model = torch.nn.Linear(8, 3)

    def log_loss(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    learned = ConvexPiecewiseLinear(6)
    loss = LinearLoss({"logloss": log_loss, "r": learned}, box={"logloss": 1.0, "r": (0, math.inf)})
    tuner = OnlineTuner(
        model, loss, error=log_loss, train=train, validation=validation, policy=OnlinePolicy(start="now")
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(12):
        optimizer.zero_grad()
        (loss(model, train[0]) if learned.placed else log_loss(model, train[0])).backward()
        optimizer.step()
        tuner.step()
    path = tuner.write_journal(tmp_path / "online.jsonl")
    info = read_runs(path)
    page = runs_page(info)
    assert "Learned regularizer: r, at the best epoch" in page
    positions, values = regularizer(info, "r")
    hinges = [info.best.weights[f"r/{side}{j}"] for side in ("right", "left") for j in range(6)]
    weights = [torch.tensor([[p]], dtype=torch.float64) for p in positions]
    computed = np.array([float(learned.total({"weight": weight}, hinges)) for weight in weights])
    np.testing.assert_allclose(values - values[0], computed - computed[0], atol=1e-9)
    assert len(info.runs) == 12


def test_what_a_search_learned_is_shown_and_nothing_is_learned_anew(tmp_path):
    """Though its box is narrower than its runs; and what is not the user's to change is not among the findings."""
    box = Box.from_dict({"l2": (1.0, 2.0), "smooth": (0.0, 3.0), "fit": 1.0})
    for said in ({"l2": 1.0, "smooth": 0.0, "fit": 1.0}, None):
        path = tmp_path / f"search-{said is None}.jsonl"
        journal = Journal(
            path, {"box": box.state_dict(), "search": {"weights": said, "scale": 2.0, "note": "a <note>"}}
        )
        for i, l2 in enumerate((50.0, 5.0, 0.5)):
            weights = {"l2": l2, "smooth": 0.0, "fit": 1.0}
            journal.append(Run(i, weights, train(weights)).to_dict())
        info = read_runs(path)
        page = runs_page(info)
        assert info.learned is None
        assert [one.kind for one in findings(info)] == []
        assert "at a bound" not in page
        assert ("Predicted error" in page) == (said is not None)
        if said is None:
            assert predictions(info) is None
            assert "LearnLoss was not used, or found no solution" in page
        else:
            assert "<td>L2</td><td>5</td><td>50</td><td>1</td><td>1 to 2</td>" in page
            assert "the models of run 1, run 2, run 3" in page
            assert "a &lt;note&gt;" in page
            found = predictions(info)
            assert found.predicted.mean() == pytest.approx(found.observed.mean())
            features = np.array([run.observation.features for run in info.runs])
            np.testing.assert_allclose(np.diff(found.predicted), np.diff(features @ [1.0, 0.0, 1.0]) / 2)
            assert found.marked == 1  # the best of the three
    Journal(tmp_path / "wrong.jsonl", {"box": box.state_dict(), "search": {"weights": {}, "scale": 1}}).append(
        Run(0, None, train(weights)).to_dict()
    )
    with pytest.raises(InvalidInput, match=r"The first line of .*'note'"):
        read_runs(tmp_path / "wrong.jsonl")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"knots": {"r": [0.0]}}, "knots of r, but the box does not have weights for all of them"),
        ({"search": {"weights": {"l2": 1.0}, "scale": 1.0, "note": ""}}, "KeyError: 'fit'"),
        ({"chosen": "0"}, "`chosen` must be a whole number; found '0'"),
        ({"chosen": 1}, "chosen is run 1 of 1"),
    ],
)
def test_a_first_line_that_does_not_fit_is_refused_in_words(tmp_path, header, said):
    box = Box.from_dict({"l2": (0.0, 2.0), "fit": 1.0})
    journal = Journal(tmp_path / "a.jsonl", {"box": box.state_dict(), **header})
    journal.append(Run(0, {"l2": 1.0, "fit": 1.0}, Observation(1.0, [1.0, 1.0])).to_dict())
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_runs(tmp_path / "a.jsonl")


def test_a_metric_decides_and_is_named(tmp_path):
    tuner = LossTuner(BOX, journal=tmp_path / "metric.jsonl")
    for error, metric in ((1.0, 0.5), (2.0, 0.1), (0.5, 0.9)):
        weights = tuner.ask()
        o = train(weights)
        tuner.tell(weights, Observation(error, o.features, o.gram, metric=metric, names=o.names))
    page = runs_page(read_runs(tmp_path / "metric.jsonl"))
    assert '<p class="verdict">0.1000 against 0.5000 of the first run: 80% lower' in page
    assert "The numbers are the metric; lower is better. The model is that of run 2, the best of 3 runs." in page
    assert "<b>metric</b>" in page
    assert "<b>validation error</b>" in page


def test_errors_below_zero_and_initial_models(tmp_path):
    box = Box.from_dict({"a": (0.0, 10.0), "b": 1.0})
    tuner = LossTuner(box, journal=tmp_path / "below.jsonl")
    tuner.tell(None, Observation(50.0, [1.0, 1.0]))
    initial = runs_page(read_runs(tmp_path / "below.jsonl"))
    assert "No result yet: none of 1 run has both weights and an observation." in initial
    said, _ = learn_loss([Observation(50.0, [1.0, 1.0])], box).weights
    assert f"<td>a</td><td>{weight_text(said)}</td><td>0 to 10</td>" in initial
    for error in (-1.0, -2.0):
        weights = tuner.ask()
        tuner.tell(weights, Observation(error, [error, 1.0]))
    page = runs_page(read_runs(tmp_path / "below.jsonl"))
    assert '<p class="verdict">-2.000 against -1.000 of the first run: 100% lower.' in page
    assert "<td>initial</td>" in page
    (chart,) = progress_charts(read_runs(tmp_path / "below.jsonl"))
    assert chart.levels == {"first run": -1.0}  # not that of the initial model


def test_models_have_the_numbers_of_the_table(tmp_path):
    """Though LearnLoss looks only at those with gradients; and an initial model, which has no number, is called so."""
    box = Box.from_dict({"a": (0.0, 10.0), "b": 1.0})
    gram = np.eye(3)
    for initial in (False, True):
        path = tmp_path / f"{initial}.jsonl"
        journal = Journal(path, {"box": box.state_dict()})
        for i, (error, own) in enumerate(((9.0, None), (5.0, None), (1.0, gram), (2.0, gram), (1.0, gram))):
            own_weights = None if initial and i == 4 else {"a": 1.0, "b": 1.0}
            run = Run(None if own_weights is None else i, own_weights, Observation(error, [1, 1], own))
            journal.append(run.to_dict())
        page = runs_page(read_runs(path))
        selected = "an initial model" if initial else "run 5"
        assert f"From 3 models, LearnLoss learns a loss that selects {selected}, of validation error 1.000;" in page
        assert "The loss is equally low at run 3, run 4 (the active constraints)." in page


def test_gradients_that_are_zero_make_no_figure_and_no_warning(tmp_path):
    box = Box.from_dict({"a": (0.0, 10.0), "b": 1.0})
    tuner = LossTuner(box, journal=tmp_path / "zero.jsonl")
    tuner.tell(tuner.ask(), Observation(1.0, [1.0, 1.0], np.zeros((3, 3))))
    assert "cosine of nan" not in runs_page(read_runs(tmp_path / "zero.jsonl"))


def test_the_run_that_was_chosen_is_the_one_reported(tmp_path):
    """If the journal names one; and of models trained to the end there is no direction to compare."""
    ended = np.outer([1.0, -0.5, -0.5, 1.0], [1.0, -0.5, -0.5, 1.0])
    weights = {"l2": 1.0, "smooth": 1.0, "fit": 1.0}
    observations = [Observation(e, [1.0, 1.0, 1.0], ended, names=BOX.names) for e in (1.0, 2.0)]
    journal = Journal(tmp_path / "chosen.jsonl", {"box": BOX.state_dict(), "chosen": 1})
    for i, o in enumerate(observations):
        journal.append(Run(i, weights, o).to_dict())
    page = runs_page(read_runs(tmp_path / "chosen.jsonl"))
    assert "No gain: 2.000 against 1.000 of the first run." in page
    assert "The model is that of run 2, the chosen of 2 runs." in page
    assert "The models have converged" in page
    Journal(tmp_path / "wrong.jsonl", {"box": BOX.state_dict(), "chosen": 5}).append(
        Run(0, weights, observations[0]).to_dict()
    )
    with pytest.raises(InvalidInput, match="chosen is run 5 of 1"):
        read_runs(tmp_path / "wrong.jsonl")
