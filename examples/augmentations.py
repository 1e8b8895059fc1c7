"""Augmentations of small grey images, in plain torch: from x (N, 1, H, W) in [0, 1] to images of the same shape.

Each image gets its own random change. Random numbers come from torch's global generator on the CPU: whoever restores
its state gets the same images again. `USEFUL` augmentations keep the meaning of a digit. `HARMFUL` ones do not: a
mirrored or turned digit is no digit, or another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Augmentation = Callable[[Tensor], Tensor]


def shift(x: Tensor, most: float = 1.0) -> Tensor:
    """Move each image by up to `most` pixels, left or right and up or down."""
    by = _uniform(x, -most, most, 2) * x.new_tensor([2 / x.shape[3], 2 / x.shape[2]])
    return _warp(x, _same(x), by)


def rotate(x: Tensor, most: float = 20.0) -> Tensor:
    """Turn each image by up to `most` degrees about its centre."""
    angle = _uniform(x, -most, most) * (math.pi / 180)
    rows = [torch.stack([angle.cos(), -angle.sin()], dim=1), torch.stack([angle.sin(), angle.cos()], dim=1)]
    return _warp(x, torch.stack(rows, dim=1))


def zoom(x: Tensor, most: float = 1.25) -> Tensor:
    """Enlarge or shrink each image by a factor of up to `most`, which is drawn for each direction."""
    factor = torch.exp(_uniform(x, -math.log(most), math.log(most), 2))
    return _warp(x, torch.diag_embed(factor))


def shear(x: Tensor, most: float = 0.4) -> Tensor:
    """Slant each image: a row moves sideways by up to `most` times its height above the centre."""
    matrix = _same(x)
    matrix[:, 0, 1] = _uniform(x, -most, most)
    return _warp(x, matrix)


def noise(x: Tensor, most: float = 0.3) -> Tensor:
    """Add Gaussian noise of a standard deviation up to `most`."""
    return x + _columns(_uniform(x, 0.0, most)) * _normal(x)


def erase(x: Tensor, size: int = 3) -> Tensor:
    """Paint a square of `size` pixels black, anywhere in the image."""
    top, left = (_columns(torch.floor(_uniform(x, 0.0, side - size + 1.0))) for side in x.shape[2:])
    row = torch.arange(x.shape[2], device=x.device)[:, None]
    column = torch.arange(x.shape[3], device=x.device)
    inside = (row >= top) & (row < top + size) & (column >= left) & (column < left + size)
    return x.masked_fill(inside, 0.0)


def blur(x: Tensor) -> Tensor:
    """Mix each image with its 3 x 3 binomial blur; the share of the blur is between 0 and 1."""
    line = x.new_tensor([0.25, 0.5, 0.25])
    blurred = F.conv2d(x, torch.outer(line, line)[None, None], padding=1)
    return torch.lerp(x, blurred, _columns(_uniform(x, 0.0, 1.0)))


def contrast(x: Tensor, most: float = 0.4) -> Tensor:
    """Multiply each image by 1 ± `most`, add up to ± `most` / 2, and clip to [0, 1]."""
    gain, offset = _columns(_uniform(x, 1 - most, 1 + most)), _columns(_uniform(x, -most / 2, most / 2))
    return (gain * x + offset).clamp(0.0, 1.0)


def mirror(x: Tensor) -> Tensor:
    """Exchange left and right in every image."""
    return x.flip(3)


def upside_down(x: Tensor) -> Tensor:
    """Exchange top and bottom in every image."""
    return x.flip(2)


def quarter_turn(x: Tensor) -> Tensor:
    """Turn each (square) image by 90, 180 or 270 degrees."""
    turns = _columns(torch.floor(_uniform(x, 1.0, 4.0)))
    quarter, half, back = (x.rot90(times, dims=(2, 3)) for times in (1, 2, 3))
    return torch.where(turns == 1, quarter, torch.where(turns == 2, half, back))


USEFUL: dict[str, Augmentation] = {
    "shift": shift,
    "rotate": rotate,
    "zoom": zoom,
    "shear": shear,
    "noise": noise,
    "erase": erase,
    "blur": blur,
    "contrast": contrast,
}
HARMFUL: dict[str, Augmentation] = {"mirror": mirror, "upside_down": upside_down, "quarter_turn": quarter_turn}


def _uniform(x: Tensor, low: float, high: float, columns: int | None = None) -> Tensor:
    """Draw random numbers in [low, high): (N,), or (N, columns)."""
    shape = (len(x),) if columns is None else (len(x), columns)
    return (low + (high - low) * torch.rand(shape)).to(x)


def _normal(x: Tensor) -> Tensor:
    return torch.randn(x.shape).to(x)


def _columns(values: Tensor) -> Tensor:
    """Reshape (N,) to (N, 1, 1, 1)."""
    return values[:, None, None, None]


def _same(x: Tensor) -> Tensor:
    """Return identity matrices (N, 2, 2)."""
    return torch.eye(2).to(x).repeat(len(x), 1, 1)


def _warp(x: Tensor, matrix: Tensor, by: Tensor | None = None) -> Tensor:
    """Transform each image by its matrix (N, 2, 2) and shift it by (N, 2): bilinear, black outside."""
    offset = x.new_zeros(len(x), 2) if by is None else by
    grid = F.affine_grid(torch.cat([matrix, offset[:, :, None]], dim=2), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
