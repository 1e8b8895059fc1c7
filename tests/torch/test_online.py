"""OnlineTuner: schedule, memory, way back, resuming; and that it learns what is there to be learned."""

import copy
import io
import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.torch.reference import Counted, log_loss, make_data, make_net
from tuneloss import learn_loss
from tuneloss.core.learn import Learner
from tuneloss.errors import InvalidInput, JournalError, NotFinite, SolverError
from tuneloss.torch import (
    L1,
    L2,
    ConvexPiecewiseLinear,
    Dropout,
    LinearLoss,
    OnlineTuner,
    UniformLabels,
    observe,
)
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy, Run
from tuneloss.tuning.journal import read_lines
from tuneloss.tuning.run import Header

TRAIN, VALIDATION = make_data(8, 8, seed=1), make_data(40, seed=2)


def make_loss(**more):
    terms = {"fit": log_loss, "smooth": UniformLabels(), "l2": L2()} | more
    return LinearLoss(terms, {"fit": 1.0} | {name: (0.0, 1.0) for name in terms if name != "fit"})


def make_tuner(net=None, loss=None, **options):
    net, loss = net or make_net(), loss or make_loss()
    options = {"start": "now", "error": log_loss, "train": TRAIN, "validation": VALIDATION} | options
    policy, look = (
        kind(**{field.name: options.pop(field.name) for field in fields(kind) if field.name in options})
        for kind in (OnlinePolicy, ObserveOptions)
    )
    return OnlineTuner(net, loss, policy=policy, observe=look, **options)


def epoch(tuner, optimizer):
    for batch in TRAIN:
        optimizer.zero_grad()
        tuner.loss(tuner.model, batch).backward()
        optimizer.step()


