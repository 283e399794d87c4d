"""An earlier name of :mod:`solvers.lasso.proximal`."""

from solvers.lasso.proximal import ISTA

__all__ = ["ISTA"]
