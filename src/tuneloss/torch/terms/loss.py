"""A training loss that is a weighted sum of terms, with weights that can be set and saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tuneloss.core.box import Box
from tuneloss.errors import InvalidInput
from tuneloss.torch.terms.data_terms import Batch, DataTerm, Term, describe, is_regularizer, takes_model_and_batch
from tuneloss.torch.terms.decimals import shortest
from tuneloss.torch.terms.layout import Bounds, make_layout
from tuneloss.torch.terms.penalties import Penalty, add
from tuneloss.torch.terms.per_source import PerSource
from tuneloss.torch.wrappers import SharedForward, reshard, trainable
from tuneloss.types import Array


class LinearLoss(nn.Module):
    """A training loss ``loss(model, batch)``: the sum over terms of weight times term.

    Terms are of two kinds. Data terms are callables ``(model, batch) -> scalar``, a mean over the batch. Penalties,
    such as ``L2()``, are sums over parameters. A term of weight 0 is not evaluated, unless a callable that returns
    several terms is needed for another one.

    Parameters
    ----------
    terms : mapping of str to term, or sequence of terms
        A callable may also return ``{name: scalar}``: several terms of one forward, such as tasks. Their names are in
        the box. In a mapping, the name of the callable itself then is not. `PerSource` gives one term per data source.
    box : mapping or Box
        ``{term: (lower, upper)}``, with a number instead of a pair to pin a weight. A bound applies to each weight of
        its term. Or a `Box` over the names of all weights, such as ``Box.simplex(names)``.
    weights : mapping or array, optional
        The first weights; a mapping may leave out names, which start at their lower bounds. By default, tasks start at
        1, or at the bound nearest to 1: a task of weight 0 would never train its head. Tasks are all data terms except
        the regularizers `UniformLabels`, `Dropout` and `Augmented`. Regularizers and penalties start at their lower
        bounds. On a simplex, all weights start equal.
    normalize : bool, default False
        Whether to divide by the sum of the data terms' weights, so that a learned weight does not change the step size
        under SGD. Without it, penalties keep their strength relative to the pinned term. Adam and AdaGrad do not depend
        on the scale of a loss anyway.
    share_forward : bool, default True
        Whether terms that call the model in the same way, such as ``model(batch[0])``, share one forward. For this,
        terms receive a stand-in for the model. It is called and read like the model but is not an `nn.Module`. A term
        that calls the model twice in the same way, as for two views under dropout, gets two forwards. Give False if
        terms read what a forward leaves behind, such as activations that the model keeps: then each term calls the
        model itself, with its own draw of the model's dropout.

    Attributes
    ----------
    weights : (k,) tensor
        A buffer: it is in the state dict and moves with ``.to()``.
    names : tuple of str
        The names of the weights, in their order.
    box : Box
        The weights that are allowed.
    last : dict of str to scalar tensor
        The value of each term in the last call, detached and on its device. For a penalty with several weights, it is
        their weighted sum. The keys never change: a term that the last call did not evaluate is nan.

    Examples
    --------
    >>> from tuneloss.torch import L2
    >>> log_loss = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
    >>> loss = LinearLoss({"logloss": log_loss, "l2": L2()}, box={"logloss": 1.0, "l2": (0, 0.1)})
    >>> loss.set_weights({"l2": 0.01})
    >>> model, batch = nn.Linear(3, 2), (torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> loss(model, batch).backward()
    >>> {name: value.item() > 0 for name, value in loss.last.items()}
    {'logloss': True, 'l2': True}
    """

    weights: Tensor
    names: tuple[str, ...]
    box: Box
    last: dict[str, Tensor]

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
        pairs = list(terms.items()) if isinstance(terms, Mapping) else [(None, term) for term in terms]
        _check_terms(pairs)
        penalties = [(name or term.name, term) for name, term in pairs if isinstance(term, Penalty)]
        data = [(name, term) for name, term in pairs if not isinstance(term, Penalty)]
        self.data_terms = [DataTerm(t, name, several=_may_give_several(name, t, box, pairs)) for name, t in data]
        self.layout = make_layout(
            box,
            penalties,
            [name for term in self.data_terms for name in term.names or ()],
            others=any(term.names is None for term in self.data_terms),
        )
        self.box, self.names = self.layout.box, self.layout.box.names
        self.penalties = nn.ModuleList([penalty for _, penalty in penalties])  # so that they move and are saved with it
        inner = [s.term.term if isinstance(s.term, PerSource) else s.term for s in self.data_terms]
        self.modules_of_terms = nn.ModuleList([term for term in inner if isinstance(term, nn.Module)])
        if normalize and any(self.box.lower[j] < 0 for j in self.layout.data.values()):
            raise InvalidInput(
                f"With normalize=True the weights of data terms must not be negative; found {self.box}. Raise the "
                "lower bounds to 0, or leave it off."
            )
        self.normalize, self.share_forward = normalize, share_forward
        self.last = dict.fromkeys(self.layout.term_names, torch.tensor(math.nan))
        self._numbers: tuple[Tensor | None, int, list[float]] = (None, 0, [])
        start = self.box.lower if weights is not None else self._first_weights()
        self.register_buffer("weights", torch.tensor(start, dtype=torch.get_default_dtype()))
        self.register_load_state_dict_pre_hook(_refuse_another_loss)  # type: ignore[no-untyped-call]
        if weights is not None:
            self.set_weights(weights)

    def _first_weights(self) -> Array:
        """Return the default of `weights`."""
        box, data = self.box, self.layout.data
        if box.is_simplex:
            return np.full(len(box), 1 / len(box))
        regularizers = {term.known_name for term in self.data_terms if term.regularizes}
        tasks = [j for name, j in data.items() if name not in regularizers]
        start = box.lower.copy()
        start[tasks] = np.clip(1.0, box.lower[tasks], box.upper[tasks])
        return start

    @property
    def source_names(self) -> set[str]:
        """The names of the terms that are those of data sources."""
        return {name for term in self.data_terms if term.of_sources for name in term.names or ()}

    def as_dict(self) -> dict[str, float]:
        """Return the weights by name, each as the shortest decimal that the buffer rounds to the same weight."""
        return dict(zip(self.names, shortest(self.numbers(), self.weights.dtype), strict=True))

    def numbers(self) -> list[float]:
        """Return the weights as Python numbers. The buffer is read only if it has changed."""
        buffer, version, numbers = self._numbers
        stale = buffer is not self.weights or version != self.weights._version
        if torch.compiler.is_compiling() or stale:  # while torch.compile traces, versions say nothing
            numbers = self.weights.tolist()
            self._numbers = (self.weights, self.weights._version, numbers)
        return numbers

    def set_weights(self, weights: Mapping[str, float | Sequence[float]] | ArrayLike) -> None:
        """Set weights.

        Parameters
        ----------
        weights : mapping or (k,) array
            Some weights by name, or all of them in order. The name of a penalty stands for all of its weights.
        """
        values: Any = weights
        if isinstance(weights, Mapping):
            # If the buffer is in bfloat16, its rounding may have moved weights out of the box.
            values = np.clip(self.numbers(), self.box.lower, self.box.upper).tolist()
            for name, value in weights.items():
                positions = self.layout.positions(name)
                several = list(value) if np.ndim(value) else [value] * len(positions)  # type: ignore[arg-type]
                if len(several) != len(positions):
                    raise InvalidInput(f"{name!r} has {len(positions)} weights; found {len(several)}.")
                for j, number in zip(positions, several, strict=True):
                    values[j] = number
        array = self.box.as_array(values)
        with torch.no_grad():
            self.weights.copy_(torch.from_numpy(array))

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        weights = self.numbers()
        parts: list[Tensor] = []
        values: dict[str, Tensor] = {}
        reshard(model)
        # Penalties first: under FSDP2 the parameters are sharded before the forward, not after it.
        active = [placed for placed in self.layout.penalties if any(weights[j] for j in placed.positions)]
        params = trainable(model) if active else {}
        for name, penalty, positions in active:
            part = penalty.total(params, [weights[j] for j in positions])
            parts.append(part)
            values[name] = part.detach() / weights[positions[0]] if len(positions) == 1 else part.detach()
        wanted = [name for name, j in self.layout.data.items() if weights[j] != 0]
        for name, value in self.data_values(model, batch, wanted).items():
            values[name] = value.detach()
            weight = weights[self.layout.data[name]]
            if weight != 0:
                parts.append(weight * value)
        if not parts:  # all terms that the batch has have weight 0
            parts = [0.0 * value for value in self.data_values(model, batch).values()]
        total = add([part.to(parts[-1].device) for part in parts])
        not_evaluated = total.detach().new_full((), math.nan)  # on the device, so that no call waits for it
        self.last = {name: values.get(name, not_evaluated) for name in self.layout.term_names}
        size = sum(weights[j] for j in self.layout.data.values()) if self.normalize else 0.0
        return total / size if size else total

    def data_values(
        self,
        model: nn.Module,
        batch: Batch,
        names: Iterable[str] | None = None,
        *,
        of: Sequence[DataTerm] | None = None,
    ) -> dict[str, Tensor]:
        """Evaluate data terms on a batch.

        Parameters
        ----------
        model : Module
        batch : object
        names : iterable of str, optional
            The terms that are needed, by default all. Other terms that the same callable returns are included.
        of : sequence of DataTerm, optional
            The callables to evaluate, by default all.

        Returns
        -------
        dict of str to scalar tensor
        """
        wanted = set(self.layout.data if names is None else names)
        stand_in = SharedForward(model) if self.share_forward else model
        values: dict[str, Tensor] = {}
        for term in self.data_terms if of is None else of:
            if term.names is None or not wanted.isdisjoint(term.names):
                new = term.names is None
                if isinstance(stand_in, SharedForward):
                    stand_in.next_term()
                values |= term.values(stand_in, batch, wanted)
                if new:
                    self._check_data_terms()
        return values

    def forwards(self) -> list[list[DataTerm]]:
        """Return the callables in groups that need a forward of their own: each random one and each of sources."""
        apart = [[term] for term in self.data_terms if term.is_random or term.of_sources]
        rest = [term for term in self.data_terms if not term.is_random and not term.of_sources]
        return [rest, *apart] if rest else apart

    def counts_in(self, terms: Sequence[DataTerm]) -> bool:
        """Return whether one of these callables has a term whose weight is not 0 now."""
        weights = self.weights.tolist()
        return any(weights[self.layout.data[name]] != 0 for term in terms for name in term.names or ())

    def place_knots(self, model: nn.Module) -> None:
        """Place the knots of every `ConvexPiecewiseLinear` that has none yet at quantiles of the model's parameters.

        Parameters
        ----------
        model : Module
            The model.
        """
        for _, penalty, _ in self.layout.learned:
            if not penalty.placed:
                penalty.place(trainable(model))

    def regularizers(self) -> dict[str, tuple[Array, Array]]:
        """Return each learned convex function: its knots (p,), and its values there minus the least value (p,).

        Returns
        -------
        dict of str to (knots, values)
            By the name of the term (``"learned"``), or of term and group (``"learned/backbone"``). Functions whose
            knots have no positions yet are left out.
        """
        curves = {}
        for name, penalty, positions in self.layout.learned:
            if penalty.placed:
                weights = [self.numbers()[j] for j in positions]
                for i, group in enumerate(penalty.groups):
                    curves[f"{name}/{group}" if group else name] = penalty.curve(weights, i)
        return curves

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, without the cached weights: the version of a copied buffer starts again."""
        return {**self.__dict__, "_numbers": (None, 0, [])}

    def get_extra_state(self) -> dict[str, Any]:
        """Return the names of the weights, by which a state of another loss is refused."""
        return {"names": list(self.names)}

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: the names were compared before anything was loaded."""

    def extra_repr(self) -> str:
        return f"{self.box}, normalize={self.normalize}"

    def _check_data_terms(self) -> None:
        """Raise unless the names that terms have returned so far are those of the box, each once."""
        returned = [name for s in self.data_terms for name in s.names or ()]
        unknown = [name for name in returned if name not in self.layout.data]
        complete = all(s.names is not None for s in self.data_terms)
        missing = [n for n in self.layout.data if n not in returned] if complete else []
        if unknown or missing or len(set(returned)) < len(returned):
            for s in self.data_terms:
                s.forget()
            raise InvalidInput(
                f"The data terms must give the names {list(self.layout.data)} of the box, each once; found {returned}: "
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


def _may_give_several(name: str | None, term: Term, box: Bounds, pairs: Sequence[tuple[str | None, Any]]) -> bool:
    """Return whether a callable under this name may give several terms: the box has at least two names to spare.

    `pairs` are all terms with their names.
    """
    names = box.names if isinstance(box, Box) else tuple(box) if isinstance(box, Mapping) else ()
    if name is None or name in names or is_regularizer(term):
        return False
    taken = {other or getattr(t, "name", "") for other, t in pairs}
    taken |= {source for _, t in pairs if isinstance(t, PerSource) for source in t.names}
    return sum(n not in taken and n.partition("/")[0] not in taken for n in names) >= 2


def _refuse_another_loss(module: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Raise, before anything is loaded, unless the state is that of a loss with these weights."""
    assert isinstance(module, LinearLoss)
    extra = state.get(f"{prefix}_extra_state")
    names = extra.get("names") if isinstance(extra, Mapping) else None
    if f"{prefix}weights" in state and (names is None or tuple(names) != module.names):
        raise InvalidInput(
            f"The state must be of a loss with the same weights, {list(module.names)}; found "
            f"{'no names' if names is None else list(names)}. Build the loss as it was when the state was saved."
        )
