"""Products with the Gauss-Newton matrix of a training loss, on some of its batches.

A term is a function of the model's outputs z, and these are functions of the parameters. With the jacobian J of z, and
the Hessian H of the weighted sum of terms by z, the Gauss-Newton matrix is F = J' H J. H is exact: no labels are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from tuneloss.errors import InvalidInput
from tuneloss.torch.observing.jacobian import KEEP, Call, Jacobian, pull
from tuneloss.torch.terms.data_terms import Batch, DataTerm
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.penalties import L2

ADVICE = 'Observe with gradient_metric="plain", which works for every term.'


class GaussNewton:
    """The Gauss-Newton matrix of the weighted loss, as the sum of its parts and a diagonal.

    Parameters
    ----------
    params : mapping of str to tensor
        The n entries of these parameters are the rows and columns of the matrix.
    diagonal : mapping of str to float
        What is added to the diagonal, by name of the parameter; a missing one is 0.
    """

    def __init__(self, params: Mapping[str, Tensor], diagonal: Mapping[str, float]) -> None:
        self.params = list(params.values())
        self.diagonal = [diagonal.get(name, 0.0) for name in params]
        self.parts: list[Part] = []

    def product(self, rows: Tensor) -> Tensor:
        """Multiply each row of a matrix (r, n) by the Gauss-Newton matrix."""
        vectors = self._by_param(rows)
        total = [d * v.flatten(1).to(rows) for d, v in zip(self.diagonal, vectors, strict=True)]
        for part in self.parts:
            for i, product in part.product(vectors):
                total[i] = total[i] + product.flatten(1).to(rows)
        return torch.cat(total, dim=1)

    def quadratic(self, rows: Tensor) -> Tensor:
        """Return the products (r, r) of rows V (r, n), V F V': cheaper than a product, since nothing is pulled back."""
        vectors = self._by_param(rows)
        total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
        for d, v in zip(self.diagonal, vectors, strict=True):
            if d:
                total += d * (v.flatten(1) @ v.flatten(1).T).cpu().double()
        for part in self.parts:
            total += part.quadratic(vectors)
        return total

    def _by_param(self, rows: Tensor) -> list[Tensor]:
        pieces = torch.split(rows, [p.numel() for p in self.params], dim=1)
        return [piece.reshape(-1, *p.shape).to(p) for piece, p in zip(pieces, self.params, strict=True)]


