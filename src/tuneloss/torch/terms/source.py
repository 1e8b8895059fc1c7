"""Where values of data terms come from: a callable that gives one value, or several values of one forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tuneloss.errors import InvalidInput
from tuneloss.torch.terms.data_terms import Batch, Term


class Source:
    """A callable that gives one data term or several, and their names.

    Parameters
    ----------
    term : callable
        ``(model, batch) -> scalar``, or ``-> {name: scalar}``.
    name : str, optional
        The name of its only term. Without it, the names are known after the first call.
    """

    def __init__(self, term: Term, name: str | None) -> None:
        self.term, self._fixed_name = term, name
        self.names: tuple[str, ...] | None = None if name is None else (name,)

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers, so that an observation may average several draws."""
        return bool(getattr(self.term, "random", False))

    def forget(self) -> None:
        """Forget the names that were learned from its first call."""
        self.names = None if self._fixed_name is None else (self._fixed_name,)

    def values(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        """Evaluate the terms on a batch, and return scalars by name."""
        result = self.term(model, batch)
        if not isinstance(result, Mapping):
            result = {self._only_name(): result}
        elif self._fixed_name is not None:
            raise InvalidInput(
                f"A term with a name must return one scalar; {self._fixed_name!r} returned {sorted(result)}. Give the "
                "terms as a list, [term, L2()], to let one callable return several."
            )
        values = {name: as_scalar(name, value) for name, value in result.items()}
        if self.names is not None and set(values) != set(self.names):
            raise InvalidInput(
                f"A term must return the same names every time; found {sorted(values)} after {sorted(self.names)}."
            )
        self.names = tuple(values)
        return values

    def _only_name(self) -> str:
        name = self._fixed_name or getattr(self.term, "name", None) or getattr(self.term, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            raise InvalidInput(
                "A term in a list that returns one scalar must have a name; found none for "
                f"{type(self.term).__name__}. Let it return {{name: scalar}}, or give a dict of terms."
            )
        return name


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
