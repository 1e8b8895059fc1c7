"""The demo: TuneLoss against random search, with the same number of runs, on softmax regression of digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tuneloss import LossTuner
from tuneloss.baselines.random_search import RandomSearch
from tuneloss.errors import InvalidInput, RunFailed
from tuneloss.paper.datasets import Split, digits
from tuneloss.paper.experiments import as_seed, loss_and_error
from tuneloss.paper.terms import appendix_box, draw_masks, observe
from tuneloss.paper.trainer import train
from tuneloss.paper.tuners import Tuner
from tuneloss.report.records import Comparison, RunRecord
from tuneloss.types import Array

METHODS = ("TuneLoss", "random search")
EPOCHS = 100
N_TRAIN = 100


def run_demo(
    *,
    n_runs: int = 10,
    n_repeats: int = 1,
    seed: int = 0,
    jobs: int = 1,
    epochs: int = EPOCHS,
    pixel_unit: float = 2.0,
    on_run: Callable[[RunRecord], object] = lambda record: None,
) -> Comparison:
    """Tune L1, L2, uniform labels and dropout with each method, and record every run.

    Each repeat has its own data split, first weights and training noise, all derived from `seed`. In one
    repeat the methods share the split, the first weights (one log-uniform draw) and the noise of run i: they
    differ in what they ask for. Repeats are independent, so `jobs` of them can run at once; the result does
    not depend on it.

    Args: on_run: called with each record as it comes, from this process.
    """
    for name, number, least in (
        ("n_runs", n_runs, 1),
        ("n_repeats", n_repeats, 1),
        ("jobs", jobs, 1),
        ("seed", seed, 0),
    ):
        if number < least:
            raise InvalidInput(f"`{name}` must be at least {least}; found {number}.")
    records = []
    for record in _all_repeats(n_runs, n_repeats, seed, jobs, epochs, pixel_unit):
        on_run(record)
        records.append(record)
    records.sort(key=lambda r: (r.repeat, METHODS.index(r.method), r.run))
    return Comparison(
        title="TuneLoss on handwritten digits",
        about=(
            f"Softmax regression on scikit-learn's digits with {N_TRAIN} training examples, {epochs} epochs of "
            "AdaGrad a run. The loss is log loss plus weights times L1, L2, uniform-label loss and dropout loss. "
            "Models are chosen by validation log loss. "
            f"{n_repeats} repeat{'s' if n_repeats > 1 else ''} of {n_runs} runs, seed {seed}."
        ),
        box=appendix_box(),
        methods=METHODS,
        n_runs=n_runs,
        n_repeats=n_repeats,
        runs=tuple(records),
    )


def one_repeat(
    repeat: int, seeds: np.random.SeedSequence, n_runs: int, epochs: int, pixel_unit: float
) -> Iterator[RunRecord]:
    """The runs of every method on one fresh split, as they end."""
    data, masks_seed, search_seed, tuner_seed, training = seeds.spawn(5)
    split = digits(np.random.default_rng(data), n_train=N_TRAIN, pixel_unit=pixel_unit)
    masks = draw_masks(split, np.random.default_rng(masks_seed))
    noise = training.spawn(n_runs)
    box = appendix_box()
    search = RandomSearch(box, seed=as_seed(search_seed))
    start = RandomSearch(box, seed=as_seed(search_seed)).ask()  # so that both begin with the same weights
    tuner = LossTuner(box, seed=as_seed(tuner_seed), start=start)
    methods: tuple[Tuner, ...] = (tuner, search)
    for method, chooser in zip(METHODS, methods, strict=True):
        for i in range(n_runs):
            weights = chooser.ask()
            try:
                params = train(split, weights, np.random.default_rng(noise[i]), epochs=epochs)
            except RunFailed as reason:
                chooser.tell(weights, failed=str(reason))
                yield RunRecord(method, repeat, i + 1, weights, math.nan, math.nan, math.nan, failed=str(reason))
                continue
            chooser.tell(weights, observe(params, split, masks))
            yield evaluate(params, split, method, repeat, i + 1, weights)


def evaluate(
    params: Array, split: Split, method: str, repeat: int, run: int, weights: Mapping[str, float]
) -> RunRecord:
    """The record of a run that ended: mean log loss on validation and test, and the test error rate."""
    validation_loss, _ = loss_and_error(params, split.validation_x, split.validation_y)
    test_loss, test_error = loss_and_error(params, split.test_x, split.test_y)
    return RunRecord(method, repeat, run, dict(weights), validation_loss, test_loss, test_error)


def _all_repeats(
    n_runs: int, n_repeats: int, seed: int, jobs: int, epochs: int, pixel_unit: float
) -> Iterator[RunRecord]:
    seeds = np.random.SeedSequence(seed).spawn(n_repeats)
    if min(jobs, n_repeats) == 1:
        for i, own in enumerate(seeds):
            yield from one_repeat(i + 1, own, n_runs, epochs, pixel_unit)
        return
    from joblib import Parallel, delayed

    def collected(i: int, own: np.random.SeedSequence) -> list[RunRecord]:
        return list(one_repeat(i, own, n_runs, epochs, pixel_unit))

    parallel = Parallel(n_jobs=min(jobs, n_repeats), return_as="generator_unordered")
    for records in parallel(delayed(collected)(i + 1, own) for i, own in enumerate(seeds)):
        yield from records
