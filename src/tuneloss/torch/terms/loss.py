"""A training loss that is a weighted sum of terms, with weights that can be set and saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tuneloss.core.box import Box
from tuneloss.errors import InvalidInput
from tuneloss.torch.shards import reshard
from tuneloss.torch.terms.data_terms import Batch, SharedForward, Term
from tuneloss.torch.terms.layout import Bounds, loss_box, weight_names
from tuneloss.torch.terms.penalties import Penalty
from tuneloss.torch.terms.piecewise import ConvexPiecewiseLinear
from tuneloss.torch.terms.selection import trainable
from tuneloss.torch.terms.source import Source, describe, takes_model_and_batch
from tuneloss.types import Array


class LinearLoss(nn.Module):
    """loss(model, batch) = sum over terms of weight * term.

    Terms are of two kinds. Data terms are callables (model, batch) -> scalar, a mean over the batch; penalties, such
    as `L2()`, are sums over parameters. Terms of weight 0 are not evaluated, unless one forward gives them anyway.
    Terms that make the same call of the model, such as model(batch[0]), share it.

    terms: {name: term}; or a list, where a callable may also return {name: scalar}, several terms of one forward.
    box: {term: (lower, upper) or a number that pins it}, the bound of a term with several weights being that of each;
        or a `Box`, e.g. `Box.simplex(names)`.
    weights: to begin with; if not given the lower bounds (on a simplex, all equal).
    normalize: divide by the sum of the data terms' weights, so that a learned weight does not change the step size
        under SGD. Off by default: then the loss is what its weights say, penalties keep their strength
        relative to the pinned term, and Adam or AdaGrad do not feel the size of a loss anyway.
    share_forward: off, each term calls the model itself, with its own draw of the model's dropout. While it is on,
        terms are given a stand-in for the model, which is called and read like it but is no `nn.Module`.

    `weights` is a buffer (k,): it is in the state dict and moves with `.to()`. `box` and `names` give its order.

    >>> from tuneloss.torch import L2
    >>> log_loss = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
    >>> loss = LinearLoss({"logloss": log_loss, "l2": L2()}, box={"logloss": 1.0, "l2": (0, 0.1)})
    >>> loss.set_weights({"l2": 0.01})
    >>> model, batch = nn.Linear(3, 2), (torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> loss(model, batch).backward()
    >>> list(loss.last)
    ['l2', 'logloss']
    """

    weights: Tensor

    def __init__(
        self,
        terms: Mapping[str, Term | Penalty] | Sequence[Term | Penalty],
        box: Bounds,
        *,
        weights: Mapping[str, float] | ArrayLike | None = None,
        normalize: bool = False,
        share_forward: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(terms, Mapping | Sequence):
            raise InvalidInput(f"`terms` must be {{name: term}} or a list of terms; found a {type(terms).__name__}.")
        named = isinstance(terms, Mapping)
        pairs = list(terms.items()) if isinstance(terms, Mapping) else [(None, term) for term in terms]
        _check_terms(pairs)
        self.penalty_names = [name or term.name for name, term in pairs if isinstance(term, Penalty)]
        self.penalties = nn.ModuleList([term for _, term in pairs if isinstance(term, Penalty)])
        self.sources = [Source(term, name) for name, term in pairs if not isinstance(term, Penalty)]
        self.modules_of_terms = nn.ModuleList([s.term for s in self.sources if isinstance(s.term, nn.Module)])
        known = [(name, p.labels()) for name, p in self._penalties()]
        known += [(s.names[0], [""]) for s in self.sources if s.names is not None]
        full, labels = [n for name, own in known for n in weight_names(name, own)], dict(known)
        if len(set(full)) < len(full) or len(labels) < len(known):
            raise InvalidInput(
                f"Terms and their weights must have different names; found {full}. Rename some in a dict of terms."
            )
        self.box = loss_box(box, labels, others=not named)
        self._of_penalty = {
            name: [self.names.index(n) for n in weight_names(name, labels[name])] for name in self.penalty_names
        }
        taken = {j for positions in self._of_penalty.values() for j in positions}
        self.data_names = tuple(name for j, name in enumerate(self.names) if j not in taken)
        if normalize and any(self.box.lower[self.names.index(name)] < 0 for name in self.data_names):
            raise InvalidInput(
                f"With normalize=True the weights of data terms must not be negative; found {self.box}. Raise the "
                "lower bounds to 0, or leave it off."
            )
        self.normalize, self.share_forward = normalize, share_forward
        self._last: dict[str, Tensor] = {}
        self._numbers: tuple[Tensor | None, int, list[float]] = (None, 0, [])
        start = _start(self.box) if weights is None else self.box.lower
        self.register_buffer("weights", torch.tensor(start, dtype=torch.get_default_dtype()))
        self.register_load_state_dict_pre_hook(_refuse_another_loss)  # type: ignore[no-untyped-call]
        if weights is not None:
            self.set_weights(weights)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the weights, in their order."""
        return self.box.names

    @property
    def last(self) -> dict[str, float]:
        """The value of each term that the last call evaluated; of a penalty with several weights, its weighted sum."""
        return {name: float(value) for name, value in self._last.items()}

    def as_dict(self) -> dict[str, float]:
        """The weights by name."""
        return dict(zip(self.names, self.numbers(), strict=True))

    def numbers(self) -> list[float]:
        """The weights as Python numbers; read from the buffer only when it has changed.

        While torch.compile traces, versions say nothing.
        """
        known, version, numbers = self._numbers
        if torch.compiler.is_compiling() or known is not self.weights or version != self.weights._version:
            numbers = self.weights.tolist()
            self._numbers = (self.weights, self.weights._version, numbers)
        return numbers

    def set_weights(self, weights: Mapping[str, float | Sequence[float]] | ArrayLike) -> None:
        """Set some weights by name, or all of them; a penalty's name stands for all of its weights."""
        values: Any = weights
        if isinstance(weights, Mapping):
            # In the box again, should the buffer be in bfloat16.
            values = np.clip(self.numbers(), self.box.lower, self.box.upper).tolist()
            for name, value in weights.items():
                positions = self._positions(name)
                several = list(value) if np.ndim(value) else [value] * len(positions)  # type: ignore[arg-type]
                if len(several) != len(positions):
                    raise InvalidInput(f"{name!r} has {len(positions)} weights; found {len(several)}.")
                for j, number in zip(positions, several, strict=True):
                    values[j] = number
        array = self.box.as_array(values)
        with torch.no_grad():
            self.weights.copy_(torch.from_numpy(array))

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        weights, last = self.numbers(), {}
        params, total = None, None
        reshard(model)
        # Penalties first: under FSDP2 the parameters are sharded before the forward, not after it.
        for name, penalty in self._penalties():
            own = [weights[j] for j in self._of_penalty[name]]
            if any(own):
                params = trainable(model) if params is None else params
                part = penalty.total(params, own)
                last[name] = part.detach() / own[0] if len(own) == 1 else part.detach()
                total = part if total is None else total + part
        by_name = dict(zip(self.names, weights, strict=True))
        values = self.data_values(model, batch, [name for name in self.data_names if by_name[name] != 0])
        for name, value in values.items():
            last[name] = value.detach()
            if by_name[name] != 0:
                part = by_name[name] * value
                total = part if total is None else total.to(part.device) + part
        self._last = last
        assert total is not None  # a box does not contain the zero vector
        size = sum(by_name[name] for name in self.data_names) if self.normalize else 0.0
        return total / size if size else total

    def data_values(
        self, model: nn.Module, batch: Batch, names: Iterable[str] | None = None, *, of: Sequence[Source] | None = None
    ) -> dict[str, Tensor]:
        """The values of the data terms: scalars to be differentiated.

        names: those that are needed, if not all. of: the sources to ask, if not all.
        """
        wanted = set(self.data_names if names is None else names)
        stand_in = SharedForward(model) if self.share_forward else model
        values: dict[str, Tensor] = {}
        for source in self.sources if of is None else of:
            if source.names is None or not wanted.isdisjoint(source.names):
                new = source.names is None
                values |= source.values(stand_in, batch)
                if new:
                    self._check_sources()
        return values

    def penalty_terms(self) -> list[tuple[str, Penalty, list[int]]]:
        """The penalties: name, term, and the positions of their weights."""
        return [(name, penalty, self._of_penalty[name]) for name, penalty in self._penalties()]

    def place_knots(self, model: nn.Module) -> None:
        """Put the knots of every `ConvexPiecewiseLinear` that has none at quantiles of the model's parameters."""
        for _, penalty in self._penalties():
            if isinstance(penalty, ConvexPiecewiseLinear) and not penalty.placed:
                penalty.place(trainable(model))

    def regularizers(self) -> dict[str, tuple[Array, Array]]:
        """Each learned convex function as its knots (p,) and its values there (p,), the least of them 0.

        By the name of its term ("learned"), or of term and group ("learned/backbone"); those whose knots have no
        positions yet are left out.
        """
        found = {}
        for name, penalty, positions in self.penalty_terms():
            if isinstance(penalty, ConvexPiecewiseLinear) and penalty.placed:
                numbers = [self.numbers()[j] for j in positions]
                for i, group in enumerate(penalty.groups):
                    found[f"{name}/{group}" if group else name] = penalty.curve(numbers, i)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """For a copy: its buffers count their versions anew, so what was read is forgotten."""
        return {**self.__dict__, "_numbers": (None, 0, [])}

    def get_extra_state(self) -> dict[str, Any]:
        """The names of the weights, so that a state is not taken for that of another loss."""
        return {"names": list(self.names)}

    def set_extra_state(self, state: Any) -> None:
        """Nothing to set: the names were compared before anything was loaded."""

    def extra_repr(self) -> str:
        return f"{self.box}, normalize={self.normalize}"

    def _penalties(self) -> list[tuple[str, Penalty]]:
        return list(zip(self.penalty_names, self.penalties, strict=True))  # type: ignore[arg-type]

    def _positions(self, name: str) -> list[int]:
        if name in self._of_penalty:
            return self._of_penalty[name]
        if name not in self.names:
            raise InvalidInput(f"Weights must be named as in {list(self.names)}; found {name!r}.")
        return [self.names.index(name)]

    def _check_sources(self) -> None:
        """Raise unless the names that terms returned, as far as they are known, are those of the box, each once."""
        given = [name for s in self.sources for name in s.names or ()]
        unknown = [name for name in given if name not in self.data_names]
        all_known = all(s.names is not None for s in self.sources)
        missing = [n for n in self.data_names if n not in given] if all_known else []
        if unknown or missing or len(set(given)) < len(given):
            for s in self.sources:
                s.forget()
            raise InvalidInput(
                f"The data terms must give the names {list(self.data_names)} of the box, each once; found {given}: "
                f"missing {missing}, unknown {unknown}. Change the box or the terms."
            )


def _check_terms(pairs: Sequence[tuple[str | None, Any]]) -> None:
    if not pairs:
        raise InvalidInput("`LinearLoss` needs at least one term; found none. Give {name: term}.")
    for name, term in pairs:
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidInput(f"Terms must be named by strings; found {name!r}.")
        if not takes_model_and_batch(term):
            raise InvalidInput(
                "A term must be a callable (model, batch) -> scalar, or a penalty such as L2(); found "
                f"{describe(term)}{f' for {name!r}' if name else ''}. Give e.g. lambda model, batch: "
                "F.cross_entropy(model(batch[0]), batch[1])."
            )


def _start(box: Box) -> Any:
    return [1 / len(box)] * len(box) if box.is_simplex else box.lower


def _refuse_another_loss(module: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Before anything is loaded: the state must be of a loss with these weights."""
    assert isinstance(module, LinearLoss)
    extra = state.get(f"{prefix}_extra_state")
    found = extra.get("names") if isinstance(extra, Mapping) else None
    if f"{prefix}weights" in state and (found is None or tuple(found) != module.names):
        raise InvalidInput(
            f"The state must be of a loss with the same weights, {list(module.names)}; found "
            f"{'no names' if found is None else list(found)}. Build the loss as it was when the state was saved."
        )
