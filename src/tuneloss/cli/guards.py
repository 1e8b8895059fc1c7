"""Guards around the work of a command: errors as one line, a clean stop, and no output that replaces an input."""

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

STOPPED = 128 + 2  # the exit code that a shell reports for a program that Ctrl-C (signal 2) ended
PARAMETERS = (
    "target",
    "drop",
    "use",
    "max_gb",
    "out",
    "terms",
    "cv",
    "strategy",
)  # parameters of Python functions that are also options of commands
NEXT_PROBLEM = "\n- "  # what stands between the problems that one message lists

_debug = False


def show_tracebacks(wanted: bool) -> None:
    """Choose whether errors are shown with their traceback."""
    global _debug
    _debug = wanted


@contextmanager
def stoppable(state: str = "nothing was written") -> Iterator[None]:
    """End the command with one line instead of a traceback if the user stops it, or if its input breaks a rule.

    Parameters
    ----------
    state : str
        What the user is told about the state of the files after a stop. The message of the `KeyboardInterrupt`, if
        there is one, replaces it.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        note(f"Stopped; {str(stop) or state}.")
        raise typer.Exit(STOPPED) from None
    except TuneLossError as reason:
        if _debug:
            raise
        first, *others = as_options(str(reason)).split(NEXT_PROBLEM)
        note(f"Error: {first}")
        for problem in others:
            note(f"- {problem}")
        raise typer.Exit(1) from None


def as_options(message: str) -> str:
    """Replace the parameters of Python functions in a message by the options of a command.

    Examples
    --------
    >>> as_options("Raise `max_gb`, name `target='kind'`, or leave it out: `drop=['row']`")
    "Raise --max-gb, name --target 'kind', or leave it out: --drop 'row'"
    """

    def option(match: re.Match[str]) -> str:
        value = "" if match[2] is None else f" {match[2]}"
        return f"--{match[1].replace('_', '-')}{value}"

    return re.sub(rf"`({'|'.join(PARAMETERS)})(?:=\[?(.*?)\]?)?`", option, message)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn a failure to write, for example on a full disk, into an `InvalidInput` that names `what` was written."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(
            f"{what} must be a file that can be written: {reason}. An old file is unchanged. Free some space, or "
            "choose another place."
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
    """Raise `InvalidInput` if the output file is one of the input files, even under another name."""
    for path in inputs:
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise InvalidInput(
                f"--out must not replace a file that is read; found {out}, the same file as {path}. Choose another."
            )