def run(tuner, epochs, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(tuner.model.parameters(), lr=0.3)
    learned = []
    for _ in range(epochs):
        epoch(tuner, optimizer)
        learned.append(tuner.step())
    return learned


# --- what it learns


def test_weights_that_make_the_error_are_found_in_one_step():
    """Theorem 4: where error is fit + 0.3 l2 + 0.1 smooth on the training data, those are the weights."""

    def error(model, batch):
        matrices = sum(p.square().sum() for p in model.parameters() if p.ndim > 1)
        return log_loss(model, batch) + 0.3 * matrices + 0.1 * UniformLabels()(model, batch)

    tuner = make_tuner(error=error, validation=TRAIN, damping=0.0)
    learned = tuner.step()
    assert learned.cost < 1e-9
    assert tuner.loss.as_dict() == pytest.approx({"fit": 1.0, "smooth": 0.1, "l2": 0.3}, abs=1e-5)


def test_it_prevents_overfitting():
    """Few examples, many epochs: validation error ends far below that of the plain loss."""
    plain, tuned = make_net(), make_tuner()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
    for _ in range(60):
        for batch in TRAIN:
            optimizer.zero_grad()
            log_loss(plain, batch).backward()
            optimizer.step()
    run(tuned, 60)
    unregularized = log_loss(plain, VALIDATION[0]).item()
    assert tuned.history[-1].error < 0.8 * unregularized


def test_a_term_that_does_not_move_the_model_keeps_its_weight():
    """A loss that is constant here, such as a hinge that holds everywhere."""

    def margin(model, batch):
        return torch.relu(model(batch[0]).abs().amax() - 1e6)

    loss = make_loss(margin=margin)
    loss.set_weights({"margin": 0.7})
    tuner = make_tuner(loss=loss)
    run(tuner, 3)
    assert loss.as_dict()["margin"] == pytest.approx(0.7)
    assert tuner.history[-1].note.startswith("the weights of ['margin'] stay, since their gradients are 0")


def test_each_step_reads_other_batches_and_a_resumed_tuner_the_same():
    """One of many shuffled batches is read; the values of the training terms differ, and repeat after a resume."""
    generator = torch.Generator().manual_seed(0)
    many = DataLoader(TensorDataset(*TRAIN[0]), batch_size=2, shuffle=True, generator=generator)
    assert len(many) > 3

    def values(tuner, steps):
        for _ in range(steps):
            tuner.step()
        return [o.features[0] for o in tuner._learner.observations]

    tuner = make_tuner(train=many, batches=1, window=10)
    first = values(tuner, 2)
    state = tuner.state_dict()
    rest = values(tuner, 2)
    assert len(set(rest)) > 2
    again = make_tuner(train=many, batches=1, window=10)
    again.load_state_dict(state)
    again.model.load_state_dict(tuner.model.state_dict())
    assert values(again, 2) == rest
    assert rest[:2] == first


@pytest.mark.parametrize("constraints", ["all", "window", "none"])
def test_each_step_is_learn_loss_of_what_was_observed(constraints):
    """With the window in the cost, and the constraints of all, of the window, or of none."""
    tuner, seen = make_tuner(window=3, constraints=constraints, damping=0.0, hold_scale=0.0), []
    optimizer = torch.optim.SGD(tuner.model.parameters(), lr=0.3)
    for step in range(6):
        epoch(tuner, optimizer)
        seen.append(observe(tuner.model, tuner.loss, log_loss, TRAIN, VALIDATION, seed=step))
        learned = tuner.step()
        first = max(len(seen) - 3, 0)
        counts = [float(i >= first) for i in range(len(seen))]
        kept = seen[first:] if constraints == "window" else seen
        expected = learn_loss(
            kept,
            tuner.loss.box,
            epsilon=math.inf,
            sample_weight=counts[-len(kept) :],
            offset=True,
            constrained=constraints != "none",
        )
        np.testing.assert_allclose(learned.weights, expected.weights, rtol=1e-9)
        assert learned.argmin == expected.argmin + len(seen) - len(kept)
        np.testing.assert_allclose(tuner.loss.numbers(), learned.weights, rtol=1e-6)


def test_damping_averages_losses_in_units_of_error():
    """weights / scale is a moving average, the first time with the old weights at the new scale."""
    tuner = make_tuner(damping=0.75)
    loss, unit = np.array(tuner.loss.numbers()), None
    for learned in (run(tuner, 1)[0] for _ in range(4)):
        new = np.append(learned.weights, 1.0) / learned.scale
        old = np.append(loss, 1.0) * (new[-1] if unit is None else unit)
        average = 0.75 * old + 0.25 * new
        loss, unit = average[:-1] / average[-1], average[-1]
        np.testing.assert_allclose(tuner.loss.numbers(), loss, rtol=1e-5)


def test_a_step_that_explains_nothing_moves_little(monkeypatch):
    """Its scale shoots up: a hundred times the weights move the loss by about as much as one time."""
    tuner = make_tuner(damping=0.7)
    run(tuner, 3)
    before = np.array(tuner.loss.numbers())

    learn = Learner.learn

    def wild(*args, **kwargs):
        learned = learn(*args, **kwargs)
        return replace(learned, weights=np.array([1.0, 1.0, 1.0]), scale=1e3 / tuner._learner._error_per_loss)

    monkeypatch.setattr(Learner, "learn", wild)
    tuner.step()
    assert np.abs(np.array(tuner.loss.numbers()) - before).max() < 1e-3


def test_what_counts_no_more_keeps_its_values_but_not_its_gram():
    tuner = make_tuner(window=3, constraints="all")
    run(tuner, 6)
    assert [o.gram is None for o in tuner._learner.observations] == [True] * 4 + [False] * 2


# --- schedules


def test_with_start_rise_it_only_observes_until_the_error_rises():
    """App. B; the weights stay at their start until then, and it goes on learning after."""
    offset = [0.0]
    tuner = make_tuner(start="rise", error=lambda model, batch: log_loss(model, batch) + offset[0])
    start = tuner.loss.as_dict()
    assert run(tuner, 2, torch.optim.SGD(tuner.model.parameters(), lr=1e-3)) == [None, None]
    assert tuner.loss.as_dict() == start
    assert "observed only" in tuner.history[-1].note
    offset[0] = 1.0
    assert tuner.step() is not None
    offset[0] = 0.0
    assert tuner.step() is not None


def test_every_third_call_observes():
    tuner = make_tuner(every=3)
    found = [tuner.step() is not None for _ in range(7)]
    assert found == [False, False, True, False, False, True, False]
    assert [record.step for record in tuner.history] == [3, 6]


def test_knots_are_placed_by_the_first_step():
    """At quantiles of the weights after the first epoch."""
    term = ConvexPiecewiseLinear(knots=5)
    loss = LinearLoss({"fit": log_loss, "learned": term}, {"fit": 1.0, "learned": (0, math.inf)})
    tuner = make_tuner(loss=loss)
    run(tuner, 1)
    weights = torch.cat([p.detach().flatten() for p in tuner.model.parameters() if p.ndim > 1])
    assert float(term.knots.min()) == pytest.approx(float(weights.min()))
    assert float(term.knots.max()) == pytest.approx(float(weights.max()))
    before = term.knots.clone()
    run(tuner, 1)
    assert torch.equal(term.knots, before)


# --- the best model, and the way back


def test_the_best_model_and_its_weights_come_back():
    offset = [1.0]
    tuner = make_tuner(error=lambda model, batch: log_loss(model, batch) + offset[0])
    run(tuner, 1)
    offset[0] = 0.0
    run(tuner, 1)
    kept = {name: value.clone() for name, value in tuner.model.state_dict().items()}
    trained_with = tuner.best.weights
    offset[0] = 5.0
    run(tuner, 3)
    assert tuner.restore_best().step == tuner.best.step == 2
    assert all(torch.equal(value, kept[name]) for name, value in tuner.model.state_dict().items())
    assert tuner.loss.as_dict() == pytest.approx(trained_with)


def test_tensors_in_the_extra_state_of_a_module_come_back():
    """They are copied when the model is kept, not referred to."""

    class Counting(nn.Linear):
        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    net = Counting(6, 3).double()
    net.seen = torch.zeros(1)
    loss = LinearLoss({"fit": log_loss}, {"fit": 1.0})
    tuner = OnlineTuner(net, loss, log_loss, make_data(8), make_data(8, seed=1))
    tuner.step()
    net.seen += 5
    tuner.restore_best()
    assert net.seen.item() == 0


def test_a_term_with_parameters_comes_back_with_the_best_model():
    """Also after the state of the tuner was loaded elsewhere."""

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3).double()

        def forward(self, model, batch):
            return nn.functional.cross_entropy(self.layer(model(batch[0])), batch[1])

    def make():
        loss = LinearLoss({"fit": log_loss, "head": Head()}, {"fit": 1.0, "head": (0.0, 1.0)})
        return OnlineTuner(make_net(), loss, log_loss, make_data(8), make_data(8, seed=1))

    tuner, other = make(), make()
    tuner.step()
    (head,), (its_copy,) = tuner.loss.modules_of_terms, other.loss.modules_of_terms
    best = head.layer.weight.detach().clone()
    with torch.no_grad():
        head.layer.weight.add_(1.0)
    other.load_state_dict(tuner.state_dict())
    for restored, layer in ((tuner, head.layer), (other, its_copy.layer)):
        assert torch.equal(layer.weight, best + 1.0)
        restored.restore_best()
        assert torch.equal(layer.weight, best)


