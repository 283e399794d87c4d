"""Side information for message passing; it lives in :mod:`solvers.amp.priors`."""

from solvers.amp.priors import *  # noqa: F403
from solvers.amp.priors import __all__ as __all__
