"""An earlier name of :mod:`solvers.lasso.square_root`."""

from solvers.lasso.square_root import SqrtLasso, sqrt_lasso_gap

__all__ = ["SqrtLasso", "sqrt_lasso_gap"]
