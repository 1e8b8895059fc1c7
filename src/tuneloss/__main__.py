"""`python -m tuneloss` is the command line."""

from tuneloss.cli import app

if __name__ == "__main__":
    app()
