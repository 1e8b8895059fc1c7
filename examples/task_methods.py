"""Ways to weigh tasks: fixed weights, methods of the field, and OnlineTuner, each with options to choose from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from task_data import TASKS, Problem, all_tasks, main_loss
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tuneloss import Box
from tuneloss.torch import LinearLoss, OnlineTuner
from tuneloss.torch.observing import ObserveOptions

NAMES = ("main", *TASKS)
MOST = 10.0  # the largest weight of an auxiliary task; the main task has 1
LEAST = 1e-3  # the smallest weight that a hypergradient can reach
Batch = Mapping[str, Tensor]


class Method:
    """Fixed weights; subclasses change them while the model trains.

    Parameters
    ----------
    problem : Problem
    optimizer : Optimizer
        Of the model.
    seed : int
    weights : mapping of str to float, optional
        By default, each task has weight 1.
    """

    def __init__(
        self, problem: Problem, optimizer: Optimizer, seed: int, weights: Mapping[str, float] | None = None
    ) -> None:
        self.problem, self.optimizer = problem, optimizer
        self.trunk = list(problem.model.trunk.parameters())
        self.w = torch.ones(len(NAMES)) if weights is None else torch.tensor([weights.get(n, 0.0) for n in NAMES])

    def backward(self, batch: Batch) -> None:
        """Compute the gradients of one training step."""
        (self.w @ self.losses(batch)).backward()

    def losses(self, batch: Batch) -> Tensor:
        """Compute the losses of all tasks, in the order of NAMES."""
        values = all_tasks(self.problem.model, batch)
        return torch.stack([values[name] for name in NAMES])

    def after_step(self, step: int) -> None:
        """Called after each training step, counted from 1."""

    def after_epoch(self) -> None:
        """Called after each epoch."""

    def weights(self) -> dict[str, float]:
        """Return the present weights."""
        return dict(zip(NAMES, self.w.tolist(), strict=True))


class Online(Method):
    """OnlineTuner, with its options; it steps after each epoch, or with `cost` or `every` after each training step.

    With `simplex`, all weights sum to 1. Otherwise the main task has weight 1.
    """

    def __init__(
        self, problem: Problem, optimizer: Optimizer, seed: int, *, simplex: bool = False, **options: Any
    ) -> None:
        super().__init__(problem, optimizer, seed)
        pinned = {"main": 1.0} | dict.fromkeys(TASKS, (0.0, MOST))
        self.loss = LinearLoss({"tasks": all_tasks}, box=Box.simplex(NAMES) if simplex else pinned)
        self.within_epochs = not {"cost", "every"}.isdisjoint(options)
        observe = ObserveOptions(**{"seed": 1000 * seed} | options.pop("observe", {}))
        validation = [problem.validation]
        self.tuner = OnlineTuner(
            problem.model, self.loss, main_loss, problem.train, validation, observe=observe, keep_best=False, **options
        )

    def backward(self, batch: Batch) -> None:
        self.loss(self.problem.model, batch).backward()

    def after_step(self, step: int) -> None:
        if self.within_epochs:
            self.tuner.step()

    def after_epoch(self) -> None:
        if not self.within_epochs:
            self.tuner.step()

    def weights(self) -> dict[str, float]:
        return self.loss.as_dict()


class Uncertainty(Method):
    """Kendall, Gal and Cipolla (2018): weights exp(-s), or half of it for regression, with s trained by Adam."""

    def __init__(self, problem: Problem, optimizer: Optimizer, seed: int, *, rate: float) -> None:
        super().__init__(problem, optimizer, seed)
        self.s = nn.Parameter(torch.zeros(len(NAMES)))
        self.factor = torch.tensor([0.5 if name == "denoise" else 1.0 for name in NAMES])
        optimizer.add_param_group({"params": [self.s], "lr": rate})

    def backward(self, batch: Batch) -> None:
        w = self.factor * torch.exp(-self.s)
        (w @ self.losses(batch) + self.s.sum() / 2).backward()
        self.w = w.detach()


class GradNorm(Method):
    """Chen et al. (2018): equal norms of weighted gradients in the last shared layer, larger for slow tasks."""

    def __init__(self, problem: Problem, optimizer: Optimizer, seed: int, *, alpha: float, rate: float) -> None:
        super().__init__(problem, optimizer, seed)
        self.alpha, self.free = alpha, nn.Parameter(torch.ones(len(NAMES)))
        self.adam = Adam([self.free], lr=rate)
        self.first: Tensor | None = None

    def backward(self, batch: Batch) -> None:
        losses = self.losses(batch)
        self.first = losses.detach() if self.first is None else self.first
        shared = self.problem.model.trunk[2].weight
        norms = [torch.autograd.grad(loss, shared, retain_graph=True)[0].norm() for loss in losses]
        weighted = self.free * torch.stack(norms)
        slow = losses.detach() / self.first
        target = weighted.mean().detach() * (slow / slow.mean()) ** self.alpha
        (self.free.detach() @ losses).backward()
        self.adam.zero_grad()
        (weighted - target).abs().sum().backward()
        self.adam.step()
        with torch.no_grad():
            self.free.clamp_(min=LEAST).mul_(len(NAMES) / self.free.sum())
        self.w = self.free.detach().clone()


class LossRatios(Method):
    """Dynamic weight average, Liu, Johns and Davison (2019): softmax of the ratios of the last two mean losses."""

    def __init__(self, problem: Problem, optimizer: Optimizer, seed: int, *, temperature: float) -> None:
        super().__init__(problem, optimizer, seed)
        self.temperature = temperature
        self.now: list[Tensor] = []
        self.means: list[Tensor] = []

    def losses(self, batch: Batch) -> Tensor:
        losses = super().losses(batch)
        self.now.append(losses.detach())
        return losses

    def after_epoch(self) -> None:
        self.means.append(torch.stack(self.now).mean(dim=0))
        self.now = []
        if len(self.means) > 1:
            ratios = self.means[-1] / self.means[-2]
            self.w = len(NAMES) * torch.softmax(ratios / self.temperature, dim=0)


class Joined(Method):
    """Each head has the gradient of its own task; the trunk joins the gradients (k, n) of all tasks in some way."""

    def __init__(self, problem: Problem, optimizer: Optimizer, seed: int, *, join: Callable[[Tensor], Tensor]) -> None:
        super().__init__(problem, optimizer, seed)
        self.join = join

    def backward(self, batch: Batch) -> None:
        losses = self.losses(batch)
        rows = [torch.autograd.grad(loss, self.trunk, retain_graph=True) for loss in losses]
        losses.sum().backward()  # also into the trunk, where it is replaced
        joined = self.join(torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]))
        for p, part in zip(self.trunk, joined.split([p.numel() for p in self.trunk]), strict=True):
            p.grad = part.view_as(p).clone()

    def weights(self) -> dict[str, float]:
        return {}


def gated(gradients: Tensor) -> Tensor:
    """Add to the main task's gradient those of tasks whose cosine with it is positive (Du et al. 2018)."""
    return (gradients @ gradients[0] > 0).to(gradients) @ gradients


