"""Terms that are means over the examples of a batch: callables ``(model, batch) -> scalar``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from tuneloss.errors import InvalidInput
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
    if isinstance(output, Tensor) and output.ndim >= 2:
        return output
    problem = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    raise InvalidInput(
        f"Scores of the classes must be a tensor of shape (N, C, ...); the model returned {problem}. {HOW_TO_CALL}"
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
