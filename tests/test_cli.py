"""The command line, run as a user runs it: in a process of its own."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.paper.records import record


def tuneloss(*arguments, cwd=None, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "tuneloss", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, tuneloss("demo", "--runs", 3, "--repeats", 2, "--epochs", 12, "--out", "report", cwd=folder)


def test_demo_ends_well(demo):
    """Exit code 0, and nothing on stderr but what is meant for people."""
    _, done = demo
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_demo_prints_a_row_for_each_run_and_for_some_epochs(demo):
    """Each row has a number, four weights and two losses: runs 1 to 3, then epochs 1, 2, 5, 10 and the last."""
    _, done = demo
    rows = re.findall(r"^ +(\d+)( +[\d.e-]+){6}$", done.stdout, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3", "1", "2", "5", "10", "12"]


def test_demo_compares_both_halves(demo):
    """The table has a row for each method and two differences; two sentences follow, each with numbers."""
    _, done = demo
    for name in ("3 runs, TuneLoss", "3 runs, random search", "1 run, tuned inside", "1 run, plain"):
        assert re.search(rf"^ +{name} +[\d.]+ ±", done.stdout, flags=re.MULTILINE), done.stdout
    assert (
        len(re.findall(r"^ +difference +-?[\d.]+ ± [\d.]+ +-?[\d.]+ ± [\d.]+ points", done.stdout, flags=re.MULTILINE))
        == 2
    )
    assert re.search(r"^After 3 runs, the loss tuned between runs .*\d", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^The run whose loss is tuned inside .*\d", done.stdout, flags=re.MULTILINE)


def test_demo_writes_its_report_where_it_says(demo):
    """The path that is printed is that of the page."""
    folder, done = demo
    path = re.search(r"Report: (.+)", done.stdout).group(1).strip()
    assert (folder / path).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "report" / "demo.png").exists()


def test_what_needs_no_training_is_quick_too(tmp_path):
    assert "digits" in tuneloss("paper", "table2", "--quick").stdout
    assert "figure1.svg" in tuneloss("paper", "figure1", "--quick", "--out", tmp_path).stdout.replace("\n", "")


def test_a_data_set_named_twice_counts_once(tmp_path):
    options = ["--dataset", "digits", "--dataset", "digits", "--epochs", 2, "--results", tmp_path, "--out", tmp_path]
    assert tuneloss("paper", "figure3", "--quick", *options).returncode == 0
    assert len((tmp_path / "figure3-quick.jsonl").read_text().splitlines()) == 4


def test_results_that_cannot_be_written_are_refused_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    for command in ("table1", "figure3"):
        out = [] if command == "table1" else ["--out", tmp_path]
        done = tuneloss("paper", command, "--quick", "--results", tmp_path / "file", *out)
        assert done.returncode == 1
        assert "must be in a folder that can be written" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "options", "shown"),
    [
        ("table1", ["--repeats", 1, "--runs", 2], "GP-EI-MCMC"),
        ("ablation", ["--runs", 2], "100 epochs"),
        ("figure2", ["--repeats", 1, "--runs", 2], "figure2.svg"),
        ("figure3", ["--epochs", 3], "figure3.svg"),
    ],
)
def test_a_quick_experiment_runs_on_digits_and_does_not_run_again(tmp_path, command, options, shown):
    """The second call finds its records, adds none and prints the same; tuners' runs, with a word about it."""
    out = [] if command in ("table1", "ablation") else ["--out", tmp_path / "out"]
    call = ["paper", command, "--quick", *options, "--results", tmp_path, *out]
    first = tuneloss(*call)
    assert first.returncode == 0, first.stderr
    assert "digits" in first.stdout
    assert shown in " ".join(first.stdout.replace("\n", "").split())
    records = (tmp_path / f"{command}-quick.jsonl").read_text()
    again = tuneloss(*call)
    assert again.stdout == first.stdout
    assert "nothing was run" in again.stderr
    assert (tmp_path / f"{command}-quick.jsonl").read_text() == records


def test_figure_2_shows_what_is_recorded_and_runs_nothing(tmp_path):
    """Without TUNELOSS_DATA too. Incomplete parts are left out, and no record at all is an error in words."""
    options = ["--results", tmp_path, "--out", tmp_path / "out", "--recorded"]
    none = tuneloss("paper", "figure2", *options)
    assert none.returncode == 1
    assert "must have records of these sets, tuners, repeats and runs; found none" in " ".join(none.stderr.split())
    runs = [record(tuner, 0, i, 1 - i / 10, 2.0) for tuner, n in (("random", 3), ("gp", 2)) for i in range(n)]
    lines = "".join(json.dumps({**run, "experiment": "figure2"}) + "\n" for run in runs)
    (tmp_path / "figure2.jsonl").write_text(lines)
    done = tuneloss("paper", "figure2", *options, "--runs", 3)
    assert done.returncode == 0, done.stderr
    assert "random search" in done.stdout
    assert "Optuna GP" not in done.stdout
    assert (tmp_path / "out" / "figure2.svg").is_file()
    assert (tmp_path / "figure2.jsonl").read_text() == lines


