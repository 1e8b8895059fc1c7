"""A progress bar on standard error: drawn by rich if it is installed, plain lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int, *, enabled: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Yield a function ``advance(done, note)`` that shows how many of `total` are done."""
    if not enabled:
        yield lambda done, note: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda done, note: print(f"{what}: {done}/{total} {note}".rstrip(), file=sys.stderr)  # noqa: T201
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, note: bar.update(task, completed=done, description=note)
