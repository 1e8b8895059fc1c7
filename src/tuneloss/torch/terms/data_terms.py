"""Data terms: callables ``(model, batch) -> scalar``, a mean over the batch; and how a loss calls them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from tuneloss.errors import InvalidInput
from tuneloss.torch.batch import SourceBatch
from tuneloss.torch.terms.per_source import PerSource
from tuneloss.torch.wrappers import bare, eagerly

Batch = Any
Term = Callable[[Any, Batch], Tensor | Mapping[str, Tensor]]
Output = Callable[[Any, Batch], Tensor]

HOW_TO_CALL = (
    "Say how to call the model, and what to take of its output: UniformLabels(output=...), Dropout(keep, of=...), "
    "Augmented(transform, of=...)."
)


def plain_output(model: Any, batch: Batch) -> Tensor:
    """Return ``model(batch[0])``: for most classifiers, scores (N, C, ...) of the classes."""
    if isinstance(batch, Mapping) and 0 not in batch:
        raise InvalidInput(
            "A batch must be (inputs, labels, ...) where the model is called as model(batch[0]); found a "
            f"{type(batch).__name__} with the keys {[str(key) for key in batch]}. {HOW_TO_CALL}"
        )
    output: Tensor = model(batch[0])
    return output


def cross_entropy(model: Any, batch: Batch) -> Tensor:
    """Return the log loss of ``model(batch[0])`` on the labels ``batch[1]``."""
    return F.cross_entropy(_scores(plain_output(model, batch)), batch[1])


def _scores(output: object) -> Tensor:
    """Return what a model returned, or raise if it cannot be scores of classes."""
    if isinstance(output, Tensor) and output.ndim >= 2 and output.shape[1] > 1:  # of one class, all scores are right
        return output
    problem = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    raise InvalidInput(
        f"Scores of the classes must be a tensor of shape (N, C, ...) with C > 1; the model returned {problem}. "
        f"{HOW_TO_CALL}"
    )


class UniformLabels:
    """The log loss on uniform labels: minus the mean over examples and classes of log p(class).

    Added to a log loss, it is label smoothing.

    Parameters
    ----------
    output : callable, optional
        ``(model, batch) -> scores (N, C, ...)``; by default ``model(batch[0])``.

    Examples
    --------
    >>> import torch
    >>> UniformLabels()(nn.Flatten(), [torch.zeros(3, 4)])   # log 4
    tensor(1.3863)
    """

    name = "uniform"

    def __init__(self, output: Output = plain_output) -> None:
        self.output = output

    def __call__(self, model: Any, batch: Batch) -> Tensor:
        return -F.log_softmax(_scores(self.output(model, batch)), dim=1).mean()


class Dropout:
    """A term under dropout: each input of the model's linear layers is kept with probability `keep`, and divided by it.

    Parameters
    ----------
    keep : float, default 0.5
        The probability to keep an input, above 0.
    of : callable, optional
        The term that is evaluated under dropout; by default the log loss of ``model(batch[0])`` on ``batch[1]``.
    layers : tuple of types, default ``(nn.Linear,)``
        The kinds of layers whose inputs are masked.

    Notes
    -----
    Inputs of `nn.MultiheadAttention` are not masked, since it calls no layer for its projections. The model's own
    dropout modules act in this term as in every other. A compiled model is called as it was before `torch.compile`,
    since compiled code does not see the masks.

    Examples
    --------
    >>> import torch
    >>> model = nn.Linear(4, 2)
    >>> batch = [torch.ones(3, 4), torch.tensor([0, 1, 0])]
    >>> bool(Dropout(1.0)(model, batch) == cross_entropy(model, batch))
    True
    """

    name = "dropout"
    random = True

    def __init__(
        self, keep: float = 0.5, of: Output = cross_entropy, *, layers: tuple[type[nn.Module], ...] = (nn.Linear,)
    ) -> None:
        if not 0 < keep <= 1:
            raise InvalidInput(f"`keep` is a probability above 0; found {keep}. Give e.g. Dropout(0.5).")
        self.keep, self.of, self.layers = keep, of, layers

    def __call__(self, model: Any, batch: Batch) -> Tensor:
        inner = bare(model)
        masked = [module for module in inner.modules() if isinstance(module, self.layers)]
        if not masked:
            raise InvalidInput(
                f"`Dropout` masks the inputs of {' and '.join(kind.__name__ for kind in self.layers)} layers; found "
                f"none in {type(inner).__name__}. Name others: Dropout(keep, layers=(nn.Conv2d,))."
            )
        handles = [module.register_forward_pre_hook(self._mask, with_kwargs=True) for module in masked]
        try:
            with eagerly(inner):
                return self.of(inner, batch)
        finally:
            for handle in handles:
                handle.remove()

    def _mask(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        x = args[0] if args else next(iter(named.values()))
        if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
            problem = f"a tensor of {x.dtype}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
            raise InvalidInput(
                f"`Dropout` masks inputs that are tensors of floating-point numbers; that of {type(module).__name__} "
                f"is {problem}. Leave this kind out of `layers`."
            )
        masked = F.dropout(x, 1 - self.keep, training=True)
        return ((masked, *args[1:]), named) if args else ((), {**named, next(iter(named)): masked})


class Augmented:
    """A term on changed inputs, for example on flipped images.

    Parameters
    ----------
    transform : callable
        Maps ``batch[0]`` to inputs of the same shape. It may draw random numbers from torch, NumPy or `random`.
    of : callable, optional
        The term that is evaluated on the changed batch; by default the log loss of ``model(batch[0])`` on ``batch[1]``.
    whole_batch : bool, default False
        Whether the transform takes and returns the whole batch with its labels, for mixtures or for a batch that is a
        dict.

    Examples
    --------
    >>> import torch
    >>> flipped = Augmented(lambda x: x.flip(-1))
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
    >>> bool(flipped(nn.Flatten(), [x, y]) == cross_entropy(nn.Flatten(), [x.flip(-1), y]))
    True
    """

    name = "augmented"
    random = True

    def __init__(
        self, transform: Callable[[Any], Any], of: Output = cross_entropy, *, whole_batch: bool = False
    ) -> None:
        self.transform, self.of, self.whole_batch = transform, of, whole_batch

    def __call__(self, model: Any, batch: Batch) -> Tensor:
        if self.whole_batch:
            return self.of(model, self.transform(batch))
        if isinstance(batch, Mapping):
            raise InvalidInput(
                f"`Augmented` changes batch[0] of a batch (inputs, labels, ...); found a {type(batch).__name__} with "
                f"the keys {[str(key) for key in batch]}. Let the transform change the whole batch, whole_batch=True."
            )
        return self.of(model, (self.transform(batch[0]), *batch[1:]))


class DataTerm:
    """A callable that gives one data term or several, and their names.

    Parameters
    ----------
    term : callable
        ``(model, batch) -> scalar``, or ``-> {name: scalar}``.
    name : str, optional
        The name of its only term.
    several : bool, default False
        Whether it may give several terms although it has a name. Their names are then known after the first call.

    Attributes
    ----------
    names : tuple of str or None
        The names of its terms; None if they are not known yet.
    known_name : str or None
        The name of its only term, if that is known before the first call.
    is_random : bool
        Whether it draws random numbers, so that an observation may average several draws.
    """

    def __init__(self, term: Term, name: str | None, *, several: bool = False) -> None:
        self.term = term
        of_sources = term.names if isinstance(term, PerSource) else None
        self._fixed = of_sources or (None if name is None or several else (name,))
        self.names: tuple[str, ...] | None = self._fixed
        self.known_name: str | None = name or getattr(term, "name", None) or getattr(term, "__name__", None)
        self.is_random = bool(getattr(term, "random", False))

    @property
    def of_sources(self) -> bool:
        """Whether it gives one term per data source."""
        return isinstance(self.term, PerSource)

    @property
    def needs_numbers(self) -> bool:
        """Whether the sources of rows are told by numbers in the batch, so that one may have no rows."""
        return isinstance(self.term, PerSource) and self.term.key is not None

    @property
    def regularizes(self) -> bool:
        """Whether it is one of the regularizers of this file, rather than a task."""
        return is_regularizer(self.term)

    def forget(self) -> None:
        """Forget the names that were learned from its first call."""
        self.names = self._fixed

    def parts(self, batch: Batch, *, together: bool = False) -> list[Batch]:
        """Return what an observation evaluates one after the other: the rows of each source, or the whole batch.

        With `together`, the rows of all sources are one part, unless each source has a forward of its own anyway.
        """
        if not isinstance(self.term, PerSource):
            return [batch]
        sources = self.term.split(batch)
        return (
            [sources]
            if together and self.term.by_row is not False
            else [SourceBatch({name: rows}) for name, rows in sources.items()]
        )

    def values(self, model: Any, batch: Batch, wanted: Collection[str] | None = None) -> dict[str, Tensor]:
        """Evaluate the terms on a batch, and return scalars by name; of sources, those that are wanted."""
        if isinstance(self.term, PerSource):
            return self.term(model, batch, wanted)
        result = self.term(model, batch.whole() if isinstance(batch, SourceBatch) else batch)
        if not isinstance(result, Mapping):
            name = self.known_name
            if not isinstance(name, str) or name == "<lambda>":
                raise InvalidInput(
                    "A term in a list that returns one scalar must have a name; found none for "
                    f"{type(self.term).__name__}. Let it return {{name: scalar}}, or give a dict of terms."
                )
            result = {name: result}
        elif self._fixed is not None:
            raise InvalidInput(
                f"A term whose name is in the box must return one scalar; {self._fixed[0]!r} returned "
                f"{sorted(result)}. To let one callable return several terms, give it a name that is not in the box, "
                "and give the names of its terms bounds in the box."
            )
        values = {name: as_scalar(name, value) for name, value in result.items()}
        if self.names is not None and set(values) != set(self.names):
            raise InvalidInput(
                f"A term must return the same names every time; found {sorted(values)} after {sorted(self.names)}."
            )
        self.names = tuple(values)
        return values


def is_regularizer(term: object) -> bool:
    """Return whether a data term is one of the regularizers of this file, rather than a task."""
    return isinstance(term, UniformLabels | Dropout | Augmented)


def takes_model_and_batch(function: object) -> bool:
    """Return whether something can be called as ``function(model, batch)``.

    Models and losses of `torch.nn` cannot: they take tensors.

    Examples
    --------
    >>> from torch import nn
    >>> takes_model_and_batch(lambda model, batch: 0.0), takes_model_and_batch(nn.CrossEntropyLoss())
    (True, False)
    """
    of_torch = str(getattr(function, "__module__", "")).startswith("torch.nn.")
    return callable(function) and not isinstance(function, type) and not of_torch


def check_function(function: object, what: str) -> None:
    """Raise unless the error or the metric, named by `what`, can be called with model and batch."""
    if not takes_model_and_batch(function):
        raise InvalidInput(
            f"`{what}` must be a callable (model, batch) -> mean over the batch; found {describe(function)}. Give e.g. "
            "lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])."
        )


def describe(thing: object) -> str:
    """Describe, in a message, what was found where something else must be.

    Examples
    --------
    >>> describe(int), describe(abs), describe("text")
    ('the class int', 'the function abs', 'a str')
    """
    name = getattr(thing, "__name__", None)
    if name is None:
        return f"a {type(thing).__name__}"
    return f"the {'class' if isinstance(thing, type) else 'function'} {name}"


def as_scalar(name: str, value: object) -> Tensor:
    """Return the value of a term as a tensor without dimensions; raise unless it is one real number."""
    if not isinstance(value, Tensor):
        problem, remedy = f"a {type(value).__name__}", "Return the mean as a tensor."
    elif value.numel() != 1:
        problem, remedy = f"shape {tuple(value.shape)}", "Take the mean."
    elif value.is_complex():
        problem, remedy = "a complex number", "Take its real part or its absolute value."
    else:
        return value.reshape(())
    raise InvalidInput(
        f"A term must return a scalar tensor, a mean over the batch; {name!r} returned {problem}. {remedy}"
    )
