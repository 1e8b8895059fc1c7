"""All output of the commands: text, tables, data and progress. Text is printed literally, without markup."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich import box, markup
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from tuneloss.text import visible
from tuneloss.tuning.progress import progress_bar

UsageError: Any = typer.BadParameter.__base__  # typer's error for a wrong command or option


class PlainConsole(Console):
    """A console that prints text literally.

    Brackets are not markup, and ":car:" is not a picture. A character that would control the terminal, or that the
    terminal's encoding lacks, is printed as its code. All output passes through this class: the cells and titles of
    tables, paths, notes and errors.

    Parameters
    ----------
    stderr : bool, default False
        Whether to print to standard error instead of standard output.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text with every character that cannot be printed replaced by its code."""
        printable = visible(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(printable, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects. A note that standard error does not take is dropped, so that the work goes on."""
        with suppress(OSError) if self.stderr else _standard_output():
            super().print(*objects, **options)


class PlainGroup(TyperGroup):
    """A group of commands whose usage errors are printed literally, and whose missing libraries are named."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the options of the group."""
        with _visible_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _visible_usage(), _named_extras():
            return super().invoke(ctx)


@contextmanager
def _visible_usage() -> Iterator[None]:
    """Make hidden characters in usage errors visible."""
    try:
        yield
    except UsageError as error:
        error.message = visible(error.message)
        raise


@contextmanager
def _named_extras() -> Iterator[None]:
    """If a library of another extra is missing, end the command with one line that names the extra."""
    try:
        yield
    except ModuleNotFoundError as missing:
        library = str(missing.name).split(".")[0]
        if library == "tuneloss":
            raise
        extras = "cli,paper,torch" if library == "torch" else "cli,paper"
        note(f"Error: This command needs {library}, which is not installed. Run: pip install 'tuneloss[{extras}]'")
        raise typer.Exit(1) from None


console = PlainConsole()


def note(text: str) -> None:
    """Print a line on standard error."""
    PlainConsole(stderr=True).print(text, soft_wrap=True)


def put(lines: Iterable[str]) -> None:
    """Write data to standard output, unchanged."""
    with _standard_output():
        sys.stdout.writelines(lines)
        sys.stdout.flush()


def show(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool = False, marked: int | None = None
) -> None:
    """Print a table for a terminal, with its first column aligned to the left, or as Markdown for a page.

    Parameters
    ----------
    header : sequence of str
        The titles of the columns.
    rows : sequence of sequences of str
        The cells of each row.
    markdown : bool, default False
        Whether to print Markdown.
    marked : int, optional
        The index of a row to print in bold on a terminal.
    """
    if markdown:
        for line in (header, ["---"] * len(header), *rows):
            console.print("| " + " | ".join(line) + " |", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD)
    for j, name in enumerate(header):
        table.add_column(name, justify="right" if j else "left")
    for i, row in enumerate(rows):
        table.add_row(*row, style="bold" if i == marked else None)
    console.print(table)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar whose notes are printed literally, and yield ``advance(done, note)``."""
    with progress_bar(what, total) as advance:
        yield lambda done, text: advance(done, markup.escape(visible(text)))


@contextmanager
def _standard_output() -> Iterator[None]:
    """End the command with an error if standard output cannot be written, unless the reader has closed the pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, UnicodeEncodeError) as reason:
        with suppress(OSError):  # else Python would try again, as it exits, to write the rest
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        note(f"Error: Standard output must take all that is printed; found that {reason}. Write to another place.")
        raise typer.Exit(1) from None