def by_cosine(gradients: Tensor) -> Tensor:
    """Add to the main task's gradient the others, each times its cosine with it if that is positive (Du et al.)."""
    norms = gradients.norm(dim=1)
    cosines = gradients @ gradients[0] / (norms * norms[0]).clamp(min=1e-12)
    return cosines.clamp(min=0) @ gradients


def torchjd(name: str) -> Callable[[Tensor], Tensor]:
    """Return an aggregator of TorchJD."""
    import torchjd.aggregation

    join: Callable[[Tensor], Tensor] = getattr(torchjd.aggregation, name)()
    return join


class Hypergradient(Method):
    """One-step hypergradients: the validation loss after one training step, differentiated by the log weights.

    The derivative by a weight is minus the inner product of the gradients of its task and of the validation loss. Adam
    takes steps of `rate` in the log weights, every few training steps.
    """

    def __init__(self, problem: Problem, optimizer: Optimizer, seed: int, *, rate: float, every: int) -> None:
        super().__init__(problem, optimizer, seed)
        self.every = every
        self.log = nn.Parameter(torch.zeros(len(TASKS)))
        self.adam = Adam([self.log], lr=rate, betas=(0.9, 0.99))

    def backward(self, batch: Batch) -> None:
        self.batch = batch
        super().backward(batch)

    def after_step(self, step: int) -> None:
        if step % self.every:
            return
        params = [*self.trunk, *self.problem.model.heads["main"].parameters()]
        of_error = torch.autograd.grad(main_loss(self.problem.model, self.problem.validation), params)
        gains = []
        for loss in self.losses(self.batch)[1:]:
            of_task = torch.autograd.grad(loss, self.trunk, retain_graph=True)
            gains.append(sum((a * b).sum() for a, b in zip(of_task, of_error, strict=False)))
        self.log.grad = -torch.stack(gains) * self.w[1:]
        self.adam.step()
        with torch.no_grad():
            self.log.clamp_(math.log(LEAST), math.log(MOST))
        self.w = torch.cat([torch.ones(1), torch.exp(self.log.detach())])
