"""The methods of the arena: each chooses the weights of a loss in one training run, from the same start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.arena.problem import Batch, Instance
from tuneloss import Box
from tuneloss.torch import LinearLoss, OnlineTuner, observe
from tuneloss.torch.observing import ObserveOptions
from tuneloss.tuning import OnlinePolicy
from tuneloss.types import Array

STEPS_BETWEEN = 5  # training steps between two updates by a hypergradient
RATES = (0.02, 0.05, 0.15, 0.4)  # of the hypergradient and of alignment
RATE = 0.4  # of the hypergradient: the best of them by the mean over the choosing half
ALIGNMENT_RATES = {"sources": 0.4, "mixtures": 0.02}  # of alignment: the best of them for each kind, there
DEFAULTS = "2026-11, an eighth of the batches"  # the version of the defaults of OnlineTuner: raise it when they change


class Method:
    """A loss with weights; subclasses change the weights while the model trains.

    Parameters
    ----------
    instance : Instance
    weights : mapping
        The first weights.
    """

    def __init__(self, instance: Instance, weights: Mapping[str, float] | None) -> None:
        self.instance = instance
        self.loss = LinearLoss(instance.terms, box=instance.box, weights=weights)

    def backward(self, batch: Batch) -> None:
        """Compute the gradients of one training step."""
        self.loss(self.instance.model, batch).backward()

    def after_step(self, step: int) -> None:
        """Called after each training step."""

    def after_period(self, error: float) -> float:
        """Called after each measurement of the validation error; returns the number that decides which is best."""
        return error

    def weights(self) -> dict[str, float]:
        """Return the present weights."""
        return self.loss.as_dict()


class Online(Method):
    """OnlineTuner.

    Parameters
    ----------
    instance : Instance
    seed : int
        Of the observations.
    options : mapping
        What differs from the default options: `policy` and `observe` (keywords of ObserveOptions) are those of
        OnlineTuner; `selection` is the part of the validation examples that only decide which model is best;
        `steps_per_period` is how often to step between two measurements; `hold_after` is the part of the run after
        which the weights are held.
    """

    def __init__(self, instance: Instance, seed: int, options: Mapping[str, Any]) -> None:
        super().__init__(instance, None)
        validation, selection = instance.validation, None
        if options.get("selection"):
            halves = [cut(batch, options["selection"]) for batch in validation]
            selection, validation = map(list, zip(*halves, strict=True))
        steps = options.get("steps_per_period", 1)
        self.within_epochs = steps > 1 or instance.measures_per_epoch > 1
        periods = instance.epochs * len(instance.train) // instance.period
        self.hold_at = math.ceil(options["hold_after"] * periods) if "hold_after" in options else None
        self.measured = 0
        self.tuner = OnlineTuner(
            instance.model,
            self.loss,
            instance.error,
            instance.train,
            validation,
            selection=selection,
            every=max(1, instance.period // steps) if self.within_epochs else 1,
            policy=options.get("policy"),
            observe=ObserveOptions(seed=1000 * seed, **options.get("observe", {})),
            keep_best=False,
        )

    def after_step(self, step: int) -> None:
        if self.within_epochs:
            self.tuner.step()

    def after_period(self, error: float) -> float:
        if not self.within_epochs:
            self.tuner.step()
        self.measured += 1
        if self.measured == self.hold_at:
            self.tuner.hold()
        return error if self.tuner.selection is None else self.tuner.history[-1].score


def cut(batch: Batch, part: float) -> tuple[Batch, Batch]:
    """Cut a batch of tensors in two; the first has this part of the rows."""
    n = round(part * len(batch[0]))
    return tuple(column[:n] for column in batch), tuple(column[n:] for column in batch)


class Uncertainty(Method):
    """Kendall, Gal and Cipolla (2018): the weights are exp(-s), and s/2 is added, with s trained by Adam."""

    def __init__(self, instance: Instance, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(instance, None)
        self.s = nn.Parameter(torch.zeros(len(self.loss.names)))
        optimizer.add_param_group({"params": [self.s], "lr": 0.01})

    def backward(self, batch: Batch) -> None:
        values = self.loss.data_values(self.instance.model, batch)
        total = sum(torch.exp(-s) * values[name] + s / 2 for name, s in zip(self.loss.names, self.s, strict=True))
        total.backward()  # type: ignore[union-attr]

    def weights(self) -> dict[str, float]:
        return dict(zip(self.loss.names, torch.exp(-self.s.detach()).tolist(), strict=True))


class LossRatios(Method):
    """Dynamic weight average, Liu, Johns and Davison (2019): softmax of the ratios of the last two mean losses."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance, dict.fromkeys(LinearLoss(instance.terms, box=instance.box).names, 1.0))
        self.w = torch.ones(len(self.loss.names))
        self.now: list[Tensor] = []
        self.means: list[Tensor] = []

    def backward(self, batch: Batch) -> None:
        values = self.loss.data_values(self.instance.model, batch)
        terms = torch.stack([values[name] for name in self.loss.names])
        self.now.append(terms.detach())
        (self.w @ terms).backward()

    def after_period(self, error: float) -> float:
        self.means.append(torch.stack(self.now).mean(dim=0))
        self.now = []
        if len(self.means) > 1:
            ratios = self.means[-1] / self.means[-2].clamp(min=1e-9)
            self.w = len(ratios) * torch.softmax(ratios / 2.0, dim=0)
        return error

    def weights(self) -> dict[str, float]:
        return dict(zip(self.loss.names, self.w.tolist(), strict=True))