def test_without_keep_best_an_older_model_is_not_taken_for_the_best():
    """A resumed tuner that no longer keeps the best model forgets the one of the state once it is beaten."""
    offset = [1.0]
    error = lambda model, batch: log_loss(model, batch) + offset[0]  # noqa: E731
    tuner, other = make_tuner(error=error), make_tuner(error=error, keep_best=False)
    run(tuner, 1)
    other.load_state_dict(tuner.state_dict())
    offset[0] = 2.0
    run(other, 1)
    assert other.restore_best().step == 1
    offset[0] = 0.0
    run(other, 1)
    with pytest.raises(InvalidInput, match="needs a model that was kept; found none"):
        other.restore_best()


def test_it_says_once_when_tuning_may_hurt():
    """After `patience` steps in a row well above the best; again only after a new best."""
    offset = [0.0]
    tuner = make_tuner(error=lambda model, batch: log_loss(model, batch) + offset[0], patience=3)
    tuner.step()
    offset[0] = 1.0
    tuner.step()
    tuner.step()
    with pytest.warns(RuntimeWarning, match=r"Tuning may hurt: the error has been more than 5% above its best.*step 1"):
        tuner.step()
    tuner.step()  # warnings are errors: there is no second one


def test_the_metric_decides_which_model_is_best():
    metric = [0.5]
    tuner = make_tuner(metric=lambda model, batch: metric[0])
    run(tuner, 1)
    metric[0] = 0.4
    run(tuner, 1)
    metric[0] = 0.6
    run(tuner, 1)
    assert tuner.best.step == 2
    assert tuner.best.metric == 0.4