def test_table2_gives_the_sizes_of_a_split():
    done = tuneloss("paper", "table2", "--dataset", "digits")
    assert re.search(r"digits +64 +10 +100 +848 +849", done.stdout), done.stdout


def test_a_data_set_that_is_not_there_is_an_error_in_words(tmp_path):
    """Exit code 1, no traceback, and what to set."""
    done = tuneloss("paper", "table1", "--dataset", "no_such", "--results", tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "TUNELOSS_DATA" in done.stderr


def test_figure1_prints_numbers_and_writes_both_pictures(tmp_path):
    """A row for each loss, then a PNG and an SVG."""
    done = tuneloss("paper", "figure1", "--out", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert re.search(r"learned loss +-?[\d.]+ +[\d.]+", done.stdout)
    assert (tmp_path / "figures" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figures" / "figure1.svg").read_text(encoding="utf-8")


def test_version():
    """It is the installed package's."""
    assert tuneloss("--version").stdout.strip() == f"tuneloss {version('tuneloss')}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "--runs", 0),
        ("demo", "--runs", "many"),
        ("demo", "--repeats", 0),
        ("demo", "--seed", -1),
        ("demo", "--jobs", 0),
        ("demo", "--nonsense"),
        ("nonsense",),
        ("paper", "figure7"),
    ],
)
def test_bad_options_are_named_without_a_traceback(arguments):
    """Exit code 2, the culprit in the message."""
    done = tuneloss(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    culprit = next((a for a in arguments[1:] if str(a).startswith("--")), arguments[-1])
    assert culprit in done.stderr


def test_an_output_path_that_is_a_file_is_refused_before_any_work(tmp_path):
    """Exit code 2 at once, rather than after all the training."""
    (tmp_path / "taken").write_text("")
    done = tuneloss("demo", "--out", tmp_path / "taken")
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr


LINES = [
    {"error": 3.0, "features": {"l2": 1.0, "fit": 1.0}, "gram": [[5, 3, 13], [3, 2, 8], [13, 8, 34]],
     "weights": {"l2": 1, "fit": 1}},
    {"weights": {"l2": 9.0, "fit": 1}, "failed": "diverged"},
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """A box, and observations of a model whose error is 2 l2 + fit."""
    (tmp_path / "box.toml").write_text("l2 = [0.1, 10]\nfit = 1.0\n")
    (tmp_path / "seen.jsonl").write_text("\n".join(map(json.dumps, LINES)) + "\n\n")
    return tmp_path


def test_learn_prints_the_next_weights(files):
    """As LossTuner would ask: first the middle of the box, then what was learned."""
    done = tuneloss("learn", "seen.jsonl", "--box", "box.toml", cwd=files)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["weights"] == pytest.approx({"l2": 2.0, "fit": 1.0}, rel=1e-6)
    assert answer["n_runs"] == 2
    assert answer["learned"]["objective"] == answer["form"] == "paper"  # the third run's
    assert answer["best"] == {"error": 3.0, "weights": {"l2": 1.0, "fit": 1.0}}
    begun = tuneloss("learn", "-", "--box", "box.toml", cwd=files, stdin="")
    assert json.loads(begun.stdout)["weights"] == pytest.approx({"l2": 1.0, "fit": 1.0})
    piped = tuneloss("learn", "-", "--box", "box.toml", cwd=files, stdin=(files / "seen.jsonl").read_text())
    assert json.loads(piped.stdout) == answer
    one = tuneloss("learn", "seen.jsonl", "--box", "box.toml", "--objective", "calibrated", cwd=files)
    assert json.loads(one.stdout)["learned"]["objective"] == "calibrated"


def test_learn_follows_the_form_that_led_to_the_best_model(files):
    """Told by the line of that model; else the calibrated form leads. On a simplex, only LearnLoss proposes."""
    (files / "box.toml").write_text('simplex = ["l2", "fit"]\n')
    without = [{"error": 3.0, "features": {"l2": 1.0, "fit": 1.0}, "weights": {"l2": 0.5, "fit": 0.5}}]
    without += [{"failed": "diverged", "weights": {"l2": 0.9, "fit": 0.1}}]
    best = without[0] | {"error": 2.0, "weights": {"l2": 0.75, "fit": 0.25}}
    forms = []
    for line in (best | {"form": "paper"}, best, best | {"form": "best"}):
        text = "\n".join(map(json.dumps, [*without, line]))
        forms.append(tuneloss("learn", "-", "--box", "box.toml", cwd=files, stdin=text))
    assert [json.loads(done.stdout)["form"] for done in forms[:2]] == ["paper", "calibrated"]
    assert "Line 3 of -: `form` must be" in forms[2].stderr


def test_learn_takes_features_by_name_in_any_order_where_there_is_no_gram_to_be_read_wrongly(files):
    lines = [{"error": e, "features": {"l2": f, "fit": 1.0}} for e, f in ((3.0, 1.0), (5.0, 2.0))]
    turned = [one | {"features": dict(reversed(one["features"].items()))} for one in lines]
    answers = []
    for given in (lines, turned):
        text = "".join(json.dumps(one) + "\n" for one in given)
        done = tuneloss("learn", "-", "--box", "box.toml", cwd=files, stdin=text)
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
    assert answers[0]["learned"] is not None
    with_gram = json.dumps(turned[0] | {"gram": [[4, 1, 9], [1, 1, 3], [9, 3, 21]]})
    refused = tuneloss("learn", "-", "--box", "box.toml", cwd=files, stdin=with_gram)
    assert refused.returncode == 1
    assert "in the box's order, ['l2', 'fit']; found ['fit', 'l2']" in refused.stderr


def test_learn_takes_files_with_a_mark_of_utf8(files):
    done = tuneloss("learn", "seen.jsonl", "--box", "box.toml", cwd=files)
    for name in ("seen.jsonl", "box.toml"):
        (files / name).write_text((files / name).read_text(), encoding="utf-8-sig")
    marked = tuneloss("learn", "seen.jsonl", "--box", "box.toml", cwd=files)
    assert json.loads(marked.stdout) == json.loads(done.stdout)
    piped = tuneloss("learn", "-", "--box", "box.toml", cwd=files, stdin=(files / "seen.jsonl").read_text("utf-8"))
    assert json.loads(piped.stdout) == json.loads(done.stdout)


def test_learn_on_a_simplex_and_with_other_options(files):
    (files / "simplex.toml").write_text('simplex = ["l2", "fit"]')
    lines = json.dumps({name: value for name, value in LINES[0].items() if name != "weights"})
    done = tuneloss("learn", "-", "--box", "simplex.toml", "--epsilon", "inf", cwd=files, stdin=lines)
    assert json.loads(done.stdout)["weights"] == pytest.approx({"l2": 2 / 3, "fit": 1 / 3}, rel=1e-5)


@pytest.mark.parametrize(
    ("line", "box", "options", "said"),
    [
        ("{", None, [], "Line 1 of - must be JSON"),
        ("[1]", None, [], "Line 1 of - must be"),
        ("[" * 100_000, None, [], "Line 1 of - must be JSON"),
        ('{"error": ' + "1" * 5000 + "}", None, [], "Line 1 of - must be JSON"),
        ('{"error": 1}', None, [], "Line 1 of -: An observation's record must have `error` and `features`"),
        ('{"error": 1, "features": {"a": 1, "fit": 1}}', None, [], "Line 1 of -"),
        ('{"error": NaN, "features": {"l2": 1, "fit": 1}}', None, [], "Line 1 of -"),
        ('{"error": 1, "features": [1, 1], "weights": {"l2": 99, "fit": 1}}', None, [], "Line 1 of -"),
        (
            '{"error": 1e308, "features": [1, 1], "gram": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}',
            None,
            [],
            "Line 1 of -: The squares of features, errors and gradients must not overflow",
        ),
        ("", "", [], "must name the weights"),
        ("", "l2 = ", [], "must be a TOML file"),
        ("", "l2 = " + "[" * 100_000, [], "must be a TOML file"),
        ("", "l2 = " + "1" * 5000, [], "must be a TOML file"),
        ("", "l2 = [0, 1]", [], "must not contain the zero vector"),
        ("", None, ["--epsilon", "many"], "`--epsilon` must be"),
    ],
)
def test_learn_says_what_is_wrong(files, line, box, options, said):
    """Exit code 1, one message, nothing on standard output; with --debug a traceback."""
    if box is not None:
        (files / "box.toml").write_text(box)
    call = ["learn", "-", "--box", "box.toml", *options]
    done = tuneloss(*call, cwd=files, stdin=line)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    if said.startswith("must name"):
        assert "Traceback" in tuneloss("--debug", *call, cwd=files, stdin=line).stderr


def test_learn_needs_files_that_are_there(files):
    for call in (["none.jsonl", "--box", "box.toml"], ["seen.jsonl", "--box", "none.toml"], [".", "--box", "box.toml"]):
        done = tuneloss("learn", *call, cwd=files)
        assert done.returncode == 1
        assert "found that" in done.stderr
