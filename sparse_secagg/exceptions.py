"""The few exceptions and warnings of the package."""

from __future__ import annotations

from typing import Any


class InfeasibleError(ValueError):
    """A request that no parameters can satisfy.

    Attributes
    ----------
    argument : str
        The argument to change.
    smallest : float or int
        Its smallest value that works, the other arguments staying as they are.
    """

    def __init__(self, message: str, argument: str, smallest: float) -> None:
        super().__init__(message)
        self.argument = argument
        self.smallest = smallest

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.argument, self.smallest)


class PrivacyWarning(UserWarning):
    """Something that runs, but without the privacy a reader may expect."""


class RefusedRoundError(ValueError):
    """A client refuses to take part, or to go on, in a round; it sends nothing more of it.

    The only exception, with its subclasses, by which a client answers what a server sends.
    """


class AggregateFileError(ValueError):
    """A file is not a saved aggregate, is damaged, or is of another version."""
