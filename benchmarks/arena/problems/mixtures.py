"""A language model of bytes, trained on a mixture of text domains, for the log loss on a target domain."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.arena.problem import Instance, Problem, dirichlet, share
from tuneloss import Box

CONTEXT = 12  # bytes that the model sees
MOST = 200_000  # bytes of a domain
CHUNK = 500  # bytes: the target's text is split into training, validation and test by chunks
ROWS = 16  # of each domain in a batch
# Folders and files of the standard library, or of a package ("package:folder"), and the suffixes of their names.
DOMAINS: dict[str, tuple[Sequence[str], str]] = {
    "asyncio": (["asyncio"], ".py"),
    "data sheets": (["sklearn:datasets/descr"], ".rst"),
    "email": (["email"], ".py"),
    "encodings": (["encodings"], ".py"),
    "html": (["html/entities.py"], ".py"),
    "http": (["http", "urllib"], ".py"),
    "importlib": (["importlib"], ".py"),
    "json": (["json"], ".py"),
    "logging": (["logging"], ".py"),
    "numbers": (["sklearn:datasets/data"], ".csv"),
    "stubs": (["numpy:."], ".pyi"),
    "unittest": (["unittest"], ".py"),
    "xml": (["xml"], ".py"),
}


@lru_cache(maxsize=32)
def text(domain: str) -> Tensor:
    """Read the text of a domain: at most MOST bytes, from files in the order of their names."""
    if domain == "manual":
        from pydoc_data.topics import topics

        return _bytes("\n".join(topics[name] for name in sorted(topics)).encode())
    places, suffix = DOMAINS[domain]
    return _bytes(b"".join(path.read_bytes() for place in places for path in _files(place, suffix)))


def _files(place: str, suffix: str) -> Iterator[Path]:
    package, _, folder = place.rpartition(":")
    root = Path(str(resources.files(package))) if package else Path(sysconfig.get_path("stdlib"))
    if (root / folder).is_file():
        yield root / folder
    else:
        yield from sorted(path for path in (root / folder).glob(f"*{suffix}") if "test" not in path.name)
        yield from sorted(path for path in (root / folder).glob(f"*/*{suffix}") if "test" not in str(path))


def _bytes(found: bytes) -> Tensor:
    return torch.tensor(np.frombuffer(found[:MOST], dtype=np.uint8).copy(), dtype=torch.long)


class Windows:
    """Batches with the same number of rows of each domain: (bytes before, next byte, number of the domain)."""

    def __init__(self, texts: Sequence[Tensor], length: int, seed: int) -> None:
        self.texts, self.length = texts, length
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        number = torch.arange(len(self.texts)).repeat_interleave(ROWS)
        for _ in range(self.length):
            parts = [cut(t, torch.randint(len(t) - CONTEXT, (ROWS,), generator=self.generator)) for t in self.texts]
            yield torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]), number


def cut(source: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Cut windows (n, CONTEXT) out of a text, and the byte after each (n,)."""
    windows = source[starts.unsqueeze(1) + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, -1]


def make_model(seed: int, hidden: int = 128, size: int = 12) -> nn.Module:
    """Make a model of the next byte: an embedding of each byte before it, and one hidden layer."""
    torch.manual_seed(seed)
    first = nn.Linear(CONTEXT * size, hidden)
    return nn.Sequential(nn.Embedding(256, size), nn.Flatten(), first, nn.ReLU(), nn.Linear(hidden, 256))


def error(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the mean log loss of the next byte."""
    return cross_entropy(model(batch[0]), batch[1])


def draw(seed: int, *, target: str, domains: Sequence[str], own: int = 0) -> Instance:
    """Draw a mixture of domains.

    Parameters
    ----------
    target : str
        The domain of validation and test.
    domains : sequence of str
        The training domains.
    own : int
        How many bytes of the target's text are for training, if it is a training domain.
    """
    rng = np.random.default_rng(seed)
    names = list(domains)
    chunks = text(target)[: len(text(target)) // CHUNK * CHUNK].view(-1, CHUNK)
    order = torch.from_numpy(rng.permutation(len(chunks)))
    n = own // CHUNK
    rest = (len(chunks) - n) // 3
    train, validation, test = (chunks[part] for part in order.split([n, rest, len(chunks) - n - rest]))
    texts = [train.flatten() if name == target else text(name) for name in names]

    def per_domain(model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
        losses = cross_entropy(model(batch[0]), batch[1], reduction="none")
        inside = nn.functional.one_hot(batch[2], len(names)).to(losses)
        means = (losses @ inside) / inside.sum(dim=0)
        return dict(zip(names, means.unbind(), strict=True))

    equal = share(names, np.ones(len(names)))
    named: dict[str, Mapping[str, float]] = {"equal": equal, "natural": share(names, [len(part) for part in texts])}
    if target in names:
        named["target only"] = share(names, [name == target for name in names])
    return Instance(
        model=make_model(seed),
        terms=[per_domain],
        box=Box.simplex(names),
        error=error,
        train=Windows(texts, 50, seed),
        validation=[_sample(validation, 1000, rng)],
        test=[_sample(test, 5000, rng)],
        epochs=25,
        plain=equal,
        named=named,
        random=lambda rng: dirichlet(rng, names),
        learning_rate=2e-3,
    )


def _sample(chunks: Tensor, n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw windows, each within a chunk."""
    chunk = rng.integers(len(chunks), size=n)
    start = rng.integers(CHUNK - CONTEXT, size=n)
    return cut(chunks.flatten(), torch.from_numpy(CHUNK * chunk + start))


PROBLEMS = [
    Problem(
        "mixture, manual", "mixtures", "choose",
        partial(
            draw, target="manual", domains=("manual", "json", "unittest", "encodings", "html", "numbers"), own=8_000
        ),
    ),
    Problem(
        "mixture, xml", "mixtures", "report",
        partial(draw, target="xml", domains=("asyncio", "email", "encodings", "html", "stubs", "data sheets")),
    ),
    Problem(
        "mixture, data sheets", "mixtures", "report",
        partial(draw, target="data sheets", domains=("manual", "http", "logging", "importlib", "stubs", "numbers")),
    ),
]  # fmt: skip
