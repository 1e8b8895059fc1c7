"""Libraries that an extra of this package installs, and what to type if one of them is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str, *modules: str) -> Iterator[None]:
    """Say which extra to install if an import in this context finds no such module.

    Parameters
    ----------
    extra : str
        The extra that installs the modules.
    *modules : str
        The names of top-level modules. If another module is missing, its error stays as it is.

    Raises
    ------
    ModuleNotFoundError
        If one of the modules is not installed.

    Examples
    --------
    >>> with needs("torch", "no_such_module"):
    ...     import no_such_module
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: This needs no_such_module, which is not installed. Run: pip install 'tuneloss[torch]'
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in modules:
            raise
        message = f"This needs {missing.name}, which is not installed. Run: pip install 'tuneloss[{extra}]'"
        raise ModuleNotFoundError(message, name=missing.name) from None