class Aggregated(Method):
    """Gradients of all terms, joined by an aggregator of TorchJD; it has no weights."""

    def __init__(self, instance: Instance) -> None:
        from torchjd.aggregation import UPGrad

        super().__init__(instance, None)
        self.join = UPGrad()

    def backward(self, batch: Batch) -> None:
        values = self.loss.data_values(self.instance.model, batch)
        params = list(self.instance.model.parameters())
        rows = []
        for name in self.loss.names:
            parts = torch.autograd.grad(values[name], params, retain_graph=True, allow_unused=True)
            rows.append(
                torch.cat(
                    [(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(parts, params, strict=True)]
                )
            )
        joined = self.join(torch.stack(rows)).split([p.numel() for p in params])
        for p, gradient in zip(params, joined, strict=True):
            p.grad = gradient.view_as(p).clone()


class Hypergradient(Method):
    """One-step hypergradients: the validation error after a step of training, differentiated by the log weights.

    The derivative by a weight is minus the inner product of the gradients of its term and of the error, on one batch
    each. Adam takes steps of `rate` in the log weights, every few training steps.
    """

    def __init__(self, instance: Instance, seed: int, rate: float, start: Mapping[str, float]) -> None:
        super().__init__(instance, start)
        box = self.loss.box
        self.upper = np.where(np.isfinite(box.upper), box.upper, 1e3)
        self.free = box.upper > box.lower
        self.least = np.log(np.where(self.free, np.maximum(box.lower, 1e-4 * self.upper), 1.0))
        w = np.array(self.loss.numbers())
        self.log = np.where(self.free, np.log(np.maximum(w, np.exp(self.least))), 0.0)
        self.pinned = np.where(self.free, 0.0, box.lower)
        self.rate, self.rng, self.calls = rate, np.random.default_rng(seed), 0
        self.mean, self.square = np.zeros(len(w)), np.zeros(len(w))
        self.last: Batch = None

    def backward(self, batch: Batch) -> None:
        self.last = batch
        super().backward(batch)

    def after_step(self, step: int) -> None:
        if step % STEPS_BETWEEN:
            return
        some = self.instance.validation[self.rng.integers(len(self.instance.validation))]
        gram = observe(self.instance.model, self.loss, self.instance.error, [self.last], [some]).gram
        assert gram is not None
        self.calls += 1
        self.log = np.clip(self.log + self.rate * self.direction(gram), self.least, np.log(self.upper))
        w = np.where(self.free, np.exp(self.log), self.pinned)
        if self.loss.box.is_simplex:
            w = w / w.sum()
            self.log = np.log(w)
        self.loss.set_weights(w)

    def direction(self, gram: Array) -> Array:
        """Return the step in the log weights, in units of the rate: Adam's."""
        gain = np.where(self.free, gram[:-1, -1] * np.exp(self.log), 0.0)
        self.mean = 0.9 * self.mean + 0.1 * gain
        self.square = 0.99 * self.square + 0.01 * gain**2
        mean, square = self.mean / (1 - 0.9**self.calls), self.square / (1 - 0.99**self.calls)
        return np.asarray(mean / (np.sqrt(square) + 1e-12))


class Alignment(Hypergradient):
    """Gradient alignment for mixtures, as in DoGE (arXiv:2310.15393) and DGA (arXiv:2410.02498), on a simplex.

    Exponentiated gradient: the log weight of a domain grows with the inner product of its gradient and the error's, in
    units of the largest, averaged over the last ten or so.
    """

    def direction(self, gram: Array) -> Array:
        self.mean = 0.9 * self.mean + 0.1 * gram[:-1, -1]
        mean = self.mean / (1 - 0.9**self.calls)
        return np.asarray((mean - mean.mean()) / (np.abs(mean).max() + 1e-300))


def start_of(instance: Instance) -> dict[str, float]:
    """Return first weights for methods that need positive ones: 1 or what the box allows, and little of a penalty."""
    loss = LinearLoss(instance.terms, box=instance.box)
    if isinstance(instance.box, Box) and instance.box.is_simplex:
        return dict.fromkeys(loss.names, 1 / len(loss.names))
    data = set(loss.layout.data)
    upper = dict(zip(loss.names, loss.box.upper.tolist(), strict=True))
    return {n: min(1.0, u) if n in data else (1e-2 * u if math.isfinite(u) else 1e-3) for n, u in upper.items()}


POLICIES: dict[str, dict[str, Any]] = {"online": {}}  # what is reported: the default options of OnlineTuner
CHOICES: dict[str, dict[str, Any]] = POLICIES | {  # what the defaults were chosen from; each changes them in one way
    "start at a rise": {"policy": OnlinePolicy(start="rise")},
    "free scale": {"policy": OnlinePolicy(hold_scale=0.0)},
    "scale never falls": {"policy": OnlinePolicy(hold_scale=1.0)},
    "window 1": {"policy": OnlinePolicy(window=1)},
    "window 10": {"policy": OnlinePolicy(window=10)},
    "damping 0": {"policy": OnlinePolicy(damping=0.0)},
    "damping 0.8": {"policy": OnlinePolicy(damping=0.8)},
    "values count too": {"policy": OnlinePolicy(epsilon="balanced")},
    "all parameters": {"observe": {"params": "*"}},
    "curvature metric": {"observe": {"gradient_metric": "curvature"}},
    "half of the batches": {"observe": {"batches": 0.5}},
    "three steps per period": {"steps_per_period": 3},
    "hold after half": {"hold_after": 0.5},
    "half for selection": {"selection": 0.5},
    "the policy before": {"policy": OnlinePolicy(start="rise", window=10, damping=0.7, hold_scale=0.0)},
    "the paper's policy": {"policy": OnlinePolicy.paper()},
}


def make_method(name: str, instance: Instance, optimizer: torch.optim.Optimizer, seed: int) -> Method:
    """Return the method of this name for an instance.

    Parameters
    ----------
    name : str
        "plain"; a name of `Instance.named`; "random 0" to "random 19"; "hypergradient 0.05" or "alignment 0.05" with
        its rate; "uncertainty", "loss ratios", "UPGrad"; or a name of `CHOICES`.
    """
    makers: dict[str, Callable[[], Method]] = {
        "plain": lambda: Method(instance, instance.plain),
        "uncertainty": lambda: Uncertainty(instance, optimizer),
        "loss ratios": lambda: LossRatios(instance),
        "UPGrad": lambda: Aggregated(instance),
    }
    if name in instance.named:
        return Method(instance, instance.named[name])
    if name in makers:
        return makers[name]()
    word, _, number = name.partition(" ")
    if word == "random":
        return Method(instance, instance.random(np.random.default_rng([seed, int(number)])))
    if word in ("hypergradient", "alignment"):
        kind = Hypergradient if word == "hypergradient" else Alignment
        return kind(instance, seed, float(number), start_of(instance))
    return Online(instance, seed, CHOICES[name])
