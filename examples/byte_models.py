"""What `data_mixture.py` trains: a small GPT, on bytes of text domains that every installation has."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

CONTEXT = 64  # bytes that a model sees
STRIDE = 16  # bytes between the starts of two windows of training text
CHUNK = 2048  # bytes: a target's text is dealt out to validation and test in chunks
# Where the files of a domain are, the suffix of their names, and how many bytes are used at most. A place is a folder
# or a file of the standard library, or "package:folder".
SOURCES: Mapping[str, tuple[Sequence[str], str, int]] = {
    "manual": (["pydoc_data/topics.py"], ".py", 300_000),
    "network": (["asyncio", "http"], ".py", 300_000),
    "tables": (["encodings"], ".py", 300_000),
    "stubs": (["numpy:."], ".pyi", 200_000),
    "C++": (["torch:include/c10"], ".h", 200_000),
    "CMake": (["torch:share/cmake"], ".cmake", 100_000),
    "numbers": (["sklearn:datasets/data"], ".csv", 100_000),
    "entities": (["html/entities.py"], ".py", 60_000),
}
OUTSIDE: Mapping[str, tuple[Sequence[str], str, int]] = {  # no domain of training
    "Cython": (["sklearn:metrics", "sklearn:tree", "sklearn:utils"], ".pyx", 200_000),
    "data sheets": (["sklearn:datasets/descr"], ".rst", 40_000),
    "C": (["numpy:_core/include"], ".h", 200_000),
    "mail": (["email", "mailbox.py", "smtplib.py"], ".py", 200_000),
    "unittest": (["unittest"], ".py", 200_000),
}


@lru_cache(maxsize=32)
def text(domain: str) -> Tensor:
    """Read the first bytes of a domain, from its files in the order of their names."""
    places, suffix, most = {**SOURCES, **OUTSIDE}[domain]
    if domain == "manual":  # the texts themselves: how the file quotes them depends on the version of Python
        from pydoc_data.topics import topics

        found = "\n".join(topics[name] for name in sorted(topics)).encode()
    else:
        found = b"".join(path.read_bytes() for place in places for path in files(place, suffix))
    return torch.from_numpy(np.frombuffer(found[:most], dtype=np.uint8).copy())


def files(place: str, suffix: str) -> Iterator[Path]:
    """Find the files of a place, without tests."""
    package, _, folder = place.rpartition(":")
    root = Path(str(resources.files(package))) if package else Path(sysconfig.get_path("stdlib"))
    if (root / folder).is_file():
        yield root / folder
        return
    found = sorted((root / folder).rglob(f"*{suffix}"), key=lambda path: path.as_posix())
    yield from (path for path in found if not any(part.startswith("test") for part in path.relative_to(root).parts))


class Windows(Dataset[Tensor]):
    """Windows of CONTEXT + 1 bytes, as examples of a dataset.

    Parameters
    ----------
    pieces : (n, bytes) tensor
        Texts of equal length. No window reaches over the end of one.
    stride : int
        The bytes between the starts of two windows.
    """

    def __init__(self, pieces: Tensor, stride: int = STRIDE) -> None:
        self.windows = pieces.unfold(1, CONTEXT + 1, stride).reshape(-1, CONTEXT + 1)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int | slice) -> Tensor:
        return self.windows[index].long()


def held_out(domain: str, seed: int) -> tuple[Windows, Windows]:
    """Deal out a domain's text: half of its chunks to validation, half to test."""
    chunks = text(domain)[: len(text(domain)) // CHUNK * CHUNK].view(-1, CHUNK)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(chunks)))
    half = len(chunks) // 2
    return Windows(chunks[order[:half]], CONTEXT), Windows(chunks[order[half:]], CONTEXT)


class Block(nn.Module):
    """A block of a transformer: causal attention and a hidden layer, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, bytes, width) to the same shape."""
        n, length, width = x.shape
        parts = self.inputs(self.norms[0](x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.hidden(self.norms[1](x))


class GPT(nn.Module):
    """A small GPT over bytes. Its embedding is also its output layer.

    A causal convolution gives each position the three bytes before it. Without it, a model of this size needs most of
    its few hundred steps to learn to look at them.
    """

    def __init__(self, width: int, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.width = width
        self.embedding, self.places = nn.Embedding(256, width), nn.Parameter(0.02 * torch.randn(width, CONTEXT))
        self.near = nn.Conv1d(width, width, kernel_size=4)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Map bytes (rows, bytes) to logits of the next byte (rows, bytes, 256)."""
        e = self.embedding(x).transpose(1, 2)
        e = e + self.near(F.pad(e, (3, 0))) + self.places[:, : x.shape[1]]
        return F.linear(self.blocks(e.transpose(1, 2)), self.embedding.weight)


def size(model: nn.Module) -> int:
    """Count the parameters of a model."""
    return sum(p.numel() for p in model.parameters())


def row_losses(model: nn.Module, rows: Tensor) -> Tensor:
    """Compute the mean log loss of the next byte, in nats, of each row (rows,)."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(len(rows), -1).mean(1)


def log_loss(model: nn.Module, rows: Tensor) -> Tensor:
    """Compute the mean log loss of the next byte, in nats."""
    return row_losses(model, rows).mean()
