"""One pass over the loaders: which batches are read, put together and evaluated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import first_shape, rows_of, size
from tuneloss.torch.observing.batches import Count, batches, merged, number_of, saved_bytes
from tuneloss.torch.observing.preserve import random_state, seed_everything
from tuneloss.torch.observing.processes import Processes
from tuneloss.torch.observing.sampling_noise import PARTS, Contrast, Spread
from tuneloss.torch.observing.sums import BATCHES, ERROR, HALF, METRIC, PASSES, STEP, VALIDATION, WORK, Sums
from tuneloss.torch.sources.target_mix import TargetMix
from tuneloss.torch.terms.data_terms import Batch, DataTerm, as_scalar
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.wrappers import trainable

ROOM = 32 * 2**20  # bytes: batches are merged as long as the tensors that autograd saves take no more than this
TOGETHER = 32  # largest number of batches to merge
TRIALS = (2, 4)  # examples on which it is measured what autograd saves
Error = Callable[[Any, Batch], Tensor]
Fits = dict[Hashable, int | None]  # see `Pass`


class Pass:
    """A pass over the validation batches and the training batches, which fills `sums` and `spread`.

    Parameters
    ----------
    model : Module
        The model without wrappers.
    sums : Sums
        Where values and gradients are added.
    processes : Processes
        The processes that observe together.
    draws, seed, merge : int, int, bool
        As for `observe`.
    keep : int, default 0
        How many training examples to keep, about. If any, the gradient of the error is also summed over a half of the
        validation batches.
    fits : dict, optional
        How many examples fit into memory, as earlier passes with the same model and terms found out; it is extended.
        Its keys are what the batches are for, how many examples are wanted, and shapes.

    Attributes
    ----------
    kept : list of batches
        The first training batches, as the loader gave them.
    contrast : Contrast or None
        A vector of the noise of the training batches, if they are not all and some are kept.
    """

    def __init__(
        self,
        model: nn.Module,
        sums: Sums,
        processes: Processes,
        *,
        draws: int,
        seed: int,
        merge: bool,
        keep: int = 0,
        fits: Fits | None = None,
    ) -> None:
        self.model, self.sums, self.processes = model, sums, processes
        self.draws, self.seed, self.merge, self.keep = draws, seed, merge, keep
        self.fits = {} if fits is None else fits
        self.kept: list[Batch] = []
        self.work = 0.0  # examples times passes
        self.spread = Spread((), torch.ones(0))  # of the training batches
        self.contrast: Contrast | None = None
        self.device = next(iter(trainable(model).values())).device

    def validation(self, error: Error, metric: Error | None, loader: Any, count: Count) -> None:
        """Sum the error over all batches, its gradient over the first `count` of them, and the metric."""
        self._each(loader, lambda part: self._validation(error, metric, part, count))

    def selection(self, metric: Error, loader: Any) -> None:
        """Sum the metric over the batches that decide which model is better."""

        def score(part: Any) -> None:
            number_of(part, None, "selection")  # it must have an end
            for batch in self._read(part, None, "selection"):
                self._score(metric, batch)

        self._each(loader, score)

    def _each(self, loader: Any, add: Callable[[Any], None]) -> None:
        """Add a loader to the sums; of a `TargetMix`, each set, which counts by its share instead of its size."""
        if not isinstance(loader, TargetMix):
            add(loader)
            return
        total = self.sums
        for _, share, part in loader.parts:
            self.sums = Sums(total.params, self.processes)
            add(part)
            total.add_means(self.sums, share)
        self.sums = total

    def _validation(self, error: Error, metric: Error | None, loader: Any, count: Count) -> None:
        number_of(loader, None, "validation")  # it must have an end
        read = self._read(loader, None, "validation")
        number = number_of(loader, count, "validation_batches")
        in_parts = bool(self.keep)
        some = islice(read, number)
        larger = self._larger("validation", some, lambda batch: error(self.model, batch), number, in_parts=in_parts)
        for at, (with_gradient, batch) in enumerate(chain(zip(repeat(True), larger), zip(repeat(False), read))):
            n = size(batch)
            with torch.set_grad_enabled(with_gradient):
                value = as_scalar("error", error(self.model, batch))
            self.sums.add_value(ERROR, value, n)
            self.sums.counts[VALIDATION] += n
            self.work += n * (1 + PASSES * with_gradient)
            if with_gradient:
                self.sums.counts[ERROR] += n
                gradient, times = self.sums.add_gradient(ERROR, value, n, last=True)
                if self.keep and at % 2 == 0:
                    first = batch
                    self.sums.add_to(HALF, gradient, times)
                    self.sums.counts[HALF] += n
            if metric is not None:
                self._score(metric, batch)
        if self.keep and self.sums.counts[HALF] == self.sums.counts[ERROR]:
            self._split(error, first)

    def _split(self, error: Error, batch: Batch) -> None:
        """Let the first half be every second example of the only batch."""
        if size(batch) < 2:
            raise InvalidInput(
                'gradient_metric="curvature" compares two halves of the validation examples; found one example. Give '
                "at least two."
            )
        half = rows_of(batch, slice(0, None, 2))
        del self.sums.gradients[HALF]
        self.sums.counts[HALF] = size(half)
        self.sums.add_gradient(HALF, as_scalar("error", error(self.model, half)), size(half), last=True)

    def _score(self, metric: Error, batch: Batch) -> None:
        n = size(batch)
        self.work += n
        with torch.no_grad():
            self.sums.add_value(METRIC, _number(metric(self.model, batch)), n)
        self.sums.counts[METRIC] += n

    def training(self, loss: LinearLoss, loader: Any, count: Count) -> None:
        """Sum all data terms and their gradients: plain terms together, random terms draw by draw."""
        if not self.processes.may_merge and any(term.needs_numbers for term in loss.data_terms):
            raise InvalidInput(
                "Under FSDP2, each batch must have rows of all sources, since each forward exchanges messages; found a "
                "`PerSource` with a `key`. Read one batch of each source with a SourceLoader."
            )
        number, length = number_of(loader, count, "batches"), number_of(loader, None, "batches")
        may_go_on = number is not None and length is None
        share = torch.tensor(_shares(loader, number, length, list(loss.layout.data)), dtype=torch.float64)
        compares = may_go_on or bool((share < 1).any()) or self.processes.several
        self.spread = Spread(tuple(loss.layout.data), share, compares=compares)
        self.contrast = Contrast(np.random.default_rng(self.seed)) if compares and self.keep else None
        read = self._read(loader, number, "train")
        trial = partial(loss.data_values, self.model)
        larger = self._larger("train", read, trial, number, in_parts=compares)
        groups = loss.forwards()
        for at, batch in enumerate(larger):
            for terms in groups:
                draws = self.draws if terms[0].is_random else 1
                for draw in range(draws):
                    self._terms(loss, terms, batch, 1 / draws, (at, draw))
            self.sums.counts[STEP] += size(batch) * (1 + PASSES) * max(sum(map(loss.counts_in, groups)), 1)
            self.spread.end_part(list(self.sums.params.values()))
            if self.contrast is not None:
                self.contrast.end_part(size(batch))
        if may_go_on and self.sums.counts[BATCHES] == number:
            self.spread.share.zero_()  # the loader did not end: these are some of infinitely many batches
        self.sums.counts[WORK] = self.work

    def _terms(
        self, loss: LinearLoss, terms: Sequence[DataTerm], batch: Batch, times: float, draw: tuple[int, int]
    ) -> None:
        """Add data terms on a batch that counts some times; `draw` is the number of the batch and that of the draw."""
        seed_everything(self.seed, *draw)
        for part in terms[0].parts(batch, together=self._normalizes_by_batch):
            rows = {name: size(of_source) for name, of_source in part.items()} if terms[0].of_sources else {}
            values = loss.data_values(self.model, part, of=terms)
            self.work += size(part) * (1 + PASSES * len(values))
            for position, (name, value) in enumerate(values.items()):
                n = times * rows.get(name, size(part))
                self.sums.counts[name] += n
                self.sums.add_value(name, value.detach(), n)
                gradient, factor = self.sums.add_gradient(name, value, n, last=position == len(values) - 1)
                self.spread.add(name, gradient, list(self.sums.params.values()), factor, n)
                if self.contrast is not None:
                    self.contrast.add(name, gradient, factor)

    def _read(self, loader: Any, number: int | None, what: str) -> Iterator[Batch]:
        """Yield the first batches of a loader, and count them."""
        for batch in self.processes.read(batches(loader, number, what, self.device)):
            if what == "train":
                self.sums.counts[BATCHES] += 1
            if what == "train" and sum(map(size, self.kept)) < self.keep:
                self.kept.append(batch)
            yield batch

    @property
    def may_merge(self) -> bool:
        """Whether batches may be merged now. They must stay as they are if a batch norm normalizes by the batch."""
        return self.merge and self.processes.may_merge and not self._normalizes_by_batch

    @property
    def _normalizes_by_batch(self) -> bool:
        """Whether a batch norm normalizes by the batch now, so that the rows of a forward depend on each other."""
        norms = [module for module in self.model.modules() if isinstance(module, _BatchNorm)]
        return any(norm.training or norm.running_mean is None for norm in norms)

    def _larger(
        self,
        what: str,
        read: Iterator[Batch],
        trial: Callable[[Batch], object],
        number: int | None,
        *,
        in_parts: bool,
    ) -> Iterator[Batch]:
        """Merge batches as far as memory allows; trials on the first batch measure what they need.

        With `in_parts`, several parts of the `number` batches remain, to be compared.
        """
        most = min(TOGETHER, max(1, (number or 1) // PARTS) if in_parts else number or TOGETHER)
        if most == 1 or not self.may_merge:
            return read
        first = next(read, None)
        if first is None:
            return read
        wanted = most * size(first)
        key = what, wanted, first_shape(first), len(self.sums.params)
        if key not in self.fits:
            with random_state(()):
                self.fits[key] = self._that_fit(wanted, first, trial)
        read, examples = chain([first], read), self.fits[key]
        return read if examples is None else merged(read, examples)

    def _that_fit(self, wanted: int, batch: Batch, trial: Callable[[Batch], object]) -> int | None:
        """Return how many of the wanted examples fit into ROOM, or None if that cannot be measured.

        What autograd saves is a constant plus a number of bytes per example. Trials on a few examples of a batch
        measure both. If the batch has fewer examples, cannot be cut, or the trials fail, the whole batch is tried, and
        everything that is saved counts as per example.
        """
        few, more = TRIALS
        if size(batch) >= more:
            with suppress(Exception):  # a term may need more examples than these
                of_few = saved_bytes(self.model, trial, rows_of(batch, slice(few)))
                if wanted * of_few <= few * ROOM:  # they fit, even if nothing of it is constant
                    return wanted
                of_more = saved_bytes(self.model, trial, rows_of(batch, slice(more)))
                per_example = max((of_more - of_few) / (more - few), 1)
                return min(wanted, more + int((ROOM - of_more) / per_example))
        try:
            return min(wanted, int(ROOM / max(saved_bytes(self.model, trial, batch) / size(batch), 1)))
        except RuntimeError:  # hooks do not work in torch.func; any other error will be raised again
            return None


def _shares(loader: Any, number: int | None, length: int | None, names: Sequence[str]) -> list[float]:
    """Return which part of all batches is read, by data term."""
    share = number / length if number and length else 1.0
    shares = getattr(loader, "shares", None)  # of a SourceLoader, which may be wrapped
    of_sources = {} if shares is None or number is None else shares(number)
    return [of_sources.get(name, share) for name in names]


def _number(value: Any) -> Tensor:
    """Return what a metric gave, which is often a Python number, as a scalar tensor."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(
            f"A metric must return a number, a mean over the batch; found a {type(value).__name__}. Return a number, "
            "or leave `metric` out."
        ) from None
    return as_scalar("metric", tensor)
