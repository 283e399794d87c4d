"""An earlier name of :mod:`solvers.lasso.proximal`."""

from solvers.lasso.proximal import FISTA

__all__ = ["FISTA"]
