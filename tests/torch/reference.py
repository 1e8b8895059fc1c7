"""Models, data and an observation in its plainest form: one autograd gradient a column, all of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batches = Sequence[tuple[Tensor, Tensor]]
Term = Callable[[Any, Any], Tensor]


def log_loss(model: Any, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def make_data(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    """Batches of these sizes: inputs (n, 6) and three classes."""
    g = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, 6, generator=g, dtype=torch.float64).to(dtype), torch.randint(0, 3, (n,), generator=g))
        for n in sizes
    ]


def make_net(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Two linear layers and a norm."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))
    return net.to(dtype)


class Counted(nn.Module):
    """A model that counts its forwards."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.forwards = inner, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.forwards += 1
        return self.inner(*args, **kwargs)


class Tied(nn.Module):
    """Two layers that share a matrix, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.frozen = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight
        self.frozen.requires_grad_(False)


def matrices(model: nn.Module) -> list[Tensor]:
    """What penalties are of if nothing is said."""
    return [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]


def hinges(knots: Sequence[float], of: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
    """The 2p hinges, each summed over parameters."""
    right = [lambda a=a: sum(F.relu(p - a).sum() for p in of) for a in knots]
    return right + [lambda a=a: sum(F.relu(a - p).sum() for p in of) for a in knots]  # type: ignore[return-value]


def dense(
    model: nn.Module,
    terms: Mapping[str, Term],
    penalties: Sequence[Callable[[], Tensor]],
    error: Term,
    train: Batches,
    validation: Batches,
    params: Sequence[Tensor] | None = None,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Error, features and gram, data terms first: each value over all examples, each gradient a dense vector."""
    of = [p for p in model.parameters() if p.requires_grad] if params is None else list(params)

    def column(value: Tensor) -> Tensor:
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, of, materialize_grads=True)])

    def mean(term: Term, data: Batches) -> Tensor:
        return sum(len(b[1]) * term(model, b) for b in data) / sum(len(b[1]) for b in data)  # type: ignore[return-value]

    model.train()
    values = [mean(term, train) for term in terms.values()] + [penalty() for penalty in penalties]
    columns = [column(value) for value in values]
    model.eval()
    e = mean(error, validation)
    columns.append(column(e))
    model.train()
    M = torch.stack(columns, dim=1)
    return float(e.detach()), torch.stack([v.detach() for v in values]).numpy(), (M.T @ M).numpy()
