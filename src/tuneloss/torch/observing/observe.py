"""The observation of a PyTorch model: values of all terms and of the error, and the gram of their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from tuneloss.checks import as_integer
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput
from tuneloss.torch.observing.batches import Count, check_count, check_loader
from tuneloss.torch.observing.curvature import EXAMPLES, check_curvature, in_curvature_metric
from tuneloss.torch.observing.passes import Error, Fits, Pass
from tuneloss.torch.observing.preserve import in_eval_mode, preserved, seed_loaders, unshrunk_embeddings
from tuneloss.torch.observing.processes import processes_of
from tuneloss.torch.observing.sums import Sums, make_observation
from tuneloss.torch.sources.mixture_loader import MixtureLoader
from tuneloss.torch.terms.data_terms import check_function, describe
from tuneloss.torch.terms.loss import LinearLoss
from tuneloss.torch.terms.selection import Select, matches
from tuneloss.torch.wrappers import bare, eagerly, reshard, trainable

GradientMetric = Literal["plain", "curvature"]


@dataclass(frozen=True)
class ObserveOptions:
    """How to observe a model, without the model: the keywords of `observe`, with the defaults of `OnlineTuner`.

    Parameters
    ----------
    batches : int, float, "auto" or None, default "auto"
        How many training batches to use, as for `observe`.
    validation_batches : int, float, "auto" or None, default 100
        How many batches to take the gradient of the error on, as for `observe`.
    params : str, sequence of str or callable, optional
        The parameters in the gram, as for `observe`.
    draws : int, default 1
        How often to draw random terms, as for `observe`.
    merge : bool, default True
        Whether to merge small batches, as for `observe`.
    seed : int, default 0
        The seed of batches, masks and transforms, as for `observe`.
    gradient_metric : {"plain", "curvature"}, default "plain"
        The metric in which gradients are compared, as for `observe`.

    Raises
    ------
    InvalidInput
        If a count of batches, ``draws``, ``seed`` or ``gradient_metric`` breaks its rule.

    Examples
    --------
    >>> ObserveOptions(batches=0.25, draws=4).validation_batches
    100
    """

    batches: Count = "auto"
    validation_batches: Count = 100
    params: Select | None = None
    draws: int = 1
    merge: bool = True
    seed: int = 0
    gradient_metric: GradientMetric = "plain"

    def __post_init__(self) -> None:
        check_count(self.batches, "batches")
        check_count(self.validation_batches, "validation_batches")
        object.__setattr__(self, "draws", as_integer(self.draws, "draws", 1))
        object.__setattr__(self, "seed", as_integer(self.seed, "seed", 0))
        if self.gradient_metric not in get_args(GradientMetric):
            raise InvalidInput(
                f"`gradient_metric` must be one of {list(get_args(GradientMetric))}; found {self.gradient_metric!r}."
            )


def check_call(
    caller: str,
    model: Any,
    loss: Any,
    error: Any,
    train: Any,
    validation: Any,
    metric: Any = None,
    selection: Any = None,
) -> None:
    """Raise unless a model can be observed with these arguments; `observe` and `OnlineTuner` share this check.

    Parameters
    ----------
    caller : str
        The name of the function or class that was called, for the message about the order of arguments.
    model, loss, error, train, validation, metric, selection : object
        Its arguments, as for `observe`.

    Raises
    ------
    InvalidInput
        If one of them breaks its rule.
    """
    if not isinstance(loss, LinearLoss):
        raise InvalidInput(
            f"`loss` must be a LinearLoss; found {describe(loss)}. The order is {caller}(model, loss, error, train, "
            "validation)."
        )
    trainable(model)
    check_function(error, "error")
    if metric is not None:
        check_function(metric, "metric")
    check_loader(train, "train")
    if isinstance(train, MixtureLoader):
        raise InvalidInput(
            "`train` must be a loader that can be read from its start again, such as a SourceLoader of the same "
            "sources; found a MixtureLoader, which is for training."
        )
    check_loader(validation, "validation")
    if selection is not None:
        check_loader(selection, "selection")


def observe(
    model: nn.Module,
    loss: LinearLoss,
    error: Error,
    train: Any,
    validation: Any,
    *,
    metric: Error | None = None,
    selection: Any = None,
    batches: Count = None,
    validation_batches: Count = None,
    params: Select | None = None,
    draws: int = 1,
    seed: int = 0,
    merge: bool = True,
    gradient_metric: GradientMetric = "plain",
) -> Observation:
    """Observe a model: its validation error, the values of its loss terms, and the gram of all their gradients.

    The model is left as it was: modes, `.grad`, buffers such as batch-norm statistics, embeddings with a `max_norm`,
    and the state of every random generator. So are the loaders, also within an epoch.

    Parameters
    ----------
    model : Module
        The model. Under DDP and FSDP2, pass the wrapped model in every process, each with its own part of the data: all
        processes get the same observation. A plain model among several processes is refused.
    loss : LinearLoss
        The loss whose terms are observed.
    error : callable
        The validation error, ``(model, batch) -> mean over the batch``. It is evaluated in eval mode.
    train : iterable
        The training batches: a loader, or anything that yields batches each time it is iterated over. If it has
        persistent workers, others are started for this observation.
    validation : iterable
        The validation batches, in the same form.
    metric : callable, optional
        ``(model, batch) -> mean over the batch``. If given, it decides which model is better; lower is better.
    selection : iterable, optional
        Other validation batches. If given, the metric, or the error without one, is computed on them. So the examples
        that decide which model is better are not those that set the weights.
    batches : int, float, "auto" or None, default None
        How many of the training batches to use: a number, a fraction such as 0.25, None for all, or ``"auto"`` for an
        eighth of them, but at least 8 and at most 100 (100 if the loader has no length). A loader without a length that
        yields this many batches counts as endless.
    validation_batches : int, float, "auto" or None, default None
        How many batches to take the *gradient* of the error on. Its value is always computed on all batches.
    params : str, sequence of str or callable, optional
        The parameters in the gram: a pattern of names, several patterns, or a function ``(name, parameter) -> bool``.
        By default those on which the error depends: the head of an auxiliary task cannot match the error's gradient,
        which is 0 there. The error must depend on at least one of them.
    draws : int, default 1
        How often to draw random terms (`Dropout`, `Augmented`, callables with ``random = True``), to be averaged. Noise
        in a term's gradient makes its learned weight smaller.
    seed : int, default 0
        Calls with the same seed read the same batches (if a loader shuffles by torch's generator or its own) and draw
        the same masks and transforms. Then models differ by their parameters only.
    merge : bool, default True
        Whether to merge small batches: at most 32 of them, as long as the tensors that autograd saves fit into 32 MB.
        How many fit is measured on a few examples of the first batch. A loader of small batches then costs no more than
        one of large batches. Turn it off for terms that compare the examples of a batch, such as contrastive ones, and
        for models that recompute activations (checkpointing). Batches are never merged if batch norm takes its
        statistics from the batch, nor under FSDP2.
    gradient_metric : {"plain", "curvature"}, default "plain"
        The metric in which gradients are compared. With ``"curvature"``, directions count less if the training loss is
        strongly curved in them: see the notes. This is for one process, for losses of at most 64 weights, and for data
        terms that depend on parameters through the outputs of the model alone.

    Returns
    -------
    Observation

    Raises
    ------
    InvalidInput
        If an argument breaks its rule, or a term depends on no parameter.
    NotFinite
        If a value or a gradient is not finite.

    Notes
    -----
    Terms are evaluated in train mode. If the model is in train mode, its modules keep their modes, so that frozen
    layers stay frozen. Otherwise all of it is put into train mode.

    Values and gram are summed in float64, gradients in the dtype of the parameters, at least float32. An observation
    needs memory for one copy of the parameters per data term, one for the error, and one per weight of a user-defined
    penalty that is not `entrywise`. It forms no n x k matrix.

    In the curvature metric, the gram is :math:`\\lambda M' (F + \\lambda I)^{-1} M`, with the gradients M = [J | g] of
    all terms and of the error. F is the Gauss-Newton matrix of the data terms with their present weights, on about 12
    of the training examples, plus the second derivative of `L2`; other penalties are left out. If some terms are
    random, either one of them or all other terms are drawn by their weights, and stand for all. As :math:`\\lambda`
    grows, the gram tends to the plain gram M'M, so observations of both kinds can be used together.

    The inverse amplifies noise. So :math:`\\lambda` is the smallest of 1, 0.1, 0.01, 0.001 and 0.0001 times the largest
    eigenvalue of F with which the gradients of the error on two halves of the validation examples have a cosine of at
    least 0.5. If there is none, the gram is the plain one. The noise of sampled batches is subtracted as in the plain
    gram, times a factor by which the metric shrinks one vector of it. The inverse is computed on a Krylov space of two
    blocks. This needs memory for up to eight more copies of the parameters per weight, and for the graph of the model
    on these examples.

    Examples
    --------
    >>> import torch
    >>> from tuneloss.torch import L2
    >>> loss = LinearLoss({"fit": lambda model, batch: model(batch).square().mean(), "l2": L2()},
    ...                   box={"fit": 1.0, "l2": (0, 1)})
    >>> data = [torch.ones(4, 2)]
    >>> model = observe(nn.Linear(2, 1), loss, loss.data_terms[0].term, data, data)
    >>> model.names, model.gram.shape, bool(abs(model.error - model.features[0]) < 1e-6)
    (('fit', 'l2'), (3, 3), True)
    """
    check_call("observe", model, loss, error, train, validation, metric, selection)
    options = ObserveOptions(batches, validation_batches, params, draws, merge, seed, gradient_metric)
    for _, penalty, _ in loss.layout.learned:
        penalty.check_placed()
    return observe_with(options, model, loss, error, train, validation, metric, selection)[0]


def observe_with(
    options: ObserveOptions,
    model: nn.Module,
    loss: LinearLoss,
    error: Error,
    train: Any,
    validation: Any,
    metric: Error | None = None,
    selection: Any = None,
    fits: Fits | None = None,
) -> tuple[Observation, float]:
    """Do what `observe` does, with its keywords as one object, for checked arguments and placed knots.

    Also return about how many training steps take as long. Examples are counted for this: a forward of one counts 1,
    and a backward 2. What was found out about memory is kept in `fits`, for the next call.
    """
    processes, inner = processes_of(model), bare(model)
    curved = options.gradient_metric == "curvature"
    if curved:
        check_curvature(inner, loss, processes)
    modules = nn.ModuleList([inner, loss])  # terms may be modules too
    loaders = [train, validation] if selection is None else [train, validation, selection]
    with preserved(modules, *loaders), eagerly(inner):
        seed_loaders(options.seed, *loaders)
        params = trainable(inner)
        select = options.params
        chosen = {name: p for name, p in params.items() if select is None or matches(select, name, p)}
        if not chosen:
            raise InvalidInput(f"`params` must select a parameter that is trained; found none among {list(params)}.")
        sums = Sums(chosen, processes)
        keep = EXAMPLES if curved else 0
        how: dict[str, Any] = {"draws": options.draws, "seed": options.seed, "merge": options.merge}
        look = Pass(inner, sums, processes, **how, keep=keep, fits=fits)
        processes.share_buffers(inner)
        with processes.together(), in_eval_mode(inner), unshrunk_embeddings(modules):
            look.validation(error, metric if selection is None else None, validation, options.validation_batches)
            if selection is not None:
                look.selection(metric or error, selection)
        if select is None:
            sums.keep_params_of_error()
        elif not any(sums.used_by_error()):
            raise InvalidInput(
                "`params` must select a parameter on which the error depends; found none among the selected "
                f"{list(chosen)}. Leave `params` out, to select all on which it depends, or select other ones."
            )
        if not inner.training:
            inner.train()
        with processes.together(), unshrunk_embeddings(modules):
            look.training(loss, train, options.batches)
        reshard(inner)
        observation = make_observation(sums, look.spread, loss, params)
        if curved:
            with unshrunk_embeddings(modules):
                observation = in_curvature_metric(observation, look, loss, params)
        return observation, sums.steps
