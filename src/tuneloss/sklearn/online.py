"""Learn the weights and a convex regularizer while the model trains, in one run of proximal gradient steps.

After each epoch of steps the models of all folds are observed, and LearnLoss sets the weights of the next epoch. As in
`tuneloss.torch.OnlineTuner`, it uses only the gradients at the last epochs, and each step is damped.

The last fit repeats the run on all data, up to the best epoch. It does not minimise the loss of the best epoch, because
that minimum is another model: the validated model depends on where the run stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuneloss import Box, Observation
from tuneloss.hinges import PiecewiseLinear, gram_with, hinge_names, inner_quantiles, values_at
from tuneloss.sklearn.fitting import Fitted, fit
from tuneloss.sklearn.fold_fits import Fold, FoldFits, ParallelMap, SearchOptions, add_dropout, best_of, fit_folds
from tuneloss.sklearn.paths import first_l2, only_l2
from tuneloss.sklearn.search import MIN_L2, grow_penalties
from tuneloss.sklearn.softmax import (
    NAMES,
    Data,
    Weights,
    conditioner,
    cross_entropy,
    mixed_targets,
    smooth_loss,
    smooth_value,
    terms,
)
from tuneloss.tuning import OnlineLearner, OnlinePolicy, OnlineStep, StepRecord
from tuneloss.tuning.slopes import gradient_cosine
from tuneloss.types import Array

KNOTS, EPOCHS, STEPS = 20, 40, 20  # knots of the regularizer, most epochs, and gradient steps per epoch
PATIENCE = 8  # the run ends after this many epochs without an improvement
POLICY = OnlinePolicy(window=10, damping=0.7, hold_scale=0.0)  # chosen before these became the defaults of deep models
SMOOTH = NAMES[1:]  # all terms except L1, which is a pair of hinges at 0
PENALTY = "penalty"  # the regularizer, in the names of its hinges: "penalty/right0" and so on


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of one epoch.

    Parameters
    ----------
    weights : dict of str to float
        The weights of the smooth terms.
    regularizer : PiecewiseLinear
        The penalty of each coefficient.
    """

    weights: Weights
    regularizer: PiecewiseLinear

    def grown(self, factor: float) -> Loss:
        """Return the loss with L2 and the regularizer multiplied by `factor`."""
        return Loss(grow_penalties(self.weights, factor), self.regularizer.scaled(factor))


