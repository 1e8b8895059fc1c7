"""The example of auxiliary tasks, small: its data, the methods of the field, what it finds and what it writes."""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

torch = pytest.importorskip("torch")
pytest.importorskip("torchjd")

SEED, EPOCHS = 0, 3


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    """A small run on digits, whatever TUNELOSS_DATA is."""
    folder = tmp_path_factory.mktemp("auxiliary_tasks")
    example.main(["--data", "", "--out", str(folder), "--epochs", str(EPOCHS)])
    return folder


@pytest.fixture(scope="module")
def methods(example):
    return importlib.import_module("task_methods")


@pytest.fixture(scope="module")
def options(example):
    return importlib.import_module("task_options")


@pytest.fixture(scope="module")
def tables(example):
    return importlib.import_module("task_tables")


@pytest.fixture
def problem(example):
    return example.draw("digits", None, SEED, 4)


@pytest.fixture
def make(problem):
    """A method by its class and options, and the first batch."""

    def maker(kind, **options):
        optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.0)
        return kind(problem, optimizer, SEED, **options), next(iter(problem.train))

    return maker


def flat_gradient(params):
    return torch.cat([p.grad.flatten() for p in params])


def test_the_main_task_has_few_labels_and_the_others_many(problem):
    """Five labels per class; 600 rows for the other tasks; 300 for validation; no row of them in the test set."""
    assert torch.bincount(problem.train.main[1]).tolist() == [5] * 10
    assert [len(problem.train.x), len(problem.validation[1]), len(problem.test[1])] == [600, 300, 897]
    other = {tuple(row) for row in torch.cat([problem.train.x, problem.validation[0]]).tolist()}
    assert other.isdisjoint(tuple(row) for row in problem.test[0].tolist())


def test_tasks_are_what_their_names_say(problem):
    """Groupings follow from the class; "random" has all classes; a linear function of the inputs gives all "signs"."""
    (x, y), labels = problem.train.main, problem.train.labels
    place = [int((problem.train.x == row).all(dim=1).nonzero()[0]) for row in x]
    assert torch.equal(labels["coarse"][place], (y > 4).long())
    assert torch.equal(labels["odd"][place], y % 2)
    assert len(labels["random"].unique()) == 10
    assert labels["signs"].shape == (600, 4)
    assert 0 < labels["signs"].mean(dim=0).min() < labels["signs"].mean(dim=0).max() < 1
    for signs in labels["signs"].T.numpy():
        separating = LogisticRegression(C=1e6, max_iter=5000).fit(problem.train.x.numpy(), signs)
        assert separating.score(problem.train.x.numpy(), signs) == 1.0


def test_joining_by_the_sum_is_equal_weights(methods, make, problem):
    equal, batch = make(methods.Method)
    equal.backward(batch)
    expected = flat_gradient(problem.model.parameters())
    problem.model.zero_grad()
    joined, _ = make(methods.Joined, join=lambda gradients: gradients.sum(dim=0))
    joined.backward(batch)
    assert flat_gradient(problem.model.parameters()) == pytest.approx(expected, abs=1e-6)


def test_a_gate_drops_exactly_the_tasks_that_oppose_the_main_task(methods):
    """Of (1, 0), (2, 1), (-1, 3) the last has a negative cosine with the first; the weighted form scales by cosines."""
    gradients = torch.tensor([[1.0, 0.0], [2.0, 1.0], [-1.0, 3.0]])
    assert methods.gated(gradients).tolist() == [3.0, 1.0]
    cosine = 2 / math.sqrt(5)
    assert methods.by_cosine(gradients).tolist() == pytest.approx([1 + 2 * cosine, cosine])


def test_torchjd_never_opposes_a_task(methods):
    """What UPGrad and MGDA join has no negative inner product with any task's gradient."""
    gradients = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    for name in ("UPGrad", "MGDA"):
        assert (gradients @ methods.torchjd(name)(gradients)).min() > -1e-3


def test_uncertainty_has_the_gradient_of_its_formula(example, methods, make):
    """At s = 0 the derivative by s is 1/2 minus the loss, or minus half of it for regression."""
    method, batch = make(methods.Uncertainty, rate=0.01)
    losses = method.losses(batch).detach()
    method.backward(batch)
    factors = torch.tensor([0.5 if name == "denoise" else 1.0 for name in example.NAMES])
    assert method.s.grad == pytest.approx(0.5 - factors * losses, abs=1e-5)


def test_gradnorm_makes_the_norms_of_gradients_equal(example, methods, make, problem):
    """With alpha 0 and a model that stands still, all weighted gradients of the last shared layer get one norm."""
    method, batch = make(methods.GradNorm, alpha=0.0, rate=0.02)
    for _ in range(150):
        method.backward(batch)
    shared = problem.model.trunk[2].weight
    norms = [torch.autograd.grad(loss, shared, retain_graph=True)[0].norm() for loss in method.losses(batch)]
    weighted = method.w * torch.stack(norms)
    assert weighted.max() < 1.2 * weighted.min()
    assert method.w.sum() == pytest.approx(len(example.NAMES))


