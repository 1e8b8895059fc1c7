"""A model, its loaders and every random number generator stay exactly as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tuneloss.torch.sources.source_loader import SourceLoader
from tuneloss.torch.sources.target_mix import TargetMix
from tuneloss.torch.wrappers import local, reshard


@contextmanager
def preserved(model: nn.Module, *loaders: Any) -> Iterator[None]:
    """Return a context with gradients on, after which modes, buffers, loaders and random generators are as before.

    Buffers are, for example, the running statistics of batch norm. Gradients (`.grad`) are not restored, since
    observing does not touch them.
    """
    modules = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, tensor, None if tensor is None else tensor.detach().clone())
        for module, _ in modules
        for name, tensor in module._buffers.items()
    ]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(random_state(loaders))
        stack.enter_context(_other_workers(loaders))
        stack.enter_context(_places_in_epochs(loaders))
        try:
            yield
        finally:
            _set_modes(modules)
            for module, name, tensor, before in buffers:
                module._buffers[name] = tensor
                if tensor is None or before is None:  # a buffer that the forward may have set
                    continue
                if not torch.equal(tensor, before):  # batch norm changes its statistics without a new version
                    with torch.no_grad():
                        tensor.copy_(before)


@contextmanager
def unshrunk_embeddings(model: nn.Module) -> Iterator[None]:
    """Return a context after which embeddings with a `max_norm` have the weights they had.

    The forward of such an embedding shrinks the rows that it looks up.
    """
    reshard(model)  # a shard lives as long as the model; a parameter that FSDP2 has gathered does not
    shrinking = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.max_norm is not None]
    weights = [(local(m.weight), local(m.weight).clone()) for m in shrinking]
    try:
        yield
    finally:
        for weight, before in weights:
            if not torch.equal(weight, before):
                weight.copy_(before)


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Return a context in which every module is in eval mode; after it, each is in its old mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        _set_modes(modes)


def _set_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    """Set the mode of each module, for itself alone."""
    for module, mode in modes:
        if module.training != mode:
            module.train(mode)  # not only the flag: some modules do more, such as adapters that `eval` merged
    for module, mode in modes:
        module.training = mode


def seed_everything(*numbers: int) -> None:
    """Seed torch, NumPy and `random`, which transforms draw from: equal numbers give equal draws."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # the same, without spending a millisecond on devices that are not there
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (a user's transform may draw from it)
    random.seed(seed)


def seed_loaders(seed: int, *loaders: Any) -> None:
    """Seed the generators that shuffle, so that each observation reads the same examples in the same order."""
    seed_everything(seed)
    for generator in _generators(loaders):
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
        else:
            generator.bit_generator.state = np.random.default_rng(seed).bit_generator.state


@contextmanager
def random_state(loaders: tuple[Any, ...]) -> Iterator[None]:
    """Return a context after which all random generators are in the state they were in."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_states = [(g, g.get_state()) for g in _generators(loaders) if isinstance(g, torch.Generator)]
    numpy_states = [(g, g.bit_generator.state) for g in _generators(loaders) if isinstance(g, np.random.Generator)]
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
            for generator, state in torch_states:
                generator.set_state(state)
            for rng, saved in numpy_states:
                rng.bit_generator.state = saved


@contextmanager
def _other_workers(loaders: tuple[Any, ...]) -> Iterator[None]:
    """Return a context in which loaders with persistent workers start new ones; after it, the old ones continue.

    A `DataLoader` with persistent workers has one iterator. To read it again within an epoch would reset that epoch,
    and would change the random numbers of its workers.
    """
    iterators = [(loader, loader._iterator) for loader in _unwrapped(loaders) if isinstance(loader, DataLoader)]
    for loader, _ in iterators:
        loader._iterator = None
    try:
        yield
    finally:
        for loader, iterator in iterators:
            started, loader._iterator = loader._iterator, iterator
            if started is not None and hasattr(started, "_shutdown_workers"):
                started._shutdown_workers()  # now, since an error's traceback may keep them alive for long


@contextmanager
def _places_in_epochs(loaders: tuple[Any, ...]) -> Iterator[None]:
    """Return a context after which loaders that Accelerate prepared are where they were in their epochs.

    Such a loader counts its epochs, and tells a list of all loaders that are being read when it starts and ends. At
    the end of the loader that began last, gradients that were accumulated are used.
    """
    prepared = [loader for loader in _unwrapped(loaders) if hasattr(loader, "gradient_state")]
    places = [(loader, loader.iteration, loader.end_of_dataloader, loader.remainder) for loader in prepared]
    being_read = [(loader.gradient_state, loader.gradient_state.dataloader_references) for loader in prepared]
    try:
        yield
    finally:
        for loader, iteration, at_end, remainder in places:
            loader.iteration, loader.end_of_dataloader, loader.remainder = iteration, at_end, remainder
        for state, references in being_read:
            state.dataloader_references = references


def _generators(loaders: tuple[Any, ...]) -> list[Any]:
    """Return the random generators of loaders and of their samplers, each once."""
    owners = _unwrapped(loaders)
    for loader in list(owners):
        owners += [getattr(loader, part, None) for part in ("sampler", "batch_sampler", "dataset")]
        owners += [getattr(getattr(loader, "batch_sampler", None), "sampler", None)]
    generators = [getattr(owner, "generator", None) for owner in owners]
    distinct = {id(g): g for g in generators if isinstance(g, (torch.Generator, np.random.Generator))}
    return list(distinct.values())


def _unwrapped(loaders: tuple[Any, ...]) -> list[Any]:
    """Return the loaders, those of their sources or targets, and each `DataLoader` that one holds; each once.

    It may hold one as an attribute, or in an attribute that is a dict.
    """
    parts = [part for loader in loaders if isinstance(loader, TargetMix) for _, _, part in loader.parts]
    parts += [part for loader in loaders if isinstance(loader, SourceLoader) for part in loader.loaders.values()]
    attributes = [part for loader in (*loaders, *parts) for part in getattr(loader, "__dict__", {}).values()]
    attributes += [part for some in attributes if isinstance(some, dict) for part in some.values()]
    inner = [part for part in attributes if isinstance(part, DataLoader)]
    return list({id(loader): loader for loader in (*loaders, *parts, *inner)}.values())
