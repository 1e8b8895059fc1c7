"""TuneLossTrainer, in real runs of the trainer on tiny models with random weights."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
import torch.nn.functional as F
from accelerate.state import AcceleratorState
from transformers import BatchEncoding, EarlyStoppingCallback, Trainer, default_data_collator

from tests.integrations import transformers_processes
from tests.integrations.hugging_face import (
    BATCH,
    arguments,
    bert,
    fit,
    gpt,
    labelled,
    largest_difference,
    make_loss,
    mixture,
    of_rows,
    plain_loop,
    texts,
    without_domain,
)
from tuneloss import Box
from tuneloss.errors import InvalidInput
from tuneloss.integrations.transformers import TuneLossMixin, TuneLossTrainer
from tuneloss.torch import L2, ConvexPiecewiseLinear, LinearLoss, OnlineTuner, UniformLabels
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy

TRAIN, EVAL = labelled(128, 1), labelled(96, 2)
TRAIN_TEXTS, EVAL_TEXTS = without_domain(texts(64, 1)), without_domain(texts(64, 2))
STEPS = len(TRAIN) // BATCH  # optimizer steps per epoch


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def run(folder: Path, model: Any = None, loss: Any = None, *, own: Any = None, resume: Any = None, **changes: Any):
    """A trainer after a whole run; `own` are the keywords that it adds to those of transformers."""
    trainer = make_trainer(folder, model, loss, own=own, **changes)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def make_trainer(
    folder: Path, model: Any = None, loss: Any = None, *, own: Any = None, kind: Any = TuneLossTrainer, **changes: Any
):
    given = {"train_dataset": TRAIN, "eval_dataset": EVAL, "loss": make_loss() if loss is None else loss} | (own or {})
    return kind(bert() if model is None else model, arguments(folder, **changes), **given)


def epochs_of(trainer: TuneLossTrainer, n: int = 2) -> list[list[dict[str, torch.Tensor]]]:
    """The batches of each epoch, as the trainer orders them."""
    loader, epochs = trainer.get_train_dataloader(), []
    for epoch in range(n):
        loader.set_epoch(epoch)
        epochs.append(list(loader))
    return epochs


def logged(trainer: TuneLossTrainer, key: str) -> list[Any]:
    return [record[key] for record in trainer.state.log_history if key in record]


def steps_of(trainer: TuneLossTrainer) -> list[int]:
    """The optimizer steps after which the tuner stepped."""
    return [record["step"] for record in trainer.state.log_history if "tuneloss_error" in record]


# --- The loss ---


def bert_value(model, batch):
    """`fit` + 0.1 uniform log loss + 0.01 squares of matrices, in plain PyTorch."""
    logits = model(input_ids=batch["input_ids"]).logits
    squares = sum(p.square().sum() for p in model.parameters() if p.ndim > 1)
    smooth = -F.log_softmax(logits, dim=1).mean()
    return F.cross_entropy(logits, batch["labels"]) + 0.1 * smooth + 0.01 * squares


def gpt_value(model, batch):
    """The log loss of the next token + 0.01 squares of matrices, in plain PyTorch."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    squares = sum(p.square().sum() for p in model.parameters() if p.ndim > 1)
    fitted = F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=-100)
    return fitted + 0.01 * squares


def pinned_gpt_loss() -> LinearLoss:
    return LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": 0.01})


