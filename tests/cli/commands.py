"""How the tests of commands call them inside this process."""

from typer.testing import CliRunner

from tuneloss.cli import app


def refused(*arguments, code=1) -> str:
    """What is said where a command ends with this exit code, without a traceback."""
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return " ".join(done.stderr.replace("│", " ").split())  # without the frame around what is said of options
