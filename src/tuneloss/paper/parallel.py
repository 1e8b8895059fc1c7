"""Calls side by side, their results as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def side_by_side(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """function(*one) for each of the arguments, in the order in which they end.

    joblib runs them: `joblib.parallel_config` gives them to another backend, such as a Ray or Dask cluster. One that
    returns nothing before all is done gets as many at a time as it runs at once.

    >>> sorted(side_by_side(max, [(1, 2), (3, 4)], jobs=1))
    [2, 4]
    """
    import joblib

    calls = [joblib.delayed(function)(*one) for one in arguments]
    try:
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    except ValueError:  # this backend returns lists only
        at_once = max(1, joblib.effective_n_jobs(jobs))
        for start in range(0, len(calls), at_once):
            yield from joblib.Parallel(n_jobs=jobs)(calls[start : start + at_once])
    else:
        yield from parallel(calls)