def test_loss_ratios_favour_the_task_that_stands_still(methods, make):
    """The second of two means is half the first for all tasks but one: this one gets the largest weight."""
    method, _ = make(methods.LossRatios, temperature=1.0)
    for factor in (1.0, 0.5):
        method.now = [torch.full((6,), factor)]
        method.now[0][3] = 1.0
        method.after_epoch()
    ratio = math.exp(0.5)
    assert method.w == pytest.approx(6 * torch.tensor([1, 1, 1, ratio, 1, 1]) / (5 + ratio))


def test_hypergradients_are_the_derivative_of_the_error_after_a_step(example, methods, make, problem):
    """Against differences: a small step of gradient descent with the logarithm of one weight changed a little."""
    method, batch = make(methods.Hypergradient, rate=0.0, every=1)
    method.backward(batch)
    method.after_step(1)
    start, step, change = [p.detach().clone() for p in problem.model.parameters()], 1e-3, 0.1
    x, y = problem.validation

    def error_after(log_change, task):
        w = torch.ones(6)
        w[1 + task] = math.exp(log_change)
        gradients = torch.autograd.grad(w @ method.losses(batch), list(problem.model.parameters()))
        with torch.no_grad():
            for p, gradient in zip(problem.model.parameters(), gradients, strict=True):
                p -= step * gradient
            error = float(example.main_loss(problem.model.double(), (x.double(), y)))
            problem.model.float()
            for p, value in zip(problem.model.parameters(), start, strict=True):
                p.copy_(value)
        return error

    for task in range(5):
        slope = (error_after(change, task) - error_after(-change, task)) / (2 * change * step)
        assert slope == pytest.approx(float(method.log.grad[task]), rel=0.05, abs=2e-3)


def test_every_method_has_its_runs(options, records):
    """One record per method, and two of random runs; each with finite losses."""
    found = [r["method"] for r in records]
    fixed = [f"main + {task}" for task in ("coarse", "odd", "denoise", "random", "signs")]
    expected = dict.fromkeys([*options.METHODS, *fixed], 1) | {options.RANDOM: 2}
    assert {method: found.count(method) for method in found} == expected
    assert np.isfinite([r["test_loss"] for r in records]).all()


def test_learned_weights_stay_in_the_box(example, options, records):
    """The main task keeps 1; the others stay between 0 and 10, and do not keep their first weight."""
    for r in records:
        if r["method"] in options.OURS:
            course = np.array([r["course"][name] for name in example.NAMES])
            assert course.shape == (6, EPOCHS)
            assert (course[0] == 1).all()
            assert 0 <= course[1:].min() <= course[1:].max() <= 10
            assert np.abs(course[1:] - 1).max(axis=1).min() > 0


def test_learning_curves_come_from_the_tuner(options, records):
    """One value per task and observation; the losses of the main task and of denoising fall."""
    for r in records:
        if r["method"] in options.OURS:
            assert {len(curve) for curve in r["task_losses"].values()} == {len(r["steps"])}
            assert all(r["task_losses"][name][-1] < r["task_losses"][name][0] for name in ("main", "denoise"))


def test_the_random_run_is_chosen_by_validation(options, tables, records):
    runs = [r for r in records if r["method"] == options.RANDOM]
    chosen = tables.by_seed(records, "digits", options.RANDOM)[0]
    assert chosen["validation_loss"] == min(r["validation_loss"] for r in runs)
    assert chosen["cpu_seconds"] == pytest.approx(sum(r["cpu_seconds"] for r in runs))


def test_what_is_chosen_is_a_candidate_and_other_data_are_reported(options):
    assert all(option in options.CANDIDATES[family] for family, option in options.CHOSEN.items())
    assert set(options.REPORTED).isdisjoint(options.CHOOSING)
    assert {r["data"] for r in options.candidates(1)} == set(options.CHOOSING)


def test_the_chosen_options_are_those_of_least_mean(options, tables):
    """In the table of the committed choosing runs, the bold option has the least mean of its family."""
    path = Path("docs/results/auxiliary_tasks_choice.jsonl")
    rows = tables.choice_table([json.loads(line) for line in path.read_text().splitlines()]).splitlines()[2:]
    means = {}
    for family, option, mean in ([cell.strip() for cell in row.split("|")[1:4]] for row in rows):
        means.setdefault(family, {})[option] = float(mean)
    assert set(means) == set(options.CANDIDATES)
    for family, by_option in means.items():
        assert min(by_option, key=by_option.get) == f"**{options.CHOSEN[family]}**"


def test_it_writes_a_figure_and_tables(options, tables, out, records):
    """The figure is a PNG; the tables have one row per method and one per auxiliary task."""
    assert (out / "images" / "auxiliary_tasks.png").read_bytes().startswith(b"\x89PNG")
    assert len(tables.table(records).splitlines()) == 2 + len(options.METHODS)
    assert len(tables.alone_table(records).splitlines()) == 2 + 5
