"""Inner products in the metric of an inverse matrix, for every damping at once, by block Lanczos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tuneloss.errors import NotFinite


class Symmetric(Protocol):
    """A symmetric matrix F (n, n), known by its products."""

    def product(self, rows: Tensor) -> Tensor:
        """Return the products (r, n) of rows (r, n) with F."""

    def quadratic(self, rows: Tensor) -> Tensor:
        """Return the products (r, r) of rows V (r, n) with each other, V F V', in float64 on the CPU."""


@dataclass(frozen=True)
class Ritz:
    """The products of vectors M (n, r) in the metric of a matrix F, within a Krylov space.

    Parameters
    ----------
    values : (q,) float64 tensor
        The eigenvalues of F on the space (Ritz values), ascending.
    rows : (r, q) float64 tensor
        The components of the vectors along the eigenvectors (Ritz vectors). All of M is within the space.
    """

    values: Tensor
    rows: Tensor

    @property
    def largest(self) -> float:
        """The largest Ritz value."""
        return float(self.values[-1])

    def gram(self, damping: float) -> Tensor:
        """Return ``damping * M' (F + damping I)^-1 M`` (r, r), with negative eigenvalues of F taken as 0.

        As the damping grows, it tends to M'M.
        """
        shrunk: Tensor = (self.rows * (damping / (self.values.clamp(min=0) + damping))) @ self.rows.T
        return shrunk


def block_lanczos(matrix: Symmetric, rows: Tensor, steps: int) -> Ritz:
    """Project a symmetric matrix on the space spanned by M, F M, ..., F^(steps - 1) M.

    Parameters
    ----------
    matrix : Symmetric
        The matrix F.
    rows : (r, n) tensor
        The vectors M, as rows.
    steps : int
        The number of blocks. The last one needs no product, only the quadratic form.

    Notes
    -----
    Each block is made orthogonal to all earlier ones, and directions that are spanned already are left out. So the
    result is exact if the space is invariant under F, in particular if it is everything.

    Examples
    --------
    >>> class Diagonal:
    ...     def product(self, rows):
    ...         return rows * torch.tensor([1.0, 3.0])
    ...     def quadratic(self, rows):
    ...         return (self.product(rows) @ rows.T).double()
    >>> ritz = block_lanczos(Diagonal(), torch.tensor([[1.0, 1.0]]), steps=2)
    >>> ritz.gram(1.0)                                      # 1 / (1 + 1) + 1 / (3 + 1)
    tensor([[0.7500]], dtype=torch.float64)
    """
    basis, upper = torch.linalg.qr(rows.T)
    last = basis.T.contiguous()
    space, images = last, last[:0]
    for _ in range(steps - 1):
        if not len(last):
            break
        image = matrix.product(last)
        images = torch.cat([images, image])
        last = _new_directions(image, space)
        space = torch.cat([space, last])
    known = len(images)  # directions of the space whose products are known; the others are the last block
    projected = torch.zeros(len(space), len(space), dtype=torch.float64)
    projected[:, :known] = (space @ images.T).cpu().double()
    projected[:known, known:] = projected[known:, :known].T
    if len(last):
        projected[known:, known:] = matrix.quadratic(last)
    if not bool(projected.isfinite().all()):
        raise NotFinite(
            "Second derivatives must be finite for the curvature metric; found others. A root or a power below 2 has "
            'none at 0. gradient_metric="plain" needs first derivatives only.'
        )
    values, vectors = torch.linalg.eigh((projected + projected.T) / 2)
    return Ritz(values, upper.T.cpu().double() @ vectors[: len(upper)])


def _new_directions(images: Tensor, known: Tensor) -> Tensor:
    """Return orthonormal rows that span, with orthonormal rows (q, n), the rows of images (p, n)."""
    rest = images
    for _ in range(2):  # once leaves rounding errors of the first projection
        rest = rest - (rest @ known.T) @ known
    basis, upper = torch.linalg.qr(rest.T)
    small = torch.finfo(images.dtype).eps * images.norm() * images.shape[1] ** 0.5
    kept = basis.T[upper.diagonal().abs() > small][: images.shape[1] - len(known)]
    kept = kept - (kept @ known.T) @ known
    directions: Tensor = torch.linalg.qr(kept.T)[0].T.contiguous()
    return directions
