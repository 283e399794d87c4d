"""Denoisers under their first name; they live in :mod:`solvers.amp.denoisers`."""

from solvers.amp.denoisers import *  # noqa: F403
from solvers.amp.denoisers import __all__ as __all__