CASES = {
    "bert": (bert, bert_value, lambda: make_loss(smooth=0.1, l2=0.01), (TRAIN, EVAL)),
    "gpt": (gpt, gpt_value, pinned_gpt_loss, (TRAIN_TEXTS, EVAL_TEXTS)),
}


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_pinned_weights_train_as_a_plain_loop_does(tmp_path, case, accumulate):
    """Parameters, and the loss that is logged, are those of plain PyTorch; the tuner's steps change nothing.

    Micro-batches of a BERT classifier have as many labels each, so four of them are one large batch. Those of a GPT
    have different numbers of tokens, and each counts the same. The optimizer is SGD: Adam would turn the rounding
    errors of gradients that are 0 into steps of full length.
    """
    model, value, loss, (train, held_out) = CASES[case]
    batch = {"per_device_train_batch_size": BATCH // accumulate, "gradient_accumulation_steps": accumulate}
    data = {"train_dataset": train, "eval_dataset": held_out}
    sgd = {"optim": "sgd", "learning_rate": 0.1}
    trainer = run(tmp_path, model(), loss(), own=data, logging_steps=1, **batch, **sgd)
    plain = model()
    if case == "bert":
        large = make_trainer(tmp_path, own=data)
        losses = plain_loop(plain, value, epochs_of(large), sgd=0.1)
    else:

        def mean(model, batches):
            return sum(value(model, batch) for batch in batches) / accumulate

        epochs = [zip(*[iter(batches)] * accumulate, strict=True) for batches in epochs_of(trainer)]
        losses = plain_loop(plain, mean, epochs, sgd=0.1)
    assert len(trainer.tuner.history) == 2
    assert largest_difference(trainer.model, plain) < 1e-6
    assert logged(trainer, "loss") == pytest.approx(losses, abs=1e-5)


def test_the_eval_loss_of_a_causal_lm_is_that_of_the_model(tmp_path):
    """The mean over batches of the model's own loss, a mean over predicted tokens; so is the error, if batches stay."""
    data = {"train_dataset": TRAIN_TEXTS, "eval_dataset": EVAL_TEXTS, "observe": ObserveOptions(merge=False)}
    trainer = run(tmp_path, gpt(), LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1)}), own=data)
    trainer.model.eval()
    with torch.no_grad():
        of_batches = [fit(trainer.model, dict(batch)).item() for batch in trainer.get_eval_dataloader()]
    assert len(of_batches) == 2
    assert logged(trainer, "eval_loss")[-1] == pytest.approx(sum(of_batches) / 2, abs=1e-6)
    assert logged(trainer, "tuneloss_error")[-1] == pytest.approx(sum(of_batches) / 2, abs=1e-6)


def test_the_mean_of_each_term_is_logged_beside_the_loss(tmp_path):
    """Their sum with the weights is the loss; a term of weight 0 is left out."""
    trainer = run(tmp_path, loss=make_loss(smooth=0.1, l2=0.0), num_train_epochs=1)
    records = [record for record in trainer.state.log_history if "loss" in record]
    assert len(records) == 2
    for record in records:
        assert record["loss"] == pytest.approx(record["loss/fit"] + 0.1 * record["loss/smooth"], abs=1e-6)
        assert "loss/l2" not in record


def test_mixed_precision_trains_as_plain_autocast_does(tmp_path):
    """The tuner observes the model as it is trained, which is under autocast."""
    trainer = run(tmp_path, loss=make_loss(smooth=0.1, l2=0.01), bf16=True)

    def value(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=batch["input_ids"]).logits
        squares = sum(p.square().sum() for p in model.parameters() if p.ndim > 1)
        smooth = -F.log_softmax(logits.float(), dim=1).mean()
        return F.cross_entropy(logits.float(), batch["labels"]) + 0.1 * smooth + 0.01 * squares

    plain, exact = bert(), bert()
    plain_loop(plain, value, epochs_of(trainer))
    plain_loop(exact, bert_value, epochs_of(trainer))
    assert largest_difference(trainer.model, plain) < 2e-3
    assert largest_difference(trainer.model, exact) > 0
    assert logged(trainer, "tuneloss_error")[-1] == pytest.approx(logged(trainer, "eval_loss")[-1], abs=1e-4)


# --- The tuner ---


def test_a_tuned_run_equals_a_plain_loop_with_a_tuner(tmp_path):
    """The tuner steps at the end of each epoch, before the evaluation, on the trainer's own data."""
    trainer = run(tmp_path, own={"policy": OnlinePolicy(damping=0.25)})
    plain, loss = bert(), make_loss()
    train, held_out = trainer.get_train_dataloader(), list(trainer.get_eval_dataloader())
    tuner = OnlineTuner(plain, loss, fit, train, held_out, policy=OnlinePolicy(damping=0.25))
    plain_loop(plain, loss, epochs_of(trainer), tuner.step)
    assert largest_difference(trainer.model, plain) < 1e-6
    assert loss.as_dict()["l2"] > 0
    assert trainer.loss.as_dict() == pytest.approx(loss.as_dict(), rel=1e-4)
    assert logged(trainer, "tuneloss_error") == pytest.approx([record.error for record in tuner.history], abs=1e-6)