# --- resuming, history


def saved(state):
    """Through a file that is read without pickle."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_killed_run_goes_on_to_the_same_weights():
    """Model, optimizer and tuner are restored from files; dropout's draws come from the tuner's seed."""

    def start():
        loss = make_loss(drop=Dropout(0.5), learned=ConvexPiecewiseLinear(knots=4))
        tuner = make_tuner(loss=loss, draws=2)
        return tuner, torch.optim.Adam(tuner.model.parameters(), lr=0.05)

    torch.manual_seed(0)
    tuner, optimizer = start()
    run(tuner, 3, optimizer)
    state = [saved(part.state_dict()) for part in (tuner.model, optimizer, tuner)]
    noise = torch.get_rng_state()
    run(tuner, 3, optimizer)

    other, other_optimizer = start()
    for part, own in zip((other.model, other_optimizer, other), state, strict=True):
        part.load_state_dict(own)
    torch.set_rng_state(noise)
    run(other, 3, other_optimizer)
    assert other.loss.numbers() == tuner.loss.numbers()
    assert [r.error for r in other.history] == [r.error for r in tuner.history]
    assert torch.equal(other._best_model["0.weight"], tuner._best_model["0.weight"])


def test_a_state_of_another_loss_is_refused_and_nothing_changed():
    tuner, other = make_tuner(), make_tuner(loss=make_loss(l1=L1()))
    run(tuner, 2)
    before = tuner.loss.as_dict()
    with pytest.raises(InvalidInput, match=r"tuner whose loss has the weights \['fit', 'smooth', 'l2'\]; found"):
        tuner.load_state_dict(other.state_dict())
    with pytest.raises(InvalidInput, match="must have version 1; found 2"):
        tuner.load_state_dict(tuner.state_dict() | {"version": 2})
    with pytest.raises(InvalidInput, match="An online tuner's state must be as documented"):
        tuner.load_state_dict({"version": 1})
    assert tuner.loss.as_dict() == before
    assert len(tuner.history) == 2


@pytest.mark.parametrize("metric", [None, log_loss])
def test_metrics_are_flat_numbers_of_the_last_step_with_the_same_keys_each_time(metric):
    """None before the first step; with a start of "rise" nothing is learned at first, and the scale is nan."""
    tuner = make_tuner(metric=metric, start="rise", every=2)
    assert tuner.metrics() == {}
    run(tuner, 1)
    assert tuner.metrics() == {}
    scales = []
    for _ in range(40):
        run(tuner, 1)
        metrics, record = tuner.metrics(), tuner.history[-1]
        names = tuner.loss.names
        numbers = [record.error, *([] if metric is None else [record.metric])]
        numbers += [record.weights[name] for name in names] + [record.features[name] for name in names]
        keys = ["error", *([] if metric is None else ["metric"])]
        keys += [f"weight/{name}" for name in names] + [f"term/{name}" for name in names]
        assert list(metrics) == [*keys, "scale", "seconds"]
        assert list(metrics.values())[:-2] == numbers
        assert all(type(number) is float for number in metrics.values())
        assert metrics["seconds"] == record.seconds
        scales.append(metrics["scale"])
        assert metrics["scale"] == record.scale or record.scale is None
    assert math.isnan(scales[0])
    assert scales[-1] > 0


def test_history_as_records_and_as_a_frame():
    tuner = make_tuner()
    run(tuner, 3)
    table = tuner.history_frame()
    assert table["step"].tolist() == [1, 2, 3]
    assert table["error"].tolist() == [record.error for record in tuner.history]
    assert table["weights/l2"].tolist()[1:] != table["learned/l2"].tolist()[:-1]  # damped
    assert {"features/fit", "features/l2", "scale", "cost", "argmin", "note", "seconds"} <= set(table.columns)
    assert (table["seconds"] > 0).all()


# --- what can go wrong


def test_a_failed_step_leaves_everything_as_it_was():
    """NaN in the error: no record, the same weights and model, and knots that are not placed yet."""
    loss = make_loss(learned=ConvexPiecewiseLinear(knots=4))
    bad = [True]
    tuner = make_tuner(
        loss=loss, error=lambda model, batch: log_loss(model, batch) * (math.nan if bad[0] else 1.0), keep_best=True
    )
    before = (loss.as_dict(), {name: value.clone() for name, value in tuner.model.state_dict().items()})
    with pytest.raises(NotFinite, match="'the error' is nan"):
        tuner.step()
    assert tuner.history == []
    assert tuner.best is None
    assert loss.as_dict() == before[0]
    assert all(torch.equal(value, before[1][name]) for name, value in tuner.model.state_dict().items())
    assert not loss.penalties[-1].placed
    bad[0] = False
    assert tuner.step() is not None
    assert tuner.history[0].step == 1


@pytest.mark.parametrize("reason", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_a_best_model_that_cannot_be_copied_leaves_everything_as_it_was(monkeypatch, reason):
    tuner = make_tuner()
    run(tuner, 2)
    state, best, weights = tuner.state_dict(), tuner.best, tuner.loss.as_dict()
    tuner.error = lambda model, batch: 0.1 * log_loss(model, batch)  # better than all before

    def fails(*args, **options):
        raise reason

    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "state_dict", fails)
        with pytest.raises(type(reason)):
            tuner.step()
    assert tuner.best == best
    assert tuner._learner.state_dict() == {name: state[name] for name in tuner._learner.state_dict()}
    assert tuner.loss.as_dict() == weights
    tuner.step()
    assert [record.step for record in tuner.history] == [1, 2, 3]
    assert tuner.restore_best().step == 3


def test_without_a_solution_the_weights_stay_and_a_warning_says_so(monkeypatch):
    def fails(*args, **kwargs):
        raise SolverError("no solver today")

    tuner = make_tuner()
    run(tuner, 1)
    before = tuner.loss.as_dict()
    monkeypatch.setattr(Learner, "learn", fails)
    with pytest.warns(RuntimeWarning, match="weights stay as they are, since no solver today"):
        assert tuner.step() is None
    assert tuner.loss.as_dict() == before
    assert tuner.history[-1].learned is None


def test_weight_decay_beside_l2_is_warned_of():
    net = make_net()
    with pytest.warns(UserWarning, match="weight decay 0.01 beside the L2 term 'l2'.*Set weight_decay=0"):
        make_tuner(net, optimizer=torch.optim.SGD(net.parameters(), lr=1, weight_decay=0.01))
    make_tuner(net, optimizer=torch.optim.SGD(net.parameters(), lr=1))


def test_sgd_is_warned_of_where_weights_make_its_steps_larger():
    """Not where their sum cannot grow much, where the loss is divided by it, or under Adam."""
    net, (batch,) = make_net(), make_data(8)

    def make(optimizer, upper=10.0, normalize=False):
        terms = {"fit": log_loss, "other": log_loss}
        loss = LinearLoss(terms, {"fit": 1.0, "other": (0.0, upper)}, normalize=normalize)
        OnlineTuner(net, loss, log_loss, [batch], [batch], optimizer=optimizer)

    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match=r"sum to 2 now and to at most 11 in the box\. Build the loss with normalize"):
        make(sgd)
    make(sgd, upper=2.0)
    make(sgd, normalize=True)
    make(torch.optim.Adam(net.parameters()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "`every` must be at least 1"),
        ({"batches": 0}, "`batches` must be a number of batches"),
        ({"validation_batches": -0.5}, "`validation_batches` must be a number of batches"),
        ({"validation": iter(VALIDATION)}, "`validation` must be a loader that can be read from its start again"),
        ({"net": nn.Linear(6, 3).requires_grad_(False)}, "must have parameters that are trained"),
        ({"error": nn.CrossEntropyLoss()}, r"`error` must be a callable \(model, batch\)"),
        ({"metric": 0.5}, r"`metric` must be a callable \(model, batch\)"),
        ({"loss": nn.CrossEntropyLoss()}, "`loss` must be a LinearLoss; found a CrossEntropyLoss. The order is"),
    ],
)
def test_options_are_checked_at_once(options, message):
    with pytest.raises(InvalidInput, match=message):
        make_tuner(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": {"window": 3}}, "`policy` must be an OnlinePolicy; found a dict"),
        ({"observe": OnlinePolicy()}, "`observe` must be an ObserveOptions; found a OnlinePolicy"),
    ],
)
def test_policy_and_observe_must_be_of_their_kinds(options, message):
    with pytest.raises(InvalidInput, match=message):
        OnlineTuner(make_net(), make_loss(), log_loss, TRAIN, VALIDATION, **options)


def test_there_is_no_way_back_before_the_first_step():
    with pytest.raises(InvalidInput, match="`restore_best` needs a model that was kept; found none"):
        make_tuner().restore_best()


def test_a_journal_that_cannot_be_written_is_refused_in_words(tmp_path):
    tuner = make_tuner()
    tuner.step()
    with pytest.raises(JournalError, match=r"must be a file that can be written: .*No such file"):
        tuner.write_journal(tmp_path / "missing" / "run.jsonl")
    with pytest.raises(InvalidInput, match=r'`unit` must be "epoch" or "step"; found \'week\''):
        tuner.write_journal(tmp_path / "run.jsonl", unit="week")
    with pytest.raises(InvalidInput, match=r"`compare\['plain'\]` must be finite"):
        tuner.write_journal(tmp_path / "run.jsonl", compare={"plain": math.nan})


def test_a_run_replaces_its_own_journal_and_no_other_file(tmp_path):
    """Each epoch, also after it was resumed; another run and another file are refused, and left as they are."""
    path, tuner, other = tmp_path / "run.jsonl", make_tuner(), make_tuner()
    run(tuner, 1)
    tuner.write_journal(path)
    resumed = make_tuner()
    resumed.load_state_dict(tuner.state_dict())
    run(resumed, 1)
    header, records, _ = read_lines(resumed.write_journal(path, compare={"plain": 0.5}))
    assert len(records) == 2
    assert header["reference"] == {"plain": {"score": 0.5}}
    before = path.read_bytes()
    run(other, 1)
    with pytest.raises(JournalError, match="must be a new file, or one that this run wrote"):
        other.write_journal(path)
    assert path.read_bytes() == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(JournalError, match=r"found .*notes.txt. Name another one"):
        other.write_journal(tmp_path / "notes.txt")


def test_a_journal_holds_how_each_step_set_the_weights(tmp_path):
    """The weights before a step, its answer and the share that it kept make the weights of the next epoch."""
    tuner = make_tuner(window=2, damping=0.4)
    run(tuner, 5)
    first, records, _ = read_lines(tuner.write_journal(tmp_path / "run.jsonl"))
    header, runs = Header.from_dict(first, 5), [Run.from_dict(record) for record in records]
    assert header.policy == tuner.policy
    assert header.unit == "epoch"
    assert header.final == tuner.loss.as_dict()
    assert [run.step.n_counted for run in runs] == [1, 2, 2, 2, 2]
    after = [run.weights for run in runs[1:]] + [header.final]
    for one, weights in zip(runs, after, strict=True):
        assert one.step.next_weights(one.weights) == pytest.approx(weights, rel=1e-5, abs=1e-7)
        assert one.step.learned == pytest.approx(tuner.history[one.run].learned)
    last = runs[-1]
    gram, weights = last.observation.gram, header.box.as_array(header.final)
    cosine = weights @ gram[:-1, -1] / math.sqrt(weights @ gram[:-1, :-1] @ weights * gram[-1, -1])
    assert last.step.cosine_after == pytest.approx(cosine, rel=1e-5)


@pytest.mark.parametrize(("every", "unit", "called"), [(1, None, "epoch"), (2, None, "step"), (2, "epoch", "epoch")])
def test_calls_are_named_epochs_or_steps(tmp_path, every, unit, called):
    tuner = make_tuner(every=every)
    run(tuner, 2)
    header, *_ = read_lines(tuner.write_journal(tmp_path / "run.jsonl", unit=unit))
    assert header["unit"] == called


# --- what decides which model is best, and weights that are held


def test_selection_decides_which_model_is_best():
    """The best step is that of least error on other examples; `validation` alone sets the weights."""
    other = make_data(30, seed=7)
    net = make_net()
    tuner, plain = (make_tuner(net=copy.deepcopy(net), selection=s, damping=0.0) for s in (other, None))
    for each in (tuner, plain):
        run(each, 5)
    scores = [record.metric for record in tuner.history]
    assert tuner.best.step == tuner.history[int(np.argmin(scores))].step
    assert [r.weights for r in tuner.history] == [r.weights for r in plain.history]
    tuner.restore_best()
    assert tuner.best.metric == pytest.approx(log_loss(tuner.model, other[0]).item(), rel=1e-6)


def test_hold_fixes_the_mean_of_the_last_learned_weights():
    tuner = make_tuner()
    run(tuner, 4)
    learned = [record.learned for record in tuner.history]
    held = tuner.hold(last=2)
    for name, weight in held.items():
        assert weight == pytest.approx(np.mean([w[name] for w in learned[-2:]]), rel=1e-6)
    assert run(tuner, 2) == [None, None]
    assert tuner.loss.as_dict() == held
    other = make_tuner()
    other.load_state_dict(tuner.state_dict())
    assert other.step() is None


def test_hold_needs_weights_that_were_learned():
    with pytest.raises(InvalidInput, match="`hold` needs a step that learned weights; found none"):
        make_tuner().hold()


def test_within_an_epoch_no_more_batches_are_read_than_were_trained_on(monkeypatch):
    """With `every`, "auto" reads at most that many; a number of batches that was asked for stays."""
    asked = []  # with `cost`, at most the four parts by which noise is measured

    def observe_nothing(options, *rest):
        asked.append(options.batches)
        raise RuntimeError

    monkeypatch.setattr("tuneloss.torch.online.observe_with", observe_nothing)
    many = make_data(*[4] * 80, seed=1)
    for batches, every in (("auto", 1), ("auto", 3), ("auto", 1000), (7, 3)):
        tuner = make_tuner(train=many, batches=batches, every=every)
        tuner._calls = every - 1
        with pytest.raises(RuntimeError):
            tuner.step()
    with pytest.raises(RuntimeError):
        make_tuner(train=many, cost=0.1).step()
    assert asked == ["auto", 3, 10, 7, 4]


# --- what an attack found


def test_a_wrong_call_of_hold_holds_nothing():
    tuner = make_tuner()
    tuner.step()
    with pytest.raises(InvalidInput, match="`last` must be at least 1; found 0"):
        tuner.hold(0)
    assert tuner.step() is not None


def test_a_state_without_a_metric_is_refused_by_a_tuner_with_a_selection():
    """Scores on two sets of examples cannot be compared, and LearnLoss would refuse every later step."""
    plain, selecting = make_tuner(), make_tuner(selection=VALIDATION)
    plain.step()
    with pytest.raises(InvalidInput, match=r"must agree on whether a `metric` or a `selection` decides"):
        selecting.load_state_dict(plain.state_dict())
    selecting.step()
    with pytest.raises(InvalidInput, match="the tuner has none, the state has one"):
        plain.load_state_dict(selecting.state_dict())


def test_weights_that_low_precision_rounds_out_of_the_box_do_not_stop_a_step():
    box = {"fit": 0.3, "smooth": (0.1, 0.1003), "l2": (0.0033, 0.0034)}
    terms = {"fit": log_loss, "smooth": UniformLabels(), "l2": L2()}
    tuner = make_tuner(loss=LinearLoss(terms, box).bfloat16())
    assert tuner.step() is not None
    assert len(tuner.history) == 1


def test_negative_errors_that_hardly_rise_bring_no_warning():
    """Warnings are errors here; the error is below 0, so that a factor above 1 would lower the limit."""
    offset = [-10.0]
    tuner = make_tuner(error=lambda model, batch: log_loss(model, batch) + offset[0], patience=2)
    for _ in range(6):
        tuner.step()  # the model does not change
        offset[0] += 1e-3
    assert tuner.best.step == 1


# --- at a share of the cost of training


class Work:
    """Counts rows: one for a forward, two for each backward, through the first layer of a net."""

    def __init__(self, net):
        self.rows = 0
        net[0].register_forward_hook(self.forward)

    def forward(self, module, args, output):
        self.rows += len(output)
        if output.requires_grad:
            output.register_hook(self.backward)

    def backward(self, gradient):
        self.rows += 2 * len(gradient)


@pytest.mark.parametrize("cost", [0.2, 1.0])
def test_observations_take_the_given_part_of_the_work_of_training(cost):
    """Counted by hooks, over whole periods; three terms need two forwards."""
    torch.manual_seed(0)
    net = make_net()
    work, train = Work(net), make_data(*[8] * 20, seed=1)
    loss = make_loss(drop=Dropout())
    loss.set_weights({"drop": 0.5, "smooth": 0.1})
    tuner = make_tuner(net, loss, train=train, cost=cost, every=1, damping=1 - 1e-9)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    observing, training, periods = 0, 0, 0
    for call in range(500):
        before = work.rows
        optimizer.zero_grad()
        loss(net, train[call % len(train)]).backward()
        optimizer.step()
        trained = work.rows - before
        tuner.step()
        if len(tuner.history) > 1 and (periods := len(tuner.history)) < 8:
            training += trained
            observing += work.rows - before - trained
    assert periods >= 8
    assert observing / training == pytest.approx(cost, rel=0.15)


def test_what_fits_into_memory_is_measured_once():
    """The first step tries a few examples, of the error and of the terms; later ones know, of batches of one shape."""
    net, taken, train = Counted(make_net()), [], make_data(*[8] * 8, seed=1)
    tuner = make_tuner(net, train=train, validation=make_data(*[8] * 4, seed=2))
    for n in (8, 8, 8, 4):
        train[:] = make_data(*[n] * 8, seed=1)
        before = net.forwards
        tuner.step()
        taken.append(net.forwards - before)
    assert taken == [taken[1] + 2, taken[1], taken[1], taken[1] + 1]


def test_a_resumed_run_observes_at_the_same_calls():
    def observed_at(resume):
        torch.manual_seed(0)
        net = make_net()
        tuner = make_tuner(net, cost=0.5)
        for call in range(30):
            if resume and call == 13:
                state, tuner = tuner.state_dict(), make_tuner(net, cost=0.5)
                tuner.load_state_dict(state)
            tuner.step()
        return [record.step for record in tuner.history]

    assert observed_at(resume=True) == observed_at(resume=False)
    assert len(observed_at(resume=False)) > 1


def test_a_state_without_the_next_call_is_read():
    """Earlier versions observed at multiples of `every`."""
    tuner = make_tuner(every=4)
    for _ in range(6):
        tuner.step()
    state = tuner.state_dict()
    assert state.pop("due") == 8
    other = make_tuner(every=4)
    other.load_state_dict(state)
    assert [other.step() is None for _ in range(3)] == [True, False, True]


@pytest.mark.parametrize("options", [{"cost": 0}, {"cost": -1.0}, {"cost": 1e-320}, {"cost": 0.1, "every": 2}])
def test_a_cost_that_makes_no_sense_is_refused(options):
    with pytest.raises(InvalidInput, match="`cost` must be at least 1e-06, and `every` left at 1; found cost="):
        make_tuner(**options)


def test_the_examples_of_a_metric_and_of_a_selection_count_as_work():
    def next_call(**options):
        tuner = make_tuner(cost=0.5, **options)
        tuner.step()
        return tuner._due

    larger = make_data(400, seed=3)
    alone, with_metric = next_call(), next_call(metric=log_loss)
    assert next_call(selection=larger) > next_call(selection=VALIDATION) > alone
    assert with_metric > alone
