"""Where data comes from: a CSV, Parquet or npz file, or an embedded set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tuneloss.cli.arrays import read_npz
from tuneloss.cli.data import Data
from tuneloss.cli.tables import read_table
from tuneloss.errors import InvalidInput

EMBEDDED = ("digits", "iris", "wine", "breast_cancer")
DataArgument = Annotated[
    str, typer.Argument(help=f"CSV, Parquet or npz file, or an embedded set: {', '.join(EMBEDDED)}.")
]
MaxGb = Annotated[float, typer.Option(min=0.001, help="Largest file that is read, also after it is expanded.")]


def read(
    source: str, target: str | None, drop: Sequence[str], max_gb: float, *, only: Sequence[str] | None = None
) -> Data:
    """An embedded set by name, or a CSV, Parquet or npz file.

    target: the column of labels; None to have none. only: the columns that are wanted, if they are there.
    """
    if source in EMBEDDED and not Path(source).exists():
        for name in [*([target] if target else []), *drop]:
            raise InvalidInput(f"The embedded set {source} knows its target and inputs; found {name!r}. Leave it out.")
        return _embedded(source)
    path = Path(source)
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(
            f"DATA must be a CSV, Parquet or npz file, or one of {', '.join(EMBEDDED)}; {source!r}: {reason.strerror}."
        ) from None
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InvalidInput(f"DATA must be a file that can be read; found {source!r}.")
    if size > max_gb * 1e9:
        raise InvalidInput(
            f"DATA must have at most {max_gb:g} GB, since all of it is held in memory; {source!r} has {size / 1e9:.2g} "
            "GB. Take a part of its rows, or raise --max-gb."
        )
    if path.suffix.lower() == ".npz":
        return read_npz(path, target, drop, max_gb)
    return read_table(path, target, drop, only, max_gb)


def _embedded(name: str) -> Data:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    names = tuple(str(n) for n in found.feature_names)
    labels = np.asarray(found.target_names)[found.target]
    return Data(name, names, np.asarray(found.data, dtype=np.float64), labels)
