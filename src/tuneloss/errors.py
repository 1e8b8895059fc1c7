"""What tuneloss raises: a caller may want to catch one of these."""


class TuneLossError(Exception):
    """The root of every error of this package."""


class InvalidInput(TuneLossError, ValueError):
    """Something given breaks a stated rule: what must hold, what was found, what to do."""


class NotFinite(InvalidInput):
    """A number that must be finite is NaN or infinite, as after a run that diverged."""


class JournalError(InvalidInput):
    """A journal cannot be trusted: cut, edited, of another box, or written by another process."""


class SolverError(TuneLossError, RuntimeError):
    """No solver gave an answer that passes its own optimality check."""


class RunFailed(TuneLossError):
    """Raised by a user's `train` to say that this run failed; `LossTuner.run` records it and goes on."""
