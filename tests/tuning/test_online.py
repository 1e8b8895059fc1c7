"""The online policy and its learner: which checkpoints count, when learning begins, how steps are damped."""

import math

import numpy as np
import pytest

from tuneloss import Box, Observation, learn_loss
from tuneloss.core.learn import Learner
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.tuning import OnlineLearner, OnlinePolicy

BOX = Box.from_dict({"l1": (0.0, 10.0), "l2": (0.0, 10.0), "fit": 1.0})
START = np.array([0.5, 0.5, 1.0])


def checkpoints(n, seed=0):
    """Observations whose error is nearly a loss in the box."""
    rng, models = np.random.default_rng(seed), []
    for _ in range(n):
        jacobian = rng.normal(size=(8, 3))
        gradient = jacobian @ [0.3, 0.2, 1.0] + 0.3 * rng.normal(size=8)
        models.append(Observation.from_gradients(1.0 + rng.random(), rng.random(3), gradient, jacobian))
    return models


@pytest.mark.parametrize("constraints", ["all", "window", "none"])
@pytest.mark.parametrize("window", [1, 3, None])
def test_each_step_is_learn_loss_of_the_checkpoints_that_count(constraints, window):
    """With the window in the cost, and the argmin constraints of all, of the window, or of none."""
    policy = OnlinePolicy(
        "now", epsilon="balanced", window=window, constraints=constraints, damping=0.0, hold_scale=0.0
    )
    learner, seen = OnlineLearner(BOX, policy), []
    for observation in checkpoints(6):
        seen.append(observation)
        step = learner.step(observation, START)
        first = 0 if window is None else max(len(seen) - window, 0)
        kept = seen[first:] if constraints == "window" else seen
        counts = [float(i >= first) for i in range(len(seen))][-len(kept) :]
        expected = learn_loss(kept, BOX, sample_weight=counts, offset=True, constrained=constraints != "none")
        np.testing.assert_allclose(step.weights, expected.weights, rtol=1e-9)
        if constraints != "none":  # else a window forgets what came before it
            assert step.learned.argmin == expected.argmin + len(seen) - len(kept)


@pytest.mark.parametrize("window", [1, 10])
def test_with_start_rise_learning_begins_with_the_first_rise_and_goes_on(window):
    learner = OnlineLearner(BOX, OnlinePolicy("rise", window=window))
    errors = [3.0, 2.0, 2.5, 1.0]
    models = [Observation(error, o.features, o.gram) for error, o in zip(errors, checkpoints(4), strict=True)]
    steps = [learner.step(model, START) for model in models]
    assert [step.learned is not None for step in steps] == [False, False, True, True]
    assert steps[0].note == "observed only: start='rise'"
    np.testing.assert_array_equal(steps[1].weights, START)


def test_damping_averages_losses_in_units_of_error():
    """weights / scale is a moving average; at first the old weights have the new scale."""
    learner, weights, unit = OnlineLearner(BOX, OnlinePolicy("now", damping=0.75)), START, None
    for observation in checkpoints(5):
        step = learner.step(observation, weights)
        new = 1 / step.learned.scale
        old = new if unit is None else unit
        unit = 0.75 * old + 0.25 * new
        weights = (0.75 * old * weights + 0.25 * new * step.learned.weights) / unit
        np.testing.assert_allclose(step.weights, weights, rtol=1e-12)


def without_gradient(observation, term):
    """The observation as it would be if a term had no gradient."""
    gram = observation.gram.copy()
    gram[term] = gram[:, term] = 0.0
    return Observation(observation.error, observation.features, gram)


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_a_term_without_gradient_keeps_its_weight(damping):
    """It is as if the term were pinned there; once it has a gradient, its weight is learned again."""
    learner, weights = OnlineLearner(BOX, OnlinePolicy(damping=damping)), START
    pinned, other = OnlineLearner(Box.from_dict({"l1": 0.5, "l2": (0.0, 10.0), "fit": 1.0}), learner.policy), START
    for observation in checkpoints(4):
        step = learner.step(without_gradient(observation, 0), weights)
        same = pinned.step(without_gradient(observation, 0), other)
        weights, other = step.weights, same.weights
        assert step.weights[0] == step.learned.weights[0] == 0.5
        np.testing.assert_allclose(step.weights, same.weights, rtol=1e-9)
        reason = "since their gradients are 0 for all parameters that are compared"
        assert step.note == f"the weights of ['l1'] stay, {reason}"
        assert same.note == ""
    step = learner.step(checkpoints(5)[-1], weights)
    assert step.weights[0] != 0.5
    assert step.note == ""


