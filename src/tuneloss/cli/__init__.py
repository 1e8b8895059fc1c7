"""The command line: it reads what the user asks for, calls the other rooms, and prints what they return.

fit.py, predict.py, learn.py, report.py, demo.py, paper.py   the commands, one file each
console.py     all output: text, tables, data and progress
guards.py      errors as one line, a clean stop, and no output file that replaces an input file

Everything here is private, except the command ``tuneloss`` itself.
"""

from __future__ import annotations

from typing import Annotated

try:
    import typer

    from tuneloss.cli.console import PlainGroup, console
    from tuneloss.cli.guards import show_tracebacks
except ModuleNotFoundError as missing:
    raise SystemExit(f"The command line needs {missing.name}: pip install 'tuneloss[cli]'") from None

from tuneloss import __version__
from tuneloss.cli.demo import demo
from tuneloss.cli.fit import fit
from tuneloss.cli.learn import learn
from tuneloss.cli.paper import paper
from tuneloss.cli.predict import predict
from tuneloss.cli.report import report

app = typer.Typer(
    cls=PlainGroup,
    help="Learn the weights of a training loss from a few trained models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in (fit, predict, learn, report, demo):
    app.command()(command)
app.add_typer(paper, name="paper")


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if `--version` is there."""
    if wanted:
        console.print(f"tuneloss {__version__}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn the weights of a training loss from a few trained models."""
    show_tracebacks(debug)
