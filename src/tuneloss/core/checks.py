"""The checks of `tuneloss.checks`, under the path by which `torch` and `tuning/online.py` import them."""

from tuneloss.checks import as_finite, as_integer, as_number, reading

__all__ = ["as_finite", "as_integer", "as_number", "reading"]