@pytest.mark.parametrize(
    ("own", "changes", "steps", "reported"),
    [
        ({}, {}, [STEPS, 2 * STEPS], 2),
        ({}, {"eval_strategy": "no"}, [STEPS, 2 * STEPS], 0),
        ({}, {"eval_strategy": "steps", "eval_steps": 7}, [7, 14, 16], 3),
        ({"tune_every": 5}, {}, [5, 10, 15], 0),
        ({"tune_every": 4}, {"eval_strategy": "steps", "eval_steps": 8}, [4, 8, 12, 16], 2),
        ({}, {"max_steps": 11}, [STEPS, 11], 2),
    ],
)
def test_when_the_tuner_steps(tmp_path, own, changes, steps, reported):
    """After each epoch, before each evaluation, or after so many optimizer steps; the numbers are logged.

    An evaluation reports the error of the tuner if it is that of the same model.
    """
    trainer = run(tmp_path, own=own, **changes)
    assert steps_of(trainer) == steps
    assert len(trainer.tuner.history) == len(steps)
    assert logged(trainer, "tuneloss_weight/l2") == [record.weights["l2"] for record in trainer.tuner.history]
    assert logged(trainer, "tuneloss_term/fit") == [record.features["fit"] for record in trainer.tuner.history]
    assert len(logged(trainer, "eval_tuneloss_error")) == reported


def test_each_step_reads_other_training_batches(tmp_path):
    """With a learning rate of 0, the model stays, and one batch at each step shows another loss."""
    trainer = run(tmp_path, own={"observe": ObserveOptions(batches=1)}, learning_rate=0.0, num_train_epochs=3)
    assert len(set(logged(trainer, "tuneloss_term/fit"))) == 3
    assert len(set(logged(trainer, "tuneloss_error"))) == 1


def test_terms_and_error_see_dicts(tmp_path):
    """Also if the collator makes other mappings, as those of tokenizers do."""
    seen = set()

    def term(model, batch):
        seen.add((type(batch), model.training))
        return fit(model, batch)

    loss = LinearLoss({"fit": term, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1)})
    run(tmp_path, loss=loss, own={"data_collator": lambda items: BatchEncoding(default_data_collator(items))})
    assert seen == {(dict, True), (dict, False)}


def test_between_close_steps_no_more_is_read_than_was_trained_on(tmp_path):
    trainer = run(tmp_path, own={"tune_every": 2})
    assert trainer.tuner.observe_options.batches == 2
    trainer = run(tmp_path, own={"tune_every": 2}, per_device_train_batch_size=4, gradient_accumulation_steps=3)
    assert trainer.tuner.observe_options.batches == 6
    trainer = run(tmp_path, own={"tune_every": 2, "observe": ObserveOptions(batches=5)})
    assert trainer.tuner.observe_options.batches == 5


def test_checkpointed_models_are_observed_batch_by_batch(tmp_path):
    """Merged batches could need more memory than the training does; the run is the same."""
    runs = [run(tmp_path, gradient_checkpointing=checkpointed) for checkpointed in (False, True)]
    assert [trainer.tuner.observe_options.merge for trainer in runs] == [True, False]
    assert largest_difference(runs[0].model, runs[1].model) < 1e-6


def test_a_stream_of_examples_is_tuned_every_few_steps(tmp_path):
    """It has neither a length nor epochs."""

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(TRAIN.items)

    own = {"train_dataset": Stream(), "tune_every": 4}
    trainer = run(tmp_path, own=own, max_steps=12)
    assert steps_of(trainer) == [4, 8, 12]


def test_a_weight_decay_beside_an_l2_term_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match=r"weight decay 0.1 beside the L2 term 'l2'"):
        run(tmp_path, weight_decay=0.1)


def test_the_tuners_steps_leave_the_training_alone(tmp_path):
    """With dropout and steps within an epoch: neither random numbers nor the order of batches change."""
    pinned, others = make_loss(smooth=0.1, l2=0.01), make_loss(smooth=0.1, l2=0.01)
    seldom = run(tmp_path, bert(0.3), pinned, own={"tune_every": 16})
    often = run(tmp_path, bert(0.3), others, own={"tune_every": 1})
    assert [len(trainer.tuner.history) for trainer in (seldom, often)] == [1, 16]
    assert largest_difference(seldom.model, often.model) == 0


