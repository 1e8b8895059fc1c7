"""Guards around the work of a command: errors in words, a polite end, and output that replaces no input."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import typer

from tuneloss.cli.console import note
from tuneloss.errors import InvalidInput, TuneLossError

STOPPED = 128 + 2  # the exit code of a shell for a program that Ctrl-C (signal 2) ended
PARAMETERS = ("target", "drop", "max_gb", "out")  # of Python functions; the commands have options of the same names

_debug = False


def show_tracebacks(wanted: bool) -> None:
    """Choose whether errors are shown with their traceback."""
    global _debug
    _debug = wanted


@contextmanager
def stoppable(state: str = "nothing was written") -> Iterator[None]:
    """End the command with one line, instead of a traceback, if the user stops it or its input breaks a rule.

    The line about a stop names the state that the work is left in; the exception may bring a better one.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        note(f"Stopped; {str(stop) or state}.")
        raise typer.Exit(STOPPED) from None
    except TuneLossError as reason:
        if _debug:
            raise
        note(f"Error: {as_options(str(reason))}")
        raise typer.Exit(1) from None


def as_options(message: str) -> str:
    """Name options of a command where a message names parameters of a Python function.

    >>> as_options("Raise `max_gb`, name `target='kind'`, or leave it out: `drop=['row']`")
    "Raise --max-gb, name --target 'kind', or leave it out: --drop 'row'"
    """

    def option(found: re.Match[str]) -> str:
        value = "" if found[2] is None else f" {found[2]}"
        return f"--{found[1].replace('_', '-')}{value}"

    return re.sub(rf"`({'|'.join(PARAMETERS)})(?:=\[?(.*?)\]?)?`", option, message)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise `InvalidInput` if a file cannot be written, for example because the disk is full."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(
            f"{what} must be a file that can be written: {reason}. An old file is unchanged. Make room, or choose "
            "another place."
        ) from None


def make_folder(path: Path) -> None:
    """Create the folder of `--out` before any work is done, so that a bad path costs nothing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as reason:
        raise typer.BadParameter(f"must be a folder that can be written: {reason}", param_hint="--out") from None


def check_apart(out: Path, *inputs: Path) -> None:
    """Raise if the file to write is one of those that are read, under whatever name."""
    for path in inputs:
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise InvalidInput(
                f"--out must not replace a file that is read; found {out}, the same file as {path}. Choose another."
            )