def proximal_steps(data: Data, loss: Loss, start: Array, n: int, bound: float = 1.0) -> tuple[Array, float]:
    """Take n accelerated proximal gradient steps (Beck and Teboulle 2009), restarted where they overshoot.

    Steps are in the metric of `conditioner`. In it, `bound` is a bound on the curvature, which is doubled whenever it
    proves too small. The result is the params, and the bound for the next call.
    """
    metric, targets = conditioner(data, loss.weights), mixed_targets(data, loss.weights)
    free = np.ones_like(metric)
    free[:, -1] = data.intercept
    x = y = start * free
    momentum = 1.0
    for _ in range(n):
        value, gradient = smooth_loss(data, loss.weights, targets, y)
        while True:
            new = y - free * gradient / (bound * metric)
            new[:, :-1] = loss.regularizer.proximal(new[:, :-1], 1 / (bound * metric[:, :-1]))
            move = new - y
            reach = value + np.vdot(gradient, move) + 0.5 * bound * np.vdot(move, metric * move)
            if smooth_value(data, loss.weights, targets, new) <= reach + 1e-9 * abs(reach):
                break
            bound *= 2
        overshoots = np.vdot(y - new, metric * (new - x)) > 0
        ahead = 1.0 if overshoots else (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = new if overshoots else new + (momentum - 1) / ahead * (new - x)
        momentum, x = ahead, new
    return x, bound


@dataclass(frozen=True, eq=False)
class OnlineResult:
    """The result of an online search. Epoch 0 is a fit with L2 alone, from which the run starts.

    Parameters
    ----------
    runs : list of FoldFits
        One per epoch, with observations.
    losses : list of Loss
        The loss that each epoch was trained with.
    steps : list of StepRecord
        What was observed after each epoch, and how the weights of the next one were learned.
    box : Box
        The hinges and the smooth terms, with the ranges that their weights may have.
    """

    runs: list[FoldFits]
    losses: list[Loss]
    steps: list[StepRecord]
    box: Box


def online_search(folds: Sequence[Fold], options: SearchOptions, parallel: ParallelMap) -> OnlineResult:
    """Learn the loss of each epoch from the last epochs, until the validation error falls no more."""
    starts = [fold.data.zeros() for fold in folds]
    run = fit_folds(folds, only_l2(first_l2(folds[0].data)), starts, options=options, parallel=parallel)
    folds = add_dropout(folds, run)
    knots = inner_quantiles(np.concatenate([fitted.params[:, :-1].ravel() for fitted in run.fits]), KNOTS)
    loss = Loss(run.weights, PiecewiseLinear.from_weights(knots, np.zeros(2 * len(knots))))
    result = OnlineResult([], [loss], [], _box(options.terms, len(knots), MIN_L2 * run.weights["l2"]))
    runs, losses, learner = result.runs, result.losses, OnlineLearner(result.box, POLICY)
    weights = np.append(np.zeros(2 * len(knots)), [run.weights[name] for name in SMOOTH])
    bounds: Sequence[float] = [1.0] * len(folds)
    while True:
        runs.append(_observed(folds, run, knots, result.box.names))
        if len(runs) > EPOCHS or len(runs) - runs.index(best_of(runs)) > PATIENCE:
            learner.hold()
        step = _step(learner, runs[-1], weights, is_first=len(runs) == 1)
        result.steps.append(_record(result, weights, step))
        if step.learned is None or not step.learned.scale > 0:
            return result
        weights = step.weights
        loss = _loss(weights, knots)

        def train(fold: Fold, start: Array, bound: float, loss: Loss = loss) -> tuple[Fitted, float]:
            params, bound = proximal_steps(fold.data, loss, start, STEPS, bound)
            return Fitted(loss.weights, params, STEPS, converged=True), bound

        fits, bounds = zip(*parallel(train, list(zip(folds, run.params, bounds, strict=True))), strict=True)
        run = FoldFits.of(folds, loss.weights, fits)
        losses.append(loss)
        options.on_run(run, folds)


def repeated(data: Data, losses: Sequence[Loss], start: Array, options: SearchOptions) -> Fitted:
    """Repeat a search on other data: a fit with the first loss, then one epoch with each of the others."""
    first = fit(data, losses[0].weights, start, tol=options.tol, max_iter=options.max_iter)
    data, params, bound = data.with_dropout(first.params), first.params, 1.0
    for loss in losses[1:]:
        params, bound = proximal_steps(data, loss, params, STEPS, bound)
    message = f"its first part, with L2 alone, ended after {first.n_iter} ({first.message})"
    n_iter = first.n_iter + STEPS * len(losses[1:])
    return Fitted(losses[-1].weights, params, n_iter, first.converged, message)


def _box(chosen: Sequence[str], p: int, least: float) -> Box:
    """Return the box of the hinges and the smooth terms; terms that were not chosen are pinned."""
    hinges = (0.0, math.inf) if "l1" in chosen else 0.0
    ranges = dict.fromkeys([f"{PENALTY}/{name}" for name in hinge_names(p)], hinges)
    smooth = {"l2": (least, math.inf), "uniform": (0.0, 1.0), "dropout": (0.0, math.inf)}
    smooth_ranges = {name: bounds if name in chosen else bounds[0] for name, bounds in smooth.items()}
    return Box.from_dict({**ranges, **smooth_ranges, "logloss": 1.0})


def _loss(weights: Array, knots: Array) -> Loss:
    """Return the loss of a vector of weights: hinges first, then smooth terms."""
    p = len(knots)
    smooth = {"l1": 0.0} | dict(zip(SMOOTH, weights[2 * p :].tolist(), strict=True))
    return Loss(smooth, PiecewiseLinear.from_weights(knots, weights[: 2 * p]))


def _step(learner: OnlineLearner, run: FoldFits, weights: Array, *, is_first: bool) -> OnlineStep:
    """Learn the weights of the next epoch. The first step is not damped, since L2 alone is not to be averaged."""
    observation = run.joined_observation()
    assert observation is not None  # as `_observed` has made it
    step = learner.step(observation, weights)
    if not is_first or step.learned is None:
        return step
    learned = step.learned.weights
    cosines = gradient_cosine(observation, weights), gradient_cosine(observation, learned)
    return replace(step, weights=learned, kept=0.0, cosines=cosines)


def _record(result: OnlineResult, weights: Array, step: OnlineStep) -> StepRecord:
    """Return the record of the last epoch, which was trained with these weights, and of the step after it."""
    observation = result.runs[-1].joined_observation()
    assert observation is not None  # as `_observed` has made it
    return StepRecord.of(len(result.runs) - 1, observation, result.box.as_dict(weights), step, math.nan)


def _observed(folds: Sequence[Fold], run: FoldFits, knots: Array, names: Sequence[str]) -> FoldFits:
    """Return the run with one observation per fold."""
    pairs = zip(folds, run.fits, strict=True)
    observations = tuple(_observation(fold, fitted, knots, names) for fold, fitted in pairs)
    return replace(run, observations=observations)


def _observation(fold: Fold, fitted: Fitted, knots: Array, names: Sequence[str]) -> Observation:
    """Observe the model of a fold, in the metric of `conditioner`."""
    data, w = fold.data, fitted.params[:, :-1]
    values, slopes = terms(data, fitted.params)
    error, gradient = cross_entropy(data, fitted.params, fold.targets, fold.x)
    metric = 1 / conditioner(data, fitted.weights)
    columns = np.stack([*slopes[1:], gradient])
    gram = gram_with(columns[:, :, :-1], w, knots, metric[:, :-1])
    intercepts = columns[:, :, -1]
    gram[2 * len(knots) :, 2 * len(knots) :] += (intercepts * metric[:, -1]) @ intercepts.T
    return Observation(error, np.append(values_at(w, knots), values[1:]), gram, names=names)
