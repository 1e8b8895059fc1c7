"""The command line: `tuneloss fit`, `predict`, `learn`, `report`, `demo` and `paper ...`, a file each.

console.py    where commands print
shown.py      what else all share: tables, polite ends
sources.py    where the data of fit and predict comes from; tables.py, arrays.py: how it is read
data.py       what it is then, and what must hold of it
compare.py    what fit does: three models on the same rows
written.py    the files that fit leaves
"""

from __future__ import annotations

from typing import Annotated

try:
    import typer

    from tuneloss.cli.console import PlainGroup, console
    from tuneloss.cli.shown import say_where
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


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"tuneloss {__version__}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Learn the weights of a training loss from a few trained models."""
    say_where(debug)
