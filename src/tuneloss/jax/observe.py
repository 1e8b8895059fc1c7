"""From a pytree of parameters to an observation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, NotFinite
from tuneloss.types import Array

Function = Callable[..., Any]
Values = dict[str, float]
Gradients = dict[str, Any]  # pytrees like the parameters
KEPT = 64  # compiled groups of functions that are kept; a program has a few
BLOCK = 2**16  # entries of each gradient that are read at a time as float64
ERROR, METRIC = "error", "metric"


def observe(
    params: Any,
    terms: Mapping[str, Function],
    error: Function,
    train: Iterable[Any],
    validation: Iterable[Any],
    *,
    metric: Function | None = None,
) -> Observation:
    """Observe a model: its validation error, the values of its loss terms, and the gram of all their gradients.

    Parameters
    ----------
    params : pytree
        The parameters, arrays of floating-point numbers.
    terms : mapping of str to callable
        The terms of the loss by name, in the order of the box: ``(params, batch) -> mean over the batch``, or
        ``(params) -> value`` for a penalty.
    error : callable
        The validation error, ``(params, batch) -> mean over the batch``.
    train : iterable
        The training batches, pytrees of arrays whose first axis counts the examples.
    validation : iterable
        The validation batches, in the same form.
    metric : callable, optional
        ``(params, batch) -> mean over the batch``. If given, it decides which model is better.

    Returns
    -------
    Observation

    Raises
    ------
    InvalidInput
        If an argument breaks its rule, or the error depends on no parameter.
    NotFinite
        If a value or a gradient is not finite.

    Notes
    -----
    Functions are compiled once for all calls with the same functions and shapes. So define them once, not in the loop.

    Batches count by their numbers of examples. Gradients are summed in the dtype of the parameters, at least float32.
    Values and gram are summed in float64 on the host, to which the gradients are copied. An observation needs memory
    for two copies of the parameters per term. Arrays of parameters on which the gradient of the error is 0, such as the
    head of an auxiliary task, are left out of the gram.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def fit(params, batch):
    ...     return ((batch @ params["w"] - 1) ** 2).mean()
    >>> def l2(params):
    ...     return (params["w"] ** 2).sum()
    >>> params, batches = {"w": jnp.array([1.0, 1.0])}, [jnp.eye(2) * 3]
    >>> model = observe(params, {"fit": fit, "l2": l2}, fit, batches, batches)
    >>> model.names, model.features.tolist(), model.gram.tolist()
    (('fit', 'l2'), [4.0, 2.0], [[72.0, 24.0, 72.0], [24.0, 8.0, 24.0], [72.0, 24.0, 72.0]])
    """
    _check_params(params)
    data = _split(terms)
    penalties = {name: term for name, term in terms.items() if name not in data}
    errors = {ERROR: error} | ({} if metric is None else {METRIC: metric})
    for name, function in errors.items():
        if not callable(function):
            raise InvalidInput(
                f"`{name}` must be a callable (params, batch) -> mean over the batch; found {function!r}."
            )
    _check_scalars(penalties, params)
    values, gradients = _at_once(params, penalties)
    for functions, batches, what in ((data, train, "train"), (errors, validation, "validation")):
        if functions:
            more_values, more_gradients = _mean(params, functions, batches, what)
            values, gradients = values | more_values, gradients | more_gradients
    _check_values(values)
    gram = _gram([gradients[name] for name in (*terms, ERROR)])
    if bad := [name for j, name in enumerate((*terms, ERROR)) if not math.isfinite(gram[j, j])]:
        raise NotFinite(
            f"Gradients must be finite; those of {bad} are not, though their values are. Look for a square root or a "
            "division at 0 in them."
        )
    if gram[-1, -1] == 0:
        raise InvalidInput("`error` must depend on the parameters; found a gradient of 0 for all of them.")
    return Observation(values[ERROR], {name: values[name] for name in terms}, gram, metric=values.get(METRIC))


def _check_params(params: Any) -> None:
    leaves = jax.tree.leaves(params)
    bad = {str(getattr(leaf, "dtype", type(leaf).__name__)) for leaf in leaves if not _is_float(leaf)}
    if not leaves or bad:
        raise InvalidInput(
            f"`params` must be a pytree of arrays of floating-point numbers; found {sorted(bad) or 'no array'}. The "
            "order is observe(params, terms, error, train, validation)."
        )


def _is_float(leaf: Any) -> bool:
    return bool(jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.floating))


def _split(terms: Mapping[str, Function]) -> dict[str, Function]:
    """Return the terms that take a batch; raise unless all are callables by name, of one argument or two."""
    counts = {}
    is_mapping = isinstance(terms, Mapping) and all(isinstance(name, str) for name in terms)
    for name, term in terms.items() if is_mapping else ():
        counts[name] = _n_arguments(term) if callable(term) else 0
    if reserved := {ERROR, METRIC} & set(counts):
        raise InvalidInput(f"`terms` must have other names than 'error' and 'metric'; found {sorted(reserved)}.")
    if not counts or not set(counts.values()) <= {1, 2}:
        found = {name: terms[name] for name, count in counts.items() if count not in (1, 2)}
        raise InvalidInput(
            "`terms` must be a dict of names and callables (params, batch) -> mean over the batch, or (params) -> "
            f"value; found {found or terms!r}."
        )
    return {name: term for name, term in terms.items() if counts[name] == 2}


def _n_arguments(function: Function) -> int:
    """Return the number of arguments without a default."""
    return sum(parameter.default is parameter.empty for parameter in inspect.signature(function).parameters.values())


def _check_values(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise NotFinite(
                f"Values must be finite; {name!r} is {value}. If training diverged, go back to the best model or lower "
                "the learning rate."
            )


@lru_cache(maxsize=KEPT)
def _compiled(functions: tuple[Function, ...], without_gradient: tuple[Function, ...]) -> Function:
    """Return a compiled function of the same arguments, for the values of all functions and the gradients of some."""

    def values_and_gradients(*arguments: Any) -> tuple[list[Any], list[Any]]:
        pairs = [jax.value_and_grad(function)(*arguments) for function in functions]
        values = [value for value, _ in pairs] + [function(*arguments) for function in without_gradient]
        return values, [gradient for _, gradient in pairs]

    return jax.jit(values_and_gradients)


def _at_once(params: Any, functions: Mapping[str, Function], *batch: Any) -> tuple[Values, Gradients]:
    """Return the values of functions, and their gradients except that of the metric, at least in float32."""
    differentiable = {name: function for name, function in functions.items() if name != METRIC}
    others = tuple(function for name, function in functions.items() if name == METRIC)
    values, gradients = _compiled(tuple(differentiable.values()), others)(params, *batch)
    wide = jax.tree.map(lambda g: g.astype(jnp.promote_types(g.dtype, jnp.float32)), gradients)
    return dict(zip(functions, map(float, values), strict=True)), dict(zip(differentiable, wide, strict=True))


def _mean(
    params: Any, functions: Mapping[str, Function], batches: Iterable[Any], what: str
) -> tuple[Values, Gradients]:
    """Return the mean values and gradients of functions over all examples."""
    total: Any = None
    n_examples = 0
    for batch in batches:
        size = _size_of(batch, what)
        if total is None:
            _check_scalars(functions, params, batch)
        part = _times(size, _at_once(params, functions, batch))
        total = part if total is None else jax.tree.map(lambda a, b: a + b, total, part)
        n_examples += size
    if total is None:
        raise InvalidInput(f"`{what}` must give at least one batch; found none. Is its dataset empty, or used up?")
    mean: tuple[Values, Gradients] = _times(1 / n_examples, total)
    return mean


def _times(factor: float, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def _size_of(batch: Any, what: str) -> int:
    """Return the number of examples in a batch."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(batch)]
    sizes = {shape[0] for shape in shapes if shape}
    if len(sizes) != 1 or sizes == {0}:
        raise InvalidInput(
            f"A batch of `{what}` must be a pytree of arrays whose first axis counts the same examples, at least one; "
            f"found shapes {shapes}."
        )
    return int(sizes.pop())


def _check_scalars(functions: Mapping[str, Function], params: Any, *batch: Any) -> None:
    for name, function in functions.items():
        found = jax.eval_shape(function, params, *batch)
        if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != () or not _is_float(found):
            raise InvalidInput(
                f"{name!r} must return one floating-point number, such as a mean over the batch; found {found}."
            )


def _gram(gradients: Sequence[Any]) -> Array:
    """Return the gram of gradients, over the arrays of parameters on which the last one, that of the error, depends."""
    gram = np.zeros((len(gradients), len(gradients)))
    for leaves in zip(*map(jax.tree.leaves, gradients), strict=True):
        rows = [np.asarray(leaf).ravel() for leaf in leaves]
        if rows[-1].any():
            for start in range(0, rows[0].size, BLOCK):
                block = np.array([row[start : start + BLOCK] for row in rows], dtype=np.float64)
                gram += block @ block.T
    return gram
