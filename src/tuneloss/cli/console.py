"""Where commands print: all text passes here, and is shown as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich import markup
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from tuneloss.text import visible
from tuneloss.tuning.progress import progress_bar

UsageError: Any = typer.BadParameter.__base__  # what typer raises where the words of a command are wrong


class PlainConsole(Console):
    """Shows text as it is. All that is printed passes here: cells and titles of tables, paths, notes and errors.

    Brackets are no markup and ":car:" is no picture; what would steer the terminal, or what its encoding does not have,
    is shown by its code.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        shown = visible(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(OSError) if self.stderr else _standard_output():  # a note that cannot be written ends no work
            super().print(*objects, **options)


class PlainGroup(TyperGroup):
    """Commands; the same holds for what typer says of their options."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _visible_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _visible_usage(), _named_extras():
            return super().invoke(ctx)


@contextmanager
def _visible_usage() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        error.message = visible(error.message)
        raise


@contextmanager
def _named_extras() -> Iterator[None]:
    """End a command that needs a library of another extra with one line that names the extra."""
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
    """A line on standard error, beside what a command was asked for."""
    PlainConsole(stderr=True).print(text, soft_wrap=True)


def put(lines: Iterable[str]) -> None:
    """Write data to standard output, as it is."""
    with _standard_output():
        sys.stdout.writelines(lines)
        sys.stdout.flush()


@contextmanager
def _standard_output() -> Iterator[None]:
    """A full disk, or an encoding without a letter, ends the command with a word; a reader that went away does not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, UnicodeEncodeError) as reason:
        with suppress(OSError):  # what could not be written is not tried again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        note(f"Error: Standard output must take all that is printed; found that {reason}. Write to another place.")
        raise typer.Exit(1) from None


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A progress bar whose notes are shown as they are."""
    with progress_bar(what, total) as advance:
        yield lambda done, text: advance(done, markup.escape(visible(text)))
