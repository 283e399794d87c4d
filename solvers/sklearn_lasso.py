"""An earlier name of :mod:`solvers.lasso.adapters`."""

from solvers.lasso.adapters import CelerLasso, SkglmLasso, SklearnLasso

__all__ = ["CelerLasso", "SkglmLasso", "SklearnLasso"]
