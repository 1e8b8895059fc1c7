"""What the commands share: tables, polite ends, and checks of paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import typer
from rich import box
from rich.table import Table

from tuneloss.cli.console import console, note
from tuneloss.errors import InvalidInput, TuneLossError

_debug = False


def say_where(wanted: bool) -> None:
    """Whether errors are to be shown with their traceback."""
    global _debug
    _debug = wanted


@contextmanager
def writing(what: str) -> Iterator[None]:
    """What cannot be written, such as to a full disk, is said in words."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(
            f"{what} must be a file that can be written: {reason}. The old one, if any, is as it was. Make room, or "
            "name another place."
        ) from None


@contextmanager
def stoppable(kept: str = "nothing was written") -> Iterator[None]:
    """Ctrl-C ends the work with a word, and what a user can mend is said in words, instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"Stopped; {kept}.")
        raise typer.Exit(130) from None
    except TuneLossError as reason:
        if _debug:
            raise
        note(f"Error: {reason}")
        raise typer.Exit(1) from None


def table(first: str, *rest: str) -> Table:
    """An empty table, its first column to the left."""
    made = Table(box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    made.add_column(first, justify="left")
    for name in rest:
        made.add_column(name, justify="right")
    return made


def show(header: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool = False) -> None:
    """Print a table; as Markdown, it can go into a page."""
    if markdown:
        for line in (header, ["---"] * len(header), *rows):
            console.print("| " + " | ".join(line) + " |", soft_wrap=True)
        return
    shown = table(*header)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def make_folder(path: Path) -> None:
    """Make the folder before any work is done, so that a bad path costs nothing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as reason:
        raise typer.BadParameter(f"must be a folder that can be written: {reason}", param_hint="--out") from None


def keep_apart(out: Path, *read: Path) -> None:
    """Raise if the file to write is one that is read, by whatever path."""
    for path in read:
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise InvalidInput(
                f"--out must not replace what is read; found {out}, the same file as {path}. Name another."
            )
