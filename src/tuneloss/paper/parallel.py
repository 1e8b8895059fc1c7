"""Calls that run side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def side_by_side(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Call a function with each tuple of arguments, and yield the results in the order in which the calls end.

    joblib runs the calls, and `joblib.parallel_config` gives them to another backend, such as a Ray or Dask cluster. A
    backend that returns nothing before all calls have ended gets as many calls at a time as it runs at once.

    Parameters
    ----------
    function : callable
    arguments : sequence of tuples
        The arguments of each call.
    jobs : int
        Number of calls at once.

    Examples
    --------
    >>> sorted(side_by_side(max, [(1, 2), (3, 4)], jobs=1))
    [2, 4]
    """
    import joblib

    calls = [joblib.delayed(function)(*call) for call in arguments]
    try:
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    except ValueError:  # this backend returns lists only
        at_once = max(1, joblib.effective_n_jobs(jobs))
        for start in range(0, len(calls), at_once):
            yield from joblib.Parallel(n_jobs=jobs)(calls[start : start + at_once])
    else:
        yield from parallel(calls)