class Part:
    """One evaluation of the model and of terms on a batch: its graph, kept for products with J' H J.

    Parameters
    ----------
    jacobian : Jacobian
        Of the model's outputs.
    stand_ins : sequence of tensor
        The leaves that the terms saw in their place.
    slopes : sequence of tensor
        The derivatives of the weighted sum of terms by the stand-ins, with their graph.
    """

    def __init__(self, jacobian: Jacobian, stand_ins: Sequence[Tensor], slopes: Sequence[Tensor]) -> None:
        self.jacobian, self.stand_ins, self.slopes = jacobian, stand_ins, slopes

    def product(self, vectors: Sequence[Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Yield the products J' H J v with vectors (r, ...) as (number of the parameter, products)."""
        _, curved = self._changes(vectors)
        yield from ((i, product) for i, product in enumerate(self.jacobian.pulled(curved)) if product is not None)

    def quadratic(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the products (r, r) of vectors (r, ...) in the metric J' H J."""
        changes, curved = self._changes(vectors)
        total = torch.zeros(len(vectors[0]), len(vectors[0]), dtype=torch.float64)
        for change, h in zip(changes, curved, strict=True):
            if h is not None:
                total += (change.flatten(1) @ h.flatten(1).T).cpu().double()
        return total

    def _changes(self, vectors: Sequence[Tensor]) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        """Return J v and H J v for each output; None is 0."""
        changes = self.jacobian.changes(vectors)
        return changes, pull(self.slopes, self.stand_ins, changes) if changes else []


def evaluate(
    model: nn.Module,
    loss: LinearLoss,
    terms: Sequence[DataTerm],
    batch: Batch,
    params: Sequence[Tensor],
    times: float = 1.0,
) -> Part:
    """Evaluate some data terms of a loss on a batch, as functions of the model's outputs.

    Parameters
    ----------
    model : Module
        The model without wrappers, all of whose calls are seen.
    loss : LinearLoss
        The loss. Terms count with their present weights, except for negative ones, which count as 0.
    terms : sequence of DataTerm
        The callables to evaluate.
    batch : object
    params : sequence of tensor
        The parameters to differentiate by.
    times : float, default 1.0
        How often the batch counts.

    Raises
    ------
    InvalidInput
        If a term depends on parameters by another way than the outputs of the model, or needs the graph behind them,
        or the model cannot be differentiated twice.
    """
    weights = [times * max(w, 0.0) for w in loss.numbers()]
    names = [name for term in terms for name in term.names or ()]
    trained = [p for p in model.parameters() if p.requires_grad]
    try:
        with _seen_calls(model) as (calls, stand_ins), sdpa_kernel(SDPBackend.MATH):
            values = loss.data_values(model, batch, of=terms)
    except RuntimeError as error:
        raise _unseen(names, f"without the graph behind them, it fails ({error})") from error
    for name, value in values.items():
        if value.requires_grad and any(g is not None for g in grad(value, trained, **KEEP)):
            raise _unseen([name], "it also depends on parameters in another way, such as a call of a submodule")
    parts = [weights[loss.layout.data[name]] * value for name, value in values.items() if value.requires_grad]
    outputs = [output for call in calls for output in call.outputs.values()]
    if not parts or not outputs:
        return Part(Jacobian(model, [], [], params), [], [])
    try:
        slopes = grad(sum(parts), stand_ins, create_graph=True, **KEEP)  # type: ignore[arg-type]
        used = [i for i, slope in enumerate(slopes) if slope is not None and slope.requires_grad]
        used = [i for i in used if any(g is not None for g in grad(outputs[i].sum(), params, **KEEP))]
        jacobian = Jacobian(model, calls, used, params)
        return Part(jacobian, [stand_ins[i] for i in used], [slopes[i] for i in used])
    except RuntimeError as error:
        raise InvalidInput(
            'With gradient_metric="curvature", the model and the terms must be differentiable twice; for '
            f"{names} this failed: {error}. {ADVICE}"
        ) from error


def l2_diagonal(loss: LinearLoss, params: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the second derivative of the weighted L2 penalties of a loss, by name of the parameter."""
    weights, diagonal = loss.numbers(), dict.fromkeys(params, 0.0)
    for _, penalty, positions in loss.layout.penalties:
        if type(penalty) is L2:
            for name, group in penalty.members(params).items():
                diagonal[name] += 2 * max(weights[positions[group]], 0.0)
    return diagonal


@contextmanager
def _seen_calls(model: nn.Module) -> Iterator[tuple[list[Call], list[Tensor]]]:
    """Return a context in which each call of a model returns leaves; it gathers the calls and the leaves."""
    calls: list[Call] = []
    stand_ins: list[Tensor] = []

    def refuse_outputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs = [x.sum() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
        if inputs and stand_ins and any(g is not None for g in grad(inputs, stand_ins, **KEEP)):
            raise InvalidInput(
                'With gradient_metric="curvature", the inputs of the model must not depend on what it returned; found '
                f"a call of the model on its own outputs. {ADVICE}"
            )

    def replaced(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], returned: Any) -> Any:
        leaves, structure = tree_flatten(returned)
        outputs = {i: x for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.requires_grad}
        calls.append(Call(args, kwargs, outputs))
        for i, output in outputs.items():
            leaves[i] = output.detach().requires_grad_()
            stand_ins.append(leaves[i])
        return tree_unflatten(leaves, structure)

    handles = [
        model.register_forward_pre_hook(refuse_outputs, with_kwargs=True),
        model.register_forward_hook(replaced, with_kwargs=True),
    ]
    try:
        yield calls, stand_ins
    finally:
        for handle in handles:
            handle.remove()


def _unseen(names: Sequence[str], problem: str) -> InvalidInput:
    return InvalidInput(
        'With gradient_metric="curvature", a data term must depend on parameters through the outputs of the model '
        f"alone, such as model(batch[0]); for {list(names)}: {problem}. {ADVICE}"
    )
