"""Read a data set from a CSV, Parquet or npz file, from standard input, or an embedded one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuneloss.data.arrays import read_npz
from tuneloss.data.dataset import Dataset, input_problems, refuse
from tuneloss.data.sparse_table import make_sparse_table
from tuneloss.data.table_files import TableFile
from tuneloss.data.table_remarks import missing_problems
from tuneloss.data.tables import ALL, read_columns, read_table
from tuneloss.errors import InvalidInput

SPARSE = "sparse"  # a table that is drawn from a known model
EMBEDDED = (SPARSE, "digits", "iris", "wine", "breast_cancer")  # scikit-learn carries the others
STDIN = "-"  # the source that stands for standard input


def read_dataset(
    source: str, target: str = "", drop: Sequence[str] = (), max_gb: float = 1.0, *, use: Sequence[str] = ()
) -> Dataset:
    """Read inputs and labels.

    Parameters
    ----------
    source : str
        Path of a CSV, Parquet or npz file; "-" for a CSV file on standard input; or one of "sparse", "digits", "iris",
        "wine", "breast_cancer". "sparse" is synthetic: 8 of its 300 inputs matter. A CSV file may have commas,
        semicolons, tabs or "|" between its columns, and it may be compressed by gzip.
    target : str, default ""
        The column of labels, or the array of labels of an npz file. It may be empty for an embedded set, and for an
        npz file whose labels are named ``labels``, ``y`` or ``target``.
    drop : sequence of str
        Columns to leave out.
    max_gb : float, default 1.0
        The largest size to read, in GB, both on disk and expanded: all of it is held in memory.
    use : sequence of str
        Columns of whole numbers to use as inputs, although they look like identifiers.

    Returns
    -------
    Dataset
        All columns except the target are inputs: numbers, or text, which stands for categories. Some columns are left
        out: the dropped ones, dates, identifiers, columns without a value, text that differs in most rows, and the
        index that pandas writes into a Parquet file. `Dataset.notes` names them.

    Raises
    ------
    InvalidInput
        If the file cannot be read, or if columns do not hold what they must. The message lists all problems.
    """
    if _is_embedded(source):
        for name in [*([target] if target else []), *drop, *use]:
            raise InvalidInput(
                f"The embedded set {source} has a fixed target and fixed inputs; found {name!r}. Leave it out."
            )
        return _read_embedded(source)
    if _is_npz(source):
        return read_npz(_checked_path(source, max_gb), target, [*drop, *use], max_gb)
    return read_table(_table_file(source, max_gb), target, drop, use)


def read_inputs(
    source: str,
    names: Sequence[str],
    text_names: Sequence[str] = (),
    *,
    keep: Sequence[str] = (),
    max_gb: float = 1.0,
) -> Dataset:
    """Read the inputs of these names, in this order; other columns are ignored.

    Parameters
    ----------
    source, max_gb
        As in `read_dataset`.
    names : sequence of str
        The inputs that are numbers; those of an npz file are called x0, x1, ...
    text_names : sequence of str
        The inputs that are categories.
    keep : sequence of str
        Columns whose cells `Dataset.kept` holds, as they are; "all" for all columns.

    Returns
    -------
    Dataset
        Without labels.

    Raises
    ------
    InvalidInput
        If the file cannot be read, if an input is not there, or if it holds what it must not.
    """
    if not _is_embedded(source) and not _is_npz(source):
        return read_columns(_table_file(source, max_gb), names, text_names, keep)
    dataset = (
        _read_embedded(source) if _is_embedded(source) else read_npz(_checked_path(source, max_gb), None, (), max_gb)
    )
    kept = dataset.names if ALL in keep else tuple(dict.fromkeys(keep))
    columns = {name: j for j, name in enumerate(dataset.names)}
    missing = [name for name in names if name not in columns] + list(text_names)  # all of its inputs are numbers
    unknown = [f"It has no column {name!r}." for name in kept if name not in columns]
    refuse(dataset.title, [*missing_problems(missing), *unknown, *input_problems(dataset)])
    cells = {name: [f"{value:.17g}" for value in dataset.x[:, columns[name]]] for name in kept}
    return Dataset(dataset.title, tuple(names), dataset.x[:, [columns[name] for name in names]], kept=cells)


def _is_embedded(source: str) -> bool:
    """Return whether this names an embedded set; a file of that name takes precedence."""
    return source in EMBEDDED and not Path(source).exists()


def _is_npz(source: str) -> bool:
    return Path(source).suffix.lower() == ".npz"


def _table_file(source: str, max_gb: float) -> TableFile:
    """Read the bytes of a table."""
    if source == STDIN:
        content = sys.stdin.buffer.read(int(max_gb * 1e9) + 1)
        if len(content) > max_gb * 1e9:
            raise InvalidInput(
                f"The data must have at most {max_gb:g} GB, since all of it is held in memory; standard input has "
                "more. Take a part of its rows, or raise `max_gb`."
            )
        return TableFile("standard input", content, content.startswith(b"PAR1"), max_gb)
    path = _checked_path(source, max_gb)
    try:
        content = path.read_bytes()
    except OSError as reason:
        raise InvalidInput(f"The data must be a file that can be read; found {source!r}: {reason}.") from None
    return TableFile(path.name, content, path.suffix.lower() in (".parquet", ".pq"), max_gb)


def _checked_path(source: str, max_gb: float) -> Path:
    """Return the path of a file that can be read and is not too large."""
    path = Path(source)
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(
            f"The data must be a CSV, Parquet or npz file, - for standard input, or one of {', '.join(EMBEDDED)}; "
            f"found {source!r}: {reason.strerror}."
        ) from None
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InvalidInput(f"The data must be a file that can be read; found {source!r}.")
    if size > max_gb * 1e9:
        raise InvalidInput(
            f"The data must have at most {max_gb:g} GB, since all of it is held in memory; {source!r} has "
            f"{size / 1e9:.2g} GB. Take a part of its rows, or raise `max_gb`."
        )
    return path


def _read_embedded(name: str) -> Dataset:
    if name == SPARSE:
        return make_sparse_table()
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    names = tuple(str(n) for n in bunch.feature_names)
    labels = np.asarray(bunch.target_names)[bunch.target]
    return Dataset(name, names, np.asarray(bunch.data, dtype=np.float64), labels)
