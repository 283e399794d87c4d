"""The few exceptions and warnings of the package."""

from __future__ import annotations

from typing import Any


class InfeasibleError(ValueError):
    """A request that no parameters can satisfy.

    Parameters
    ----------
    message : str
        What cannot be done, and what can.
    argument : str
        The parameter that is in the way.
    smallest : float
        Its smallest value that works.

    Attributes
    ----------
    argument : str
        The argument to change.
    smallest : float or int
        Its smallest value that works, the other arguments staying as they are.

    See Also
    --------
    plan : Raises it where no parameters suffice.

    Examples
    --------
    >>> from sparse_secagg import InfeasibleError, plan
    >>> try:
    ...     plan(d=1000, n_clients=1000, epsilon=1.0, n_bits=3)
    ... except InfeasibleError as error:
    ...     print(error.argument, error.smallest > 3)
    n_bits True
    """

    def __init__(self, message: str, argument: str, smallest: float) -> None:
        super().__init__(message)
        self.argument = argument
        self.smallest = smallest

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.argument, self.smallest)


class PrivacyWarning(UserWarning):
    """Something that runs, but without the privacy a reader may expect.

    See Also
    --------
    SparseSecAgg : Warns of simulations, survivors below plan, and model selection.

    Examples
    --------
    >>> import warnings
    >>> from sparse_secagg import PrivacyWarning
    >>> warnings.simplefilter("error", PrivacyWarning)  # insist
    >>> warnings.resetwarnings()
    """


class RefusedRoundError(ValueError):
    """A client refuses to take part, or to go on, in a round; it sends nothing more of it.

    The only exception, with its subclasses, by which a client answers what a server sends.

    See Also
    --------
    ClientSession, client_encode : Raise it.

    Examples
    --------
    >>> from sparse_secagg import RefusedRoundError
    >>> issubclass(RefusedRoundError, Exception)
    True
    """


class AggregateFileError(ValueError):
    """A file is not a saved aggregate, is damaged, or is of another version.

    See Also
    --------
    Aggregate.load : Raises it.

    Examples
    --------
    >>> from sparse_secagg import AggregateFileError
    >>> issubclass(AggregateFileError, ValueError)
    True
    """


class ClusterError(RuntimeError):
    """The workers of a round cannot be reached; nothing was decoded.

    See Also
    --------
    RoundSpec.run : Raises it, for Dask arrays.

    Examples
    --------
    >>> from sparse_secagg.exceptions import ClusterError
    >>> issubclass(ClusterError, RuntimeError)
    True
    """