def test_values_teach_about_a_term_without_gradient():
    observation = without_gradient(checkpoints(1)[0], 0)
    policy = OnlinePolicy(epsilon="balanced", offset=False, damping=0.0)
    learned = learn_loss([observation], BOX, offset=False, constrained=False)
    np.testing.assert_allclose(OnlineLearner(BOX, policy).step(observation, START).weights, learned.weights, rtol=1e-9)


def test_on_a_simplex_the_weight_of_a_term_without_gradient_goes_to_others():
    box = Box.simplex(["l1", "l2", "fit"])
    step = OnlineLearner(box, OnlinePolicy(damping=0.0)).step(without_gradient(checkpoints(1)[0], 0), np.full(3, 1 / 3))
    assert step.weights[0] == pytest.approx(0.0, abs=1e-9)
    assert step.weights.sum() == pytest.approx(1.0)
    assert step.note.startswith("the weights of ['l1'] go to other terms, since their gradients are 0")


def test_the_scale_falls_by_at_most_a_tenth_per_step():
    """Checkpoints whose own gradients vanish as training goes on, while the error's do not."""
    free, held = (OnlineLearner(BOX, OnlinePolicy("now", window=1, hold_scale=h)) for h in (0.0, 0.9))
    scales = []
    for step, observation in enumerate(checkpoints(8)):
        unit = np.append(np.full(3, 0.3**step), 1.0)
        vanishing = Observation(observation.error, observation.features, observation.gram * unit[:, None] * unit)
        scales.append([learner.step(vanishing, START).learned.scale for learner in (free, held)])
    free_scales, held_scales = np.array(scales).T
    assert free_scales[-1] < 1e-2 * free_scales[0]
    assert (held_scales[2:] >= 0.9 * held_scales[1:-1] * (1 - 1e-9)).all()  # the first of two may be odd
    assert (held_scales >= free_scales * (1 - 1e-9)).all()


@pytest.mark.parametrize("odd", [0, 5])
def test_one_odd_checkpoint_is_forgotten_with_its_window(odd):
    """Its error is almost unrelated to the terms, so its scale is large. That scale is not held."""
    box = Box.from_dict({"fit": 1.0, "reg": (0.0, 1.0)})
    learner, weights, rng = OnlineLearner(box, OnlinePolicy(window=1)), np.array([1.0, 0.0]), np.random.default_rng(1)
    for step in range(24):
        related, noise = ([1e-3, 1e-3], 1.0) if step == odd else ([1.0, 0.2], 0.05)
        gradient = np.append(related, noise * rng.normal(size=18))
        model = Observation.from_gradients(1.0, [1.0, 1.0], gradient, np.eye(20)[:, :2])
        weights = learner.step(model, weights).weights
        if step > odd + 12:
            assert weights[1] == pytest.approx(0.2, abs=0.02)


def test_a_learner_that_is_held_observes_and_keeps_its_weights():
    learner = OnlineLearner(BOX, OnlinePolicy("now"))
    first, second = checkpoints(2)
    learner.step(first, START)
    learner.hold()
    step = learner.step(second, START)
    assert (step.learned, step.note) == (None, "observed only: the weights are held")
    np.testing.assert_array_equal(step.weights, START)
    resumed = OnlineLearner(BOX, OnlinePolicy("now"))
    resumed.load_state_dict(learner.state_dict(), 2, second.score)
    assert resumed.step(first, START).learned is None


def test_only_what_counts_or_constrains_is_kept():
    """The checkpoint that the next one pushes out of the window goes; if all constrain, only its gram goes."""
    kept = {}
    for constraints in ("none", "window", "all"):
        learner = OnlineLearner(BOX, OnlinePolicy("now", window=3, constraints=constraints))
        for observation in checkpoints(7):
            learner.step(observation, START)
        kept[constraints] = [o.gram is not None for o in learner.observations]
    assert kept == {"none": [True] * 2, "window": [True] * 2, "all": [False] * 5 + [True] * 2}