def test_a_subclass_of_another_trainer_is_tuned_by_the_mixin(tmp_path):
    """Evaluation goes on as that trainer does it."""

    class Double(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            assert return_outputs
            loss, outputs = super().compute_loss(model, inputs, True)
            return 2 * loss, outputs

    class TunedDouble(TuneLossMixin, Double):
        pass

    trainer = run(tmp_path, kind=TunedDouble)
    assert logged(trainer, "eval_loss") == pytest.approx([2 * e for e in logged(trainer, "tuneloss_error")], abs=1e-5)
    assert trainer.loss.as_dict()["l2"] > 0


def test_a_new_model_for_a_second_run_starts_with_the_first_weights(tmp_path):
    """As for the trials of a search, which share one trainer and one loss."""
    trainer = TuneLossTrainer(
        None, arguments(tmp_path), train_dataset=TRAIN, eval_dataset=EVAL, loss=make_loss(), model_init=lambda: bert()
    )
    ends = []
    for _ in range(2):
        trainer.train()
        ends.append(trainer.loss.as_dict())
        assert len(trainer.tuner.history) == 2
    assert ends[0] == ends[1]
    assert ends[0]["l2"] > 0


# --- The best model ---


def overfitted(folder: Path, **changes: Any) -> TuneLossTrainer:
    """A run on few examples without regularization, whose error rises."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "tuneloss_error", "greater_is_better": False}
    own = {"train_dataset": labelled(32, 1), **changes.pop("own", {})}
    loss = LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1e-6)})
    fast = {"learning_rate": 0.02, "num_train_epochs": 8, "save_strategy": "epoch"}
    return run(folder, loss=loss, own=own, **best | fast | changes)


def test_the_tuners_error_finds_the_best_model_which_is_loaded_at_the_end(tmp_path):
    trainer = overfitted(tmp_path)
    errors = logged(trainer, "eval_tuneloss_error")
    assert errors == logged(trainer, "tuneloss_error")
    best = errors.index(min(errors))
    assert best < 7
    assert trainer.state.best_metric == min(errors)
    assert trainer.state.best_global_step == 2 * (best + 1)
    assert trainer.tuner.best.error == min(errors)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(errors), abs=1e-6)


def test_a_metric_can_find_the_best_model_and_stop_the_run(tmp_path):
    def wrong_rate(model, batch):
        return (model(**batch).logits.argmax(1) != batch["labels"]).float().mean()

    own = {"metric": wrong_rate, "callbacks": [EarlyStoppingCallback(2)]}
    trainer = overfitted(tmp_path, own=own, metric_for_best_model="eval_tuneloss_metric", num_train_epochs=20)
    metrics = logged(trainer, "eval_tuneloss_metric")
    assert len(metrics) < 20
    assert trainer.state.best_metric == min(metrics) < metrics[-1]


# --- Checkpoints ---


def learned_loss() -> LinearLoss:
    """A loss in float64 with a state beyond its weights: knots, which the first step places."""
    terms = {"fit": fit, "smooth": UniformLabels(lambda model, batch: model(**batch).logits)}
    box = {"fit": 1.0, "smooth": (0, 1), "learned": (0, math.inf)}
    return LinearLoss({**terms, "learned": ConvexPiecewiseLinear(4)}, box=box).double()


@pytest.mark.parametrize("restore_callbacks", [False, True])
@pytest.mark.parametrize(
    ("own", "strategy", "at"),
    [({}, {"save_strategy": "epoch"}, STEPS), ({"tune_every": 3}, {"save_strategy": "steps", "save_steps": 5}, 10)],
)
def test_a_resumed_run_is_that_of_one_piece(tmp_path, own, strategy, at, restore_callbacks):
    """Model, loss, history and logs are the same to the last bit, also from the middle of an epoch with dropout."""
    changes = {**strategy, "restore_callback_states_from_checkpoint": restore_callbacks, "num_train_epochs": 3}
    whole = run(tmp_path, bert(0.3), learned_loss(), own=own, **changes)
    torch.manual_seed(1)
    resumed = run(tmp_path, bert(0.3), learned_loss(), own=own, resume=tmp_path / f"checkpoint-{at}", **changes)
    assert largest_difference(whole.model, resumed.model) == 0
    states = whole.loss.state_dict(), resumed.loss.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(*map(dict.values, states), strict=True) if isinstance(a, torch.Tensor))
    assert any(weight > 0 for name, weight in resumed.loss.as_dict().items() if name.startswith("learned"))
    assert [r.error for r in whole.tuner.history] == [r.error for r in resumed.tuner.history]
    assert [r.learned for r in whole.tuner.history] == [r.learned for r in resumed.tuner.history]
    last = tmp_path / f"checkpoint-{3 * STEPS}"
    assert json.loads((last / "trainer_state.json").read_text())["global_step"] == 3 * STEPS


def test_a_checkpoint_has_the_same_files_as_without_a_tuner(tmp_path):
    """So the tuner writes no pickle: its state is in the JSON file of the trainer."""
    run(tmp_path / "tuned", save_strategy="epoch")
    given = {"train_dataset": TRAIN, "eval_dataset": EVAL}
    Trainer(bert(), arguments(tmp_path / "plain", save_strategy="epoch"), **given).train()
    names = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in tmp_path.iterdir()]
    assert names[0] == names[1]
    state = json.loads((tmp_path / "tuned" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["TuneLossState"]["attributes"]["saved"]["names"] == ["fit", "smooth", "l2"]


def test_tuning_can_begin_from_the_checkpoint_of_a_plain_trainer(tmp_path):
    given = {"train_dataset": TRAIN, "eval_dataset": EVAL}
    Trainer(bert(), arguments(tmp_path, save_strategy="epoch", num_train_epochs=1), **given).train()
    trainer = run(tmp_path, save_strategy="epoch", num_train_epochs=3, resume=tmp_path / f"checkpoint-{STEPS}")
    assert steps_of(trainer) == [2 * STEPS, 3 * STEPS]
    again = run(tmp_path, save_strategy="epoch", num_train_epochs=3, resume=tmp_path / f"checkpoint-{2 * STEPS}")
    assert largest_difference(trainer.model, again.model) == 0


# --- Several processes ---


@pytest.fixture(scope="module")
def processes(tmp_path_factory) -> list[dict[str, Any]]:
    """What each of two processes saw that torchrun started."""
    folder = tmp_path_factory.mktemp("processes")
    call = ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "-m", transformers_processes.__name__]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "torch.distributed.run", *call, str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(program, cwd=root, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_are_one_with_a_batch_twice_as_large(tmp_path, processes, kind):
    """Both have the same weights, errors, parameters, and means of terms, which are those of one process."""
    one = transformers_processes.tuned_run(tmp_path, 2 * transformers_processes.BATCH)
    first, second = (seen[kind] for seen in processes)
    assert first == second
    assert first["sharded"] == (kind == "fsdp2")
    assert first["weights"]["smooth"] > 0
    for name, values in one.items():
        if name != "sharded":
            assert first[name] == pytest.approx(values, abs=1e-6)


def test_two_processes_resume_exactly(processes):
    for seen in processes:
        for name in ("weights", "errors", "params"):
            assert seen["resumed"][name] == seen["ddp"][name]


# --- Adapters and mixtures ---


def test_only_the_adapters_of_lora_are_observed_and_trained(tmp_path):
    """The L2 term is the sum of squares of the adapters, and the resumed run is exact."""
    peft = pytest.importorskip("peft")

    def adapted():
        config = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
        return peft.get_peft_model(gpt(), config)

    data = {"train_dataset": TRAIN_TEXTS, "eval_dataset": EVAL_TEXTS}
    changes = {"learning_rate": 0.05, "num_train_epochs": 3, "save_strategy": "epoch"}

    def loss():
        return LinearLoss({"fit": fit, "l2": L2()}, box={"fit": 1.0, "l2": (0, 1)})

    whole = run(tmp_path, adapted(), loss(), own=data, **changes)
    before = dict(gpt().named_parameters())
    adapters = {name: p for name, p in whole.model.named_parameters() if "lora_" in name}
    assert adapters.keys() == {name for name, p in whole.model.named_parameters() if p.requires_grad}
    for name, p in whole.model.get_base_model().named_parameters():
        if "lora_" not in name:
            assert torch.equal(p, before[name.replace(".base_layer", "")])
    squares = sum(float(p.detach().square().sum()) for p in adapters.values())
    assert logged(whole, "tuneloss_term/l2")[-1] == pytest.approx(squares, rel=1e-6)
    errors = logged(whole, "tuneloss_error")
    assert errors[-1] < errors[0]
    resumed = run(tmp_path, adapted(), loss(), own=data, resume=tmp_path / "checkpoint-4", **changes)
    assert largest_difference(whole.model, resumed.model) == 0
    assert whole.loss.as_dict() == resumed.loss.as_dict()


def test_a_mixture_of_domains_is_learned_on_a_simplex(tmp_path):
    """Half of the training texts are noise, and none of the eval texts: the weight of the noise falls to nothing."""
    data = {"train_dataset": texts(128, 1, noise=0.5), "eval_dataset": texts(128, 2)}
    own = {**data, "error": lambda model, batch: of_rows(model, batch).mean()}
    changes = {"remove_unused_columns": False, "num_train_epochs": 6, "learning_rate": 0.01}
    trainer = run(tmp_path, gpt(), mixture(), own=own, **changes)
    assert logged(trainer, "tuneloss_weight/noise")[0] == 0.5
    assert trainer.loss.as_dict()["noise"] < 0.05
    assert sum(trainer.loss.as_dict().values()) == pytest.approx(1, abs=1e-6)
    assert {"loss/counting", "loss/noise"} <= trainer.state.log_history[0].keys()


# --- Wrong arguments ---


@pytest.mark.parametrize(
    ("own", "changes", "message"),
    [
        (
            {"loss": torch.nn.CrossEntropyLoss()},
            {},
            r"`loss` must be a LinearLoss; found a CrossEntropyLoss. Give",
        ),
        ({"eval_dataset": None}, {"eval_strategy": "no"}, r"`eval_dataset` must be one data set.*found none. Give"),
        ({"eval_dataset": {"a": EVAL, "b": EVAL}}, {}, r"must be one data set.*found a dict of \['a', 'b'\]"),
        ({"compute_loss_func": F.cross_entropy}, {}, r"`compute_loss_func` and `loss` exclude each other"),
        (
            {},
            {"label_smoothing_factor": 0.1},
            r"`label_smoothing_factor` must be 0.*found 0.1. Add the term Uniform",
        ),
        ({"error": torch.nn.MSELoss()}, {}, r"`error` must be a callable \(model, batch\)"),
        ({"metric": 3}, {}, r"`metric` must be a callable \(model, batch\)"),
        ({"tune_every": 0}, {}, r"`tune_every` must be"),
        (
            {"policy": {"window": 3}},
            {},
            r"`policy` must be an OnlinePolicy; found a dict. Give e.g. policy=",
        ),
        ({"observe": 3}, {}, r"`observe` must be an ObserveOptions; found a int. Give e.g. observe="),
        (
            {"tune_every": 5},
            {"metric_for_best_model": "tuneloss_error"},
            r"needs a step of the tuner at each evaluation; found tune_every=5, and evaluations after each epoch",
        ),
        (
            {"tune_every": 5},
            {"metric_for_best_model": "tuneloss_error", "eval_strategy": "steps", "eval_steps": 12},
            r"found tune_every=5, and evaluations after 12 steps",
        ),
    ],
)
def test_wrong_arguments_are_explained(tmp_path, own, changes, message):
    with pytest.raises(InvalidInput, match=message):
        make_trainer(tmp_path, own=own, **changes)


def test_without_one_pinned_data_term_an_error_must_be_given(tmp_path):
    loss = LinearLoss({"a": fit, "b": fit}, box=Box.simplex(["a", "b"]))
    with pytest.raises(InvalidInput, match=r"so there must be one; found none. Pin the plain loss at 1, or give"):
        make_trainer(tmp_path, loss=loss)
    make_trainer(tmp_path, loss=loss, own={"error": fit})


def test_the_tuner_may_step_more_often_than_its_error_decides(tmp_path):
    changes = {"metric_for_best_model": "tuneloss_error", "eval_strategy": "steps", "eval_steps": 8}
    trainer = run(tmp_path, own={"tune_every": 4}, **changes, greater_is_better=False)
    assert trainer.state.best_metric == min(logged(trainer, "eval_tuneloss_error"))


def test_a_tuned_loss_has_no_outputs(tmp_path):
    trainer = make_trainer(tmp_path)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.train()
    with pytest.raises(InvalidInput, match="must be called without `return_outputs` while the model trains"):
        trainer.compute_loss(trainer.model, batch, return_outputs=True)


@pytest.mark.parametrize("found", ["DeepSpeed", "FSDP1"])
def test_other_ways_to_shard_are_refused(tmp_path, monkeypatch, found):
    """They cannot run here, so the trainer is given what they set."""

    class Sharded(TuneLossTrainer):
        def create_accelerator_and_postprocess(self):
            super().create_accelerator_and_postprocess()
            self.is_deepspeed_enabled = found == "DeepSpeed"
            plugin = SimpleNamespace(fsdp_version=1) if found == "FSDP1" else None
            monkeypatch.setitem(AcceleratorState._shared_state, "fsdp_plugin", plugin)

    with pytest.raises(InvalidInput, match=f"needs one process, DDP or FSDP2; found {found}"):
        make_trainer(tmp_path, kind=Sharded)
