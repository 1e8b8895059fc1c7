"""One pass over the loaders: values and gradients summed over batches, and the observation made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm

from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.torch.observing.batches import Count, batches, merged, number_of, saved_bytes, size
from tuneloss.torch.observing.fsdp import gradient_divisors, sharded_gradient
from tuneloss.torch.observing.gram import gram_and_values
from tuneloss.torch.observing.preserve import seed_everything
from tuneloss.torch.observing.processes import in_step, sum_over, symmetric, upper
from tuneloss.torch.observing.sampling_noise import PARTS, Spread, nearest_gram, products, sampled
from tuneloss.torch.shards import is_sharded
from tuneloss.torch.terms.data_terms import Batch
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.selection import Select, matches, trainable
from tuneloss.torch.terms.source import check_scalar

ROOM = 32 * 2**20  # bytes: small batches are put together until what they save for their gradients takes this much
TOGETHER = 32  # batches, at most
ERROR, METRIC = "the error", "the metric"
Error = Callable[[Any, Batch], Tensor]


@dataclass
class Pass:
    """Sums over batches: values, and gradients by name of the term; the error is called ERROR."""

    model: nn.Module
    group: ProcessGroup | None
    everything: dict[str, Tensor]
    chosen: dict[str, Tensor]
    divisors: list[float] | None  # under FSDP2
    draws: int
    seed: int
    merge: bool
    values: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, list[Tensor | None]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    spread: Spread = field(default_factory=lambda: Spread(()))  # of the training batches

    @classmethod
    def over(cls, model: nn.Module, group: ProcessGroup | None, params: Select | None, **options: Any) -> Pass:
        everything = trainable(model)
        chosen = everything
        if params is not None:
            chosen = {name: p for name, p in everything.items() if matches(params, name, p)}
            if not chosen:
                raise InvalidInput(
                    f"`params` must select a parameter that is trained; found none among {list(everything)}."
                )
        divisors = gradient_divisors(model, list(chosen.values())) if is_sharded(model) else None
        return cls(model, group, everything, chosen, divisors, **options)

    @property
    def device(self) -> torch.device:
        return next(iter(self.everything.values())).device

    def validation(self, error: Error, metric: Error | None, loader: Any, count: Count) -> None:
        """The error over all batches and its gradient over the first of them; and the metric."""
        read = self._read(loader, None, "validation")
        first = islice(read, number_of(loader, count, "validation_batches"))
        larger = self._larger(first, lambda batch: error(self.model, batch), TOGETHER)
        for with_gradient, batch in chain(zip(repeat(True), larger), zip(repeat(False), read)):
            n = size(batch)
            with torch.set_grad_enabled(with_gradient):
                value = _scalar(error(self.model, batch), "error")
            self._add_value(ERROR, value, n)
            self._count("validation", n)
            if with_gradient:
                self._count(ERROR, n)
                self._add_gradient(ERROR, value, n, last=True)
            if metric is not None:
                with torch.no_grad():
                    self._add_value(METRIC, _number(metric(self.model, batch)), n)

    def training(self, loss: LinearLoss, loader: Any, count: Count) -> None:
        """All data terms and their gradients; plain ones together, random ones draw by draw."""
        plain = [s for s in loss.sources if not s.is_random]
        number, length = number_of(loader, count, "batches"), number_of(loader, None, "batches")
        share = number / length if number and length else 1.0
        may_go_on = number is not None and length is None
        compares = share < 1 or may_go_on or (self.group is not None and count is not None)
        self.spread = Spread(loss.data_names, share, compares=compares)
        most = min(TOGETHER, max(1, (number or 1) // PARTS)) if self.spread.compares else TOGETHER
        read = self._read(loader, number, "train")
        for at, batch in enumerate(self._larger(read, lambda batch: loss.data_values(self.model, batch), most)):
            n = size(batch)
            self._count("train", n)
            self._terms(loss, plain, batch, n, at, 0)
            for source in loss.sources:
                if source.is_random:
                    for draw in range(self.draws):
                        self._terms(loss, [source], batch, n / self.draws, at, draw)
            self.spread.end_part(n)
        if may_go_on and self.counts["batches of train"] == number:
            self.spread.share = 0.0  # it did not end: some batches of infinitely many

    def _terms(self, loss: LinearLoss, sources: Sequence[Any], batch: Batch, n: float, number: int, draw: int) -> None:
        if not sources:
            return
        seed_everything(self.seed, number, draw)
        values = loss.data_values(self.model, batch, of=sources)
        for position, (name, value) in enumerate(values.items()):
            self._add_value(name, value.detach(), n)
            self._add_gradient(name, value, n, last=position == len(values) - 1)

    def _read(self, loader: Any, number: int | None, what: str) -> Iterator[Batch]:
        read = batches(loader, number, what, self.device)
        for batch in read if self.divisors is None else in_step(read, self.group):
            self._count(f"batches of {what}", 1)
            yield batch

    def _larger(self, read: Iterator[Batch], trial: Callable[[Batch], object], most: int) -> Iterator[Batch]:
        """Small batches put together, at most so many, as the memory allows that a trial on the first one shows."""
        bound = any(_takes_statistics(module) for module in self.model.modules())
        first = next(read, None) if self.merge and self.divisors is None and not bound else None
        if first is None:
            return read
        try:
            with saved_bytes(self.model) as saved:
                trial(first)
        except RuntimeError:  # torch.func does not let itself be watched; if it is another error it will come again
            return chain([first], read)
        examples = min(int(ROOM / max(saved.bytes / size(first), 1)), most * size(first))
        return merged(chain([first], read), examples)

    def _count(self, what: str, n: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + n

    def _add_value(self, name: str, value: Tensor, n: float) -> None:
        number = float(value.detach())
        if self.group is None:  # else after the sum: so that all processes raise, and none waits for another
            _check_finite(name, number)
        self.values[name] = self.values.get(name, 0.0) + n * number

    def _add_gradient(self, name: str, value: Tensor, n: float, *, last: bool) -> None:
        params = list(self.chosen.values())
        if not value.requires_grad:
            raise _independent(name)
        found: Sequence[Tensor | None]
        times = n if self.divisors is None else 1.0  # under FSDP2 n counts before the sum over processes
        if self.divisors is not None:
            others = [p for name, p in self.everything.items() if name not in self.chosen]
            found = sharded_gradient(n * value, params, self.divisors, others=others, retain_graph=not last)
        else:
            found = torch.autograd.grad(value, params, retain_graph=not last, allow_unused=True)
        found = [g.to_dense() if g is not None and g.is_sparse else g for g in found]
        if name != ERROR:
            self.spread.add(name, found, params, times)
        sums = self.gradients.setdefault(name, [None] * len(params))
        for i, gradient in enumerate(found):
            if gradient is not None:
                if sums[i] is None:
                    dtype = torch.promote_types(gradient.dtype, torch.float32)
                    sums[i] = torch.zeros_like(gradient, dtype=dtype)
                sums[i].add_(gradient, alpha=times)  # type: ignore[union-attr]

    def observation(self, loss: LinearLoss, *, with_metric: bool) -> Observation:
        k, names = len(loss.names), list(loss.data_names)
        for name in [*names, ERROR]:
            if name not in self.gradients or (
                len(self.chosen) == len(self.everything) and all(g is None for g in self.gradients[name])
            ):
                raise _independent(name)
        columns = {name: j for j, name in enumerate(loss.names) if name in names} | {ERROR: k}
        if self.divisors is None:
            self._sum_gradients(list(columns))
        gradients = {
            j: {n: g for n, g in zip(self.chosen, self.gradients[name], strict=True) if g is not None}
            for name, j in columns.items()
        }
        gram, values = gram_and_values(self.everything, loss.penalty_terms(), gradients, k, inside=self.chosen)
        noise = self._noise(gram, names, [columns[name] for name in names])
        for name, j in columns.items():
            values[j] = self.values[name]
        counts = [float(self.counts[n]) for n in ("train", "validation", ERROR)]
        rest = torch.tensor([self.values.get(METRIC, 0.0), *counts], dtype=torch.float64)
        data = list(columns.values())
        gram, noise, values, rest = self._sum_numbers(gram, noise, values, rest, data=data)
        for name, number in [*((name, values[j]) for name, j in columns.items()), (METRIC, rest[0])]:
            _check_finite(name, float(number))
        if bad := [name for name, j in columns.items() if not math.isfinite(gram[j, j])]:
            raise NotFinite(
                f"Gradients must be finite; those of {bad} are not, though their values are. Look for a square root "
                "or a division at 0 in them."
            )
        if noise.any() and bool(gram.isfinite().all()):  # else the observation says what is wrong
            gram = nearest_gram(gram - noise, gram.diagonal().sqrt())
        metric, n_train, n_validation, n_gradient = rest.tolist()
        unit_value, unit_gradient = torch.ones(2, k + 1, dtype=torch.float64)
        for j in columns.values():
            unit_value[j] = unit_gradient[j] = n_train
        unit_value[k], unit_gradient[k] = n_validation, n_gradient
        values, gram = values / unit_value, gram / unit_gradient / unit_gradient.unsqueeze(1)
        return Observation(
            float(values[k]),
            values[:k].numpy(),
            gram.numpy(),
            metric=metric / n_validation if with_metric else None,
            names=loss.names,
        )

    def _noise(self, gram: Tensor, names: Sequence[str], at: list[int]) -> Tensor:
        """What the choice of batches added to the gram, in the rows and columns `at` of the data terms."""
        noise = torch.zeros_like(gram)
        if self.spread.compares and names:
            n, squares = self._sizes_of_parts()
            params, places = list(self.chosen.values()), torch.tensor(at)
            total = products([sampled(self.gradients[name], params) for name in names])
            noise[places.unsqueeze(1), places] = self.spread.excess(total, n, squares)
        return noise

    def _sizes_of_parts(self) -> tuple[float, float]:
        """Sums of their sizes and of the squares.

        Under DDP the parts are those of all processes; under FSDP2 each is made of one of every process. The share is
        the mean of theirs.
        """
        sizes = torch.tensor(self.spread.sizes, dtype=torch.float64)
        found, share = torch.stack([sizes.sum(), sizes.square().sum()]), torch.tensor([self.spread.share, 1.0]).double()
        if self.group is not None:
            sharded, matrix = self.divisors is not None, self.spread.products.reshape(-1)
            message = torch.cat([sizes if sharded else torch.cat([matrix, found]), share]).to(self.device)
            sum_over([message], self.group)
            summed, share = torch.split(message.cpu(), [len(message) - 2, 2])
            if sharded:
                found = torch.stack([summed.sum(), summed.square().sum()])
            else:
                self.spread.products, found = summed[:-2].view_as(self.spread.products), summed[-2:]
            self.spread.share = float(share[0] / share[1])
        return float(found[0]), float(found[1])

    def _sum_gradients(self, names: list[str]) -> None:
        """Under DDP: each gradient is summed over processes before the gram is formed of them."""
        if self.group is None:
            return
        for name in names:
            for i, p in enumerate(self.chosen.values()):
                if self.gradients[name][i] is None:
                    dtype = torch.promote_types(p.dtype, torch.float32)
                    self.gradients[name][i] = torch.zeros_like(p, dtype=dtype)
            sum_over([g for g in self.gradients[name] if g is not None], self.group)

    def _sum_numbers(
        self, gram: Tensor, noise: Tensor, values: Tensor, rest: Tensor, *, data: list[int]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One message: under DDP what was summed over batches, under FSDP2 the grams of the shards as well."""
        if self.group is None:
            return gram, noise, values, rest
        whole, sharded = values.clone(), self.divisors is not None
        parts = [values, rest, upper(gram), upper(noise[:-1, :-1])] if sharded else [values, rest]  # no noise in ERROR
        message = torch.cat(parts).to(self.device)
        sum_over([message], self.group)
        split = torch.split(message.cpu(), [len(part) for part in parts])
        if sharded:
            noise = torch.nn.functional.pad(symmetric(split[3], len(gram) - 1), (0, 1, 0, 1))
            return symmetric(split[2], len(gram)), noise, split[0], split[1]
        whole[data] = split[0][data]  # penalties are the same in every process
        return gram, noise, whole, split[1]


def _takes_statistics(module: nn.Module) -> bool:
    """Whether it is a batch norm that normalizes by the batch, so that the batch must stay as it is."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def _number(value: Any) -> Tensor:
    """What a metric returned, which is often a Python number, as a scalar."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(
            f"A metric must return a number, a mean over the batch; found a {type(value).__name__}. Return a number, "
            "or leave `metric` out."
        ) from None
    return _scalar(tensor, "metric")


def _scalar(value: Tensor, name: str) -> Tensor:
    check_scalar(name, value)
    return value.reshape(())


def _check_finite(name: str, number: float) -> None:
    if not math.isfinite(number):
        raise NotFinite(
            f"Values must be finite; {name!r} is {number} on a batch. If training diverged, go back "
            "to the best model (`OnlineTuner.restore_best`) or lower the learning rate."
        )


def _independent(name: str) -> InvalidInput:
    return InvalidInput(
        f"Each data term and the error must depend on parameters that are trained; {name!r} does not. Leave it out, or "
        "check for a detach(), a no_grad() or a frozen model in it."
    )
