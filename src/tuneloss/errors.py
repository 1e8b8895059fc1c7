"""Exceptions that tuneloss raises. All of them derive from `TuneLossError`."""

__all__ = ["InvalidInput", "JournalError", "NotFinite", "RunFailed", "SolverError", "TuneLossError"]


class TuneLossError(Exception):
    """Base class of every exception in this package."""


class InvalidInput(TuneLossError, ValueError):
    """An argument or a file breaks a rule.

    The message says which rule must hold, what was found, and what to do.
    """


class NotFinite(InvalidInput):
    """A number that must be finite is NaN or infinite, for example after a training run that diverged."""


class JournalError(InvalidInput):
    """A journal cannot be trusted.

    It is truncated, it was edited, it belongs to another box, or another process wrote to it.
    """


class SolverError(TuneLossError, RuntimeError):
    """No solver returned a solution that passes the optimality check."""


class RunFailed(TuneLossError):
    """Raised by a user's `train` function to report a failed run.

    `LossTuner.run` records the failure and continues.
    """