def test_decay_lets_old_checkpoints_count_less_and_then_not_at_all():
    np.testing.assert_allclose(
        OnlinePolicy(decay=0.1, window=None).sample_weight(5), [0.0, 1e-3, 1e-2, 0.1, 1.0], rtol=1e-12
    )
    assert OnlinePolicy(decay=1.0, window=None).span is None


@pytest.mark.parametrize("policy", [OnlinePolicy(), OnlinePolicy.paper(), OnlinePolicy.long_run()])
def test_a_resumed_learner_goes_on_to_the_same_weights(policy):
    models = checkpoints(9)
    learner = OnlineLearner(BOX, policy)
    for model in models[:5]:
        learner.step(model, START)
    resumed = OnlineLearner(BOX, policy)
    resumed.load_state_dict(learner.state_dict(), 5, models[4].score)
    for model in models[5:]:
        one, other = learner.step(model, START), resumed.step(model, START)
        np.testing.assert_array_equal(one.weights, other.weights)
        assert (one.learned and one.learned.argmin) == (other.learned and other.learned.argmin)


def test_a_state_of_a_learner_that_waits_is_resumed_by_one_that_does_not():
    model = checkpoints(1)[0]
    waiting, resumed = OnlineLearner(BOX, OnlinePolicy("rise")), OnlineLearner(BOX, OnlinePolicy("now"))
    assert waiting.step(model, START).learned is None
    resumed.load_state_dict(waiting.state_dict(), 1, model.score)
    assert waiting.step(model, START).learned is None
    assert resumed.step(model, START).learned is not None


def test_a_failed_step_leaves_the_learner_as_it_was(monkeypatch):
    """Neither a wrong observation nor an interrupt changes what the next step learns."""
    models = checkpoints(3)
    learner, untouched = (OnlineLearner(BOX, OnlinePolicy("now")) for _ in range(2))
    for one in (learner, untouched):
        one.step(models[0], START)
    with pytest.raises(InvalidInput, match="Either all observations have a gram or none"):
        learner.step(models[1].without_gram(), START)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "learn", lambda *args, **options: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            learner.step(models[1], START)
    assert learner.state_dict() == untouched.state_dict()
    np.testing.assert_array_equal(learner.step(models[2], START).weights, untouched.step(models[2], START).weights)


def test_if_no_solver_succeeds_the_weights_stay(monkeypatch):
    def fails(*args, **options):
        raise SolverError("no solver today")

    monkeypatch.setattr(Learner, "learn", fails)
    step = OnlineLearner(BOX, OnlinePolicy("now")).step(checkpoints(1)[0], START)
    assert step.solver_failed
    assert step.learned is None
    assert step.note == "no solver today"
    np.testing.assert_array_equal(step.weights, START)


def test_presets_are_those_of_the_paper_and_of_long_runs():
    """Section 3.1: all checkpoints count and constrain, in the printed form, without damping."""
    paper, long_run = OnlinePolicy.paper(), OnlinePolicy.long_run()
    assert (paper.objective, paper.epsilon, paper.window, paper.constraints, paper.damping) == (
        "paper",
        "paper",
        None,
        "all",
        0.0,
    )
    assert (long_run.window, long_run.epsilon) == (100, 2e-4)
    assert OnlinePolicy().epsilon == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "later"}, '`start` must be "now" or "rise"'),
        ({"decay": 0.0}, "`decay` must be above 0 and at most 1"),
        ({"decay": "slow"}, "`decay` must be real numbers"),
        ({"damping": None}, "`damping` must be real numbers"),
        ({"damping": 1.0}, "`damping` must be at least 0 and below 1"),
        ({"constraints": "some"}, '`constraints` must be "all", "window" or "none"'),
        ({"window": 0}, "`window` must be at least 1"),
        ({"epsilon": -1.0}, "`epsilon` must be"),
        ({"objective": "best"}, "`objective` must be"),
    ],
)
def test_options_are_checked_at_once(options, message):
    with pytest.raises(InvalidInput, match=message):
        OnlinePolicy(**options)


def test_the_paper_waits_for_a_rise_and_uses_all_checkpoints_as_they_are():
    """Section 3.1 and appendix B: the printed cost, all models in cost and constraints, no damping, nothing held."""
    paper = OnlinePolicy.paper()
    assert (paper.start, paper.objective, paper.epsilon, paper.constraints) == ("rise", "paper", "paper", "all")
    assert (paper.window, paper.decay, paper.offset, paper.damping, paper.hold_scale) == (None, None, False, 0.0, 0.0)
