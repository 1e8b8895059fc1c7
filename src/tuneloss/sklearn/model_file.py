"""Save a linear classifier as one file, and load it.

The format is NumPy's npz, read without pickle and within bounds. So a file of unknown origin cannot run code, and it
cannot fill the memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneloss.data.dataset import MAX_INPUTS
from tuneloss.errors import InvalidInput
from tuneloss.files import replacing
from tuneloss.npz import read_arrays
from tuneloss.sklearn.preparation import Preparation
from tuneloss.sklearn.saved_model import SavedModel
from tuneloss.types import Array

VERSION = 2  # version of the format that is written
NUMBERS_ALONE = 1  # the version before, without gaps and categories; it is read, too
MIN_EXPANDED = 2**26  # bytes that any file may expand to; a larger file, which we never compress, may have its own size
MAX_ABOUT = 2**22  # largest description, in bytes
NUMBERS, NUMBERS_OR_TEXT = "biuf", "biufU"  # kinds of dtype
Arrays = Mapping[str, NDArray[Any]]


def write_model(model: SavedModel, path: Path) -> Path:
    """Write a model to a file, and return the path. An old file is replaced."""
    preparation = model.preparation
    words = [word for column in preparation.categories for word in column]
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez(
            file,
            version=np.array(VERSION),
            names=np.array(preparation.names, dtype=np.str_),
            fill=preparation.fill,
            gaps=np.array(preparation.gaps, dtype=np.int64),
            text_names=np.array(preparation.text_names, dtype=np.str_),
            categories=np.array(words, dtype=np.str_),
            n_categories=np.array([len(column) for column in preparation.categories], dtype=np.int64),
            has_other=np.array(preparation.has_other, dtype=np.bool_),
            mean=preparation.mean,
            scale=preparation.scale,
            coef=model.coef,
            intercept=model.intercept,
            classes=model.classes,
            about=np.array(json.dumps(model.about)),
        )
    return path


def load_model(path: Path | str) -> SavedModel:
    """Read a model that `save_model` or `tuneloss fit` wrote.

    A file of unknown origin can do no harm. Nothing in it is run. Reading it takes no more memory than a few times its
    size or, if it is compressed, 64 MB.

    Parameters
    ----------
    path : Path or str
        The file. Files of earlier versions of tuneloss are read, too.

    Returns
    -------
    SavedModel
        It predicts from DataFrames, arrays and data sets. It cannot be fitted again.

    Raises
    ------
    InvalidInput
        If the file is damaged, or not such a file.
    """
    path = Path(path)
    what = "a model that `tuneloss fit` saved"
    try:
        size = path.stat().st_size
    except OSError as reason:
        raise InvalidInput(f"`{path}` must be {what}; found that {reason}.") from None
    arrays = read_arrays(path, what, max(size, MIN_EXPANDED))
    try:
        _check_version(path, arrays["version"])
        return _model(arrays)
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise InvalidInput(f"`{path}` must be {what}; found something else ({reason}).") from None


def _check_version(path: Path, version: NDArray[Any]) -> None:
    """Raise unless the file has a version of this format."""
    if version.shape != () or version.dtype.kind not in "iu":
        raise ValueError(f"a version that is not a whole number, {version!s:.80}")
    if version not in (NUMBERS_ALONE, VERSION):
        raise InvalidInput(
            f"`{path}` must have format version {NUMBERS_ALONE} or {VERSION}; found {version}. Another version of "
            "tuneloss wrote it."
        )


def _model(arrays: Arrays) -> SavedModel:
    """Return the model; raise ValueError if its arrays do not fit together."""
    classes, about = arrays["classes"], arrays["about"]
    read = _numbers_preparation if arrays["version"] == NUMBERS_ALONE else _preparation
    preparation = read(arrays)
    n, width = classes.size, preparation.width
    rows = 1 if n == 2 else n
    found = [arrays[name].shape for name in ("mean", "scale", "coef", "intercept", "classes", "about")]
    if found != [(width,), (width,), (rows, width), (rows,), (n,), ()] or n < 2:
        raise ValueError(f"arrays whose shapes do not fit together, {found}")
    if not (preparation.scale > 0).all():
        raise ValueError("a scale that is not above 0")
    _check_classes(classes)
    coef, intercept = _as_floats(arrays, "coef", "intercept")
    return SavedModel(preparation, coef, intercept, classes, _description(about))


def _numbers_preparation(arrays: Arrays) -> Preparation:
    """Read the preparation of a file of the first version."""
    return Preparation.of_numbers(_words(arrays, "names"), *_as_floats(arrays, "mean", "scale"))


def _preparation(arrays: Arrays) -> Preparation:
    """Read the preparation of a file of the second version."""
    names, text_names, words = (_words(arrays, name) for name in ("names", "text_names", "categories"))
    fill, mean, scale = _as_floats(arrays, "fill", "mean", "scale")
    gaps, counts = _as_counts(arrays, "gaps", len(names)), _as_counts(arrays, "n_categories", len(words) + 1)
    has_other = arrays["has_other"]
    shapes = [fill.shape, counts.shape, has_other.shape]
    if shapes != [(len(names),), (len(text_names),), (len(text_names),)] or counts.sum() != len(words):
        raise ValueError(f"columns whose shapes do not fit together, {shapes}")
    if has_other.dtype.kind != "b":
        raise ValueError(f"marks of other categories of type {has_other.dtype}")
    ends = np.cumsum(counts)
    categories = tuple(words[end - n : end] for n, end in zip(counts, ends, strict=True))
    other = tuple(map(bool, has_other))
    return Preparation(names, fill, tuple(map(int, gaps)), text_names, categories, other, mean, scale)


def _words(arrays: Arrays, name: str) -> tuple[str, ...]:
    """Return an array of text as a tuple."""
    words = arrays[name]
    if words.dtype.kind != "U" or words.ndim != 1 or words.size > MAX_INPUTS:
        raise ValueError(f"{words.size} {name} of type {words.dtype} and shape {words.shape}")
    return tuple(map(str, words))


def _as_counts(arrays: Arrays, name: str, end: int) -> NDArray[np.int64]:
    """Return an array of whole numbers from 0 to `end`, without `end`."""
    counts = arrays[name]
    if counts.dtype.kind not in "iu" or counts.ndim != 1 or not ((counts >= 0) & (counts < end)).all():
        raise ValueError(f"{name} that are not whole numbers from 0 to {end - 1}")
    return counts.astype(np.int64)


def _as_floats(arrays: Arrays, *names: str) -> list[Array]:
    """Return arrays as float64; raise unless all numbers are finite."""
    numbers = [arrays[name] for name in names]
    if any(array.dtype.kind not in NUMBERS for array in numbers):
        raise ValueError("numbers of another type")
    with np.errstate(over="ignore"):  # a type wider than float64 may give infinity, which is refused below
        floats = [array.astype(np.float64) for array in numbers]
    if not all(np.isfinite(array).all() for array in floats):
        raise ValueError("numbers that are not finite")
    return floats


def _check_classes(classes: NDArray[Any]) -> None:
    """Raise unless the classes are text or finite numbers."""
    if classes.dtype.kind not in NUMBERS_OR_TEXT:
        raise ValueError(f"classes of type {classes.dtype}")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise ValueError("classes that are not finite")


def _description(about: NDArray[Any]) -> dict[str, Any]:
    """Read the description."""
    if about.dtype.kind != "U" or about.dtype.itemsize > MAX_ABOUT:
        raise ValueError(f"a description of {about.dtype.itemsize:,} bytes and type {about.dtype.kind}")
    description = json.loads(str(about))
    if not isinstance(description, dict):
        raise ValueError(f"a description that is a {type(description).__name__}")
    return description
