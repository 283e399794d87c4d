"""An earlier name of :mod:`solvers.lasso.working_set`."""

from solvers.lasso.working_set import WorkingSet

__all__ = ["WorkingSet"]
